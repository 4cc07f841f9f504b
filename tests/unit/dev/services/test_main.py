from pathlib import Path

import pytest

from dev.services import ServicesFolder, processes
from dev.services.__main__ import main
from dev.services.processes import MARK
from dev.services.servers import base_environment


def test_down_also_stops_what_killed_test_runs_left_below(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = ServicesFolder(tmp_path / "services")
    inner = home.inner("gw1")
    with inner.locked():
        inner.ports.write_text("{}")
    mark = {MARK: f"{inner.path.resolve()}:moto"}
    pid = processes.launch(
        ["sleep", "60"], environment={**base_environment(), **mark}, log=inner.log("moto"), folder=inner.path
    )

    assert main(["--folder", str(home.path), "down"]) == 0

    assert processes.birth(pid) is None
    assert capsys.readouterr().out.startswith("services: stopped moto of gw1 in ")

"""A copy of the project's scripts in a folder of its own, run with a PATH that holds only what a test put there."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("bash", "cp", "env", "find", "make", "mkdir", "mktemp", "mv", "rm")


class House:
    """What `run` starts sees no tool of this machine but TOOLS and the fakes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "only-these"
        self.bin.mkdir(parents=True)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"the tests need {tool}"
            (self.bin / tool).symlink_to(found)
        for name in ("Makefile", "scripts/setup.sh", "scripts/fetch_jars.sh"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/"), **(env or {})},
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house")

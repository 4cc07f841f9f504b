import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from lakemirror.spark.worker import forget_archives


def test_archives_are_forgotten_and_still_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("in_an_archive_once.py", "")
        file.writestr("in_an_archive_twice.py", "")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("in_an_archive_once")
    assert str(archive) in sys.path_importer_cache

    forget_archives()

    assert str(archive) not in sys.path_importer_cache
    assert importlib.import_module("in_an_archive_twice").__file__ == f"{archive}/in_an_archive_twice.py"

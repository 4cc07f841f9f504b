"""The archive for executors holds the library, with the walker in C if it was built, and nothing else."""

from __future__ import annotations

import tarfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from lakemirror.spark.library import build_archive
from tests.walkers import needs_c


def names(folder: Path) -> list[str]:
    with tarfile.open(build_archive(folder)) as tar:
        return tar.getnames()


@needs_c
def test_the_walker_in_c_travels_along(tmp_path: Path) -> None:
    assert f"lakemirror/formats/iceberg/_walk{EXTENSION_SUFFIXES[0]}" in names(tmp_path)


def test_code_only(tmp_path: Path) -> None:
    assert {Path(name).suffix for name in names(tmp_path)} <= {".py", ".so"}
    assert "lakemirror/formats/iceberg/avro_python.py" in names(tmp_path)

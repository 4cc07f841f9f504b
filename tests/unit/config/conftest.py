"""A configuration from a few lines of YAML, and its problems without the path of the temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from lakemirror.config.loader import check_config, load_config
from lakemirror.config.models import Config

MIRROR = """\
mirror:
  catalog: {name: cloud, type: sql, uri: sqlite:///cloud.db}
  location: mirror
"""


class Files:
    """Writes lake.yaml into an empty folder and reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "lake.yaml"

    def write(self, text: str) -> Path:
        self.path.write_text(dedent(text), encoding="utf-8")
        return self.path

    def load(self, text: str, env: Mapping[str, str] | None = None) -> Config:
        return load_config(self.write(text), env=env or {})

    def check(self, text: str, env: Mapping[str, str] | None = None) -> list[str]:
        problems = check_config(self.write(text), env=env or {})
        return [str(problem).replace(f"{self.folder}/", "") for problem in problems]

    def load_with(self, lines: str, env: Mapping[str, str] | None = None) -> Config:
        """With a mirror above the lines: they start at line 4."""
        return self.load(MIRROR + dedent(lines), env)

    def check_with(self, lines: str, env: Mapping[str, str] | None = None) -> list[str]:
        return self.check(MIRROR + dedent(lines), env)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)

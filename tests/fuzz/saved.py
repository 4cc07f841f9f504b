"""Inputs on disk: what was found, to be run again and to be made smaller; the bytes lie in a file of their own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.cases import Case


def save(case: Case, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {key: value for key, value in asdict(case).items() if key != "data"}
    path.with_suffix(".bin").write_bytes(case.data)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Case:
    return Case(**json.loads(path.read_text(encoding="utf-8")), data=path.with_suffix(".bin").read_bytes())

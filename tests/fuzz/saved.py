"""Inputs on disk: what was found, to be run again and to be made smaller."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.cases import Case


def save(case: Case, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**asdict(case), "data": base64.b64encode(case.data).decode()}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Case:
    document = json.loads(path.read_text(encoding="utf-8"))
    return Case(**{**document, "data": base64.b64decode(document["data"])})

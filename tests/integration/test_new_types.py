"""Types that no engine at hand writes: schemas, defaults and fields of tomorrow arrive as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import UnsupportedError
from tests.histories.encoding import COLUMNS
from tests.histories.mirroring import SyntheticHistory
from tests.lake import path_of

pytestmark = pytest.mark.integration
NEW_TYPES = (
    "geometry(srid:4326)",
    "geometry",
    "geography(srid:4326, spherical)",
    "variant",
    "unknown",
    "timestamp_ns",
    "timestamptz_ns",
    "a type of tomorrow(7)",
)


def documents(history: SyntheticHistory) -> tuple[dict[str, Any], dict[str, Any]]:
    source, mirror = history.pointer("source.db"), history.pointer("mirror.db")
    assert source is not None
    assert mirror is not None
    return json.loads(path_of(source).read_text()), json.loads(path_of(mirror).read_text())


def test_schemas_with_new_types_and_defaults_arrive_as_they_are(tmp_path: Path) -> None:
    history = SyntheticHistory(tmp_path, 3, 0, {})
    new = [
        {"id": 100 + number, "name": f"new_{number}", "required": False, "type": name}
        for number, name in enumerate(NEW_TYPES)
    ]
    new[-1] |= {"initial-default": "x", "write-default": "y", "field-of-tomorrow": {"deep": [1, 2]}}
    history.source.schemas.append([*COLUMNS, *new])
    history.append(1, 2, 3)
    history.delete_by_vectors(0, 0, 0)
    history.sync(0, 0, 1)
    source, mirror = documents(history)
    assert mirror["schemas"] == source["schemas"]
    assert [one["type"] for one in mirror["schemas"][-1]["fields"]][-len(NEW_TYPES) :] == [*NEW_TYPES]


def test_fields_of_tomorrow_in_the_metadata_survive(tmp_path: Path) -> None:
    history = SyntheticHistory(tmp_path, 3, 0, {})
    history.append(1, 2, 3)
    location = history.pointer("source.db")
    assert location is not None
    document = json.loads(path_of(location).read_text())
    document["field-of-tomorrow"] = {"numbers": [1, 2.5, None], "big": 2**63}
    document["snapshots"][0]["of-a-snapshot"] = "kept"
    path_of(location).write_text(json.dumps(document))
    history.lake.sync()
    _, mirror = documents(history)
    assert mirror["field-of-tomorrow"] == document["field-of-tomorrow"]
    assert mirror["snapshots"][0]["of-a-snapshot"] == "kept"


def test_a_format_version_of_tomorrow_is_refused_by_name(tmp_path: Path) -> None:
    history = SyntheticHistory(tmp_path, 3, 0, {})
    history.append(1, 2, 3)
    location = history.pointer("source.db")
    assert location is not None
    document = json.loads(path_of(location).read_text())
    path_of(location).write_text(json.dumps({**document, "format-version": 4}))
    with pytest.raises(UnsupportedError, match="4"):
        history.lake.mirror()
    assert history.pointer("mirror.db") is None

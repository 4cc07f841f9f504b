"""The name of a state of the source: the place of its metadata, and the snapshot that was asked for, if one was."""

from __future__ import annotations

import re

from lakemirror.errors import PermanentError

_SNAPSHOT_ID = re.compile(r"-?[0-9]{1,19}")
_SNAPSHOT = "#snapshot="  # between a metadata location and the snapshot that was asked for


def source_name(location: str, target_snapshot_id: int | None) -> str:
    return location if target_snapshot_id is None else f"{location}{_SNAPSHOT}{target_snapshot_id}"


def parse_source_name(name: str) -> tuple[str, int | None]:
    """The place of the metadata, and the snapshot; PermanentError for what is none."""
    location, mark, snapshot_id = name.partition(_SNAPSHOT)
    if mark and _SNAPSHOT_ID.fullmatch(snapshot_id) is None:
        raise PermanentError("detect", name, f"{snapshot_id!r} is no snapshot id", "the catalog's pointer is damaged")
    return location, int(snapshot_id) if snapshot_id else None


def snapshot_asked_for(name: str) -> int | None:
    """The snapshot that a state of the source was named with; None: its head."""
    return parse_source_name(name)[1]

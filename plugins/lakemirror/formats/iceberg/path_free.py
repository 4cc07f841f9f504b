"""Texts of the source's metadata without its places: what names one is left out, and told.

A text is left out, not mapped: nobody copied what it points at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakemirror.errors import shown
from lakemirror.formats.iceberg.avro_values import Malformed
from lakemirror.model import bounded_json
from lakemirror.model.paths import PrefixMap

MAX_TOLD = 100
_MAX_WHERE = 200
_DEFAULTS = ("initial-default", "write-default")


class PathFree:
    """Makes parts of the metadata free of source paths; `left_out` says in words what was lost, and how much more."""

    def __init__(self, paths: PrefixMap) -> None:
        self._paths = paths
        self._told: list[str] = []
        self._more = 0

    @property
    def left_out(self) -> list[str]:
        return [*self._told, *([f"{self._more} more texts that hold a source path"] if self._more else [])]

    def _leave_out(self, what: str) -> None:
        if len(self._told) < MAX_TOLD:
            self._told.append(f"{shown(what, _MAX_WHERE)}: it holds a source path")
        else:
            self._more += 1

    def entry(self, entry: dict[str, Any], path_key: str, where: str) -> dict[str, Any]:
        """An entry whose own path is a file of the mirror too, and is mapped."""
        rest = {key: value for key, value in entry.items() if key != path_key}
        return {**self.fields(rest, where), path_key: self._paths.map(entry[path_key])}

    def structure(self, part: Any) -> Any:
        """Schemas, specs and orders: names and default values are data and stay, comments are not."""
        if isinstance(part, list):
            return [self.structure(one) for one in part]
        if not isinstance(part, dict):
            return part
        kept = {}
        for key, value in part.items():
            if key == "doc" and isinstance(value, str) and self._paths.mentions_source(value):
                self._leave_out(f"comment of column {str(part.get('name'))[:_MAX_WHERE]}")
            else:
                kept[key] = value if key in _DEFAULTS else self.structure(value)
        return kept

    def fields(self, part: dict[str, Any], where: str = "") -> dict[str, Any]:
        kept = {}
        for key, value in part.items():
            what = f"{where} {key[:_MAX_WHERE]}".lstrip()[:_MAX_WHERE]
            if self._paths.mentions_source(key):
                self._leave_out(f"a name in {where}" if where else "a name")
            elif isinstance(value, str) and self._paths.mentions_source(value):
                self._leave_out(what)
            else:
                kept[key] = self._part(value, what)
        return kept

    def _part(self, value: Any, where: str) -> Any:
        if isinstance(value, dict):
            return self.fields(value, where)
        if not isinstance(value, list):
            return value
        kept = []
        for one in value:
            if isinstance(one, str) and self._paths.mentions_source(one):
                self._leave_out(where)
            else:
                kept.append(self._part(one, where))
        return kept


_SCHEMAS = ("schema", "iceberg.schema", "avro.schema")


def header_entries(metadata: Mapping[str, bytes], paths: PrefixMap) -> dict[str, bytes] | None:
    """A file's own key-values without what names the source; None if nothing does.

    Writers keep the table's schema there, with the comments of its columns. Of a schema only comments are left out:
    names and defaults are data.
    """
    changed: dict[str, bytes | None] = {}
    for key, value in metadata.items():
        text = value.decode(errors="replace")
        if key in _SCHEMAS and '"doc"' in text:
            changed[key] = _schema_text(key, value, paths)
        elif key not in _SCHEMAS and (paths.mentions_source(key) or paths.mentions_source(text)):
            changed[key] = None
    entries = {key: changed.get(key, value) for key, value in metadata.items()}
    kept = {key: value for key, value in entries.items() if value is not None}
    return None if kept == metadata else kept


def header_essence(metadata: dict[str, bytes], paths: PrefixMap | None) -> dict[str, bytes]:
    """What of a file's key-values counts when two copies of it are compared; without `paths` all of it."""
    free = None if paths is None else header_entries(metadata, paths)
    return metadata if free is None else free


def _schema_text(key: str, schema: bytes, paths: PrefixMap) -> bytes:
    free = PathFree(paths)
    try:
        cleaned = free.structure(bounded_json.loads(schema))
    except ValueError as err:
        raise Malformed(f"{key} in its header is not readable ({err})") from err
    return json.dumps(cleaned, ensure_ascii=False, separators=(",", ":")).encode() if free.left_out else schema

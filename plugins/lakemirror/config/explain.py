"""Every value in force and where it came from: the answer of `config show`. Secrets are masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakemirror.config.knobs import Knobs, knob_names
from lakemirror.config.problems import SECRET_MASK, KeyPath, dotted
from lakemirror.config.quantities import format_duration
from lakemirror.errors import UsageError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.config.models import Config

Explained = dict[str, dict[str, Any]]


def explain_all(config: Config, file: str, lines: Mapping[KeyPath, int], secrets: frozenset[KeyPath]) -> Explained:
    origin = _Origin(file, lines, secrets)
    found = {dotted(path): origin.of(value, path) for path, value in _section_values(config)}
    for name in knob_names():
        path = ("defaults", *name)
        found[dotted(path)] = origin.of(_knob(config.defaults, name), path)
    for index, entry in enumerate(config.tables):
        key = "name" if entry.match is None else "match"
        found[f"tables[{index}].{key}"] = origin.of(entry.label, ("tables", index, key))
        if entry.exclude:
            found[f"tables[{index}].exclude"] = origin.of(entry.exclude, ("tables", index, "exclude"))
    return found


def explain_table(
    config: Config, table: TableRef, file: str, lines: Mapping[KeyPath, int], secrets: frozenset[KeyPath]
) -> Explained:
    entry = config.entry_for(table)
    if entry is None:
        raise UsageError(
            "explain table", str(table), f"no entry of `tables:` in {file} covers it", "add one, or check the name"
        )
    origin = _Origin(file, lines, secrets)
    index = next(index for index, candidate in enumerate(config.tables) if candidate is entry)
    knobs = config.knobs_for(table)
    key = "name" if entry.match is None else "match"
    found = {"entry": origin.of(entry.label, ("tables", index, key))}
    for name in knob_names():
        found[dotted(name)] = origin.of(_knob(knobs, name), ("tables", index, *name), ("defaults", *name))
    return found


class _Origin:
    """Looks up where a value came from: the first of its possible paths that the file has."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int], secrets: frozenset[KeyPath]) -> None:
        self.file, self.lines, self.secrets = file, lines, secrets

    def of(self, value: object, *paths: KeyPath) -> dict[str, Any]:
        path = next((path for path in paths if path in self.lines), None)
        if path is None:
            return {"value": _plain(value), "from": "default"}
        hidden = any(secret[: len(path)] == path for secret in self.secrets)
        return {"value": SECRET_MASK if hidden else _plain(value), "from": f"{self.file}:{self.lines[path]}"}


def _section_values(config: Config) -> Iterator[tuple[KeyPath, object]]:
    if config.source is None:
        yield ("source",), None
    else:
        yield from _catalog_values("source", config.source.catalog)
        for index, root in enumerate(config.source.roots):
            yield ("source", "roots", index, "name"), root.name
            yield ("source", "roots", index, "from"), root.from_
    yield from _catalog_values("mirror", config.mirror.catalog)
    yield ("mirror", "location"), config.mirror.location
    yield (("state",), None) if config.state is None else (("state", "uri"), config.state.uri)
    yield ("spark", "conn_id"), config.spark.conn_id
    yield ("spark", "master"), config.spark.master
    for key, value in sorted(config.spark.conf.items()):
        yield ("spark", "conf", key), value
    yield from _event_values(config)
    for key in type(config.cache).model_fields:
        yield ("cache", key), getattr(config.cache, key)


def _event_values(config: Config) -> Iterator[tuple[KeyPath, object]]:
    yield ("events", "poll_seconds"), config.events.poll_seconds
    for kind, queue in (("pubsub", config.events.pubsub), ("sqs", config.events.sqs)):
        if queue is None:
            yield ("events", kind), None
        else:
            yield from ((("events", kind, key), getattr(queue, key)) for key in type(queue).model_fields)


def _catalog_values(side: str, catalog: Any) -> Iterator[tuple[KeyPath, object]]:
    yield (side, "catalog", "name"), catalog.name
    yield (side, "catalog", "type"), catalog.type
    yield (side, "catalog", "conn_id"), catalog.conn_id
    for key, value in sorted(catalog.properties.items()):
        yield (side, "catalog", key), value


def _knob(knobs: Knobs, name: tuple[str, ...]) -> object:
    return getattr(knobs.gc, name[1]) if len(name) == 2 else getattr(knobs, name[0])


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value)
    return list(value) if isinstance(value, tuple) else value

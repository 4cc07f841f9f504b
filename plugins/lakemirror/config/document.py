"""YAML text as plain values, with the line every key came from.

Built on composed nodes, because a constructed document has forgotten its lines and its duplicate keys. Anchors, aliases
and merge keys work; a document that unfolds into too much (nested or aliased over and over) is refused before it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from lakemirror.config.problems import Finding, KeyPath, describe, dotted

MAX_FILE_BYTES = 1024 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = (f"{_TAG}str", f"{_TAG}value")
_CONSTRUCTED_TAGS = tuple(f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "timestamp"))


@dataclass(frozen=True, slots=True)
class Document:
    """Values of a file; `lines` knows every key and list item by its path."""

    data: object
    lines: dict[KeyPath, int]
    findings: tuple[Finding, ...]
    broken: set[KeyPath] = field(default_factory=set)  # what could not be read and needs no second complaint


def read_document(text: str, text_maps: frozenset[KeyPath]) -> Document:
    """Below a path of `text_maps` every scalar stays as it is written: `0123` is the text 0123, not an octal number."""
    try:
        _refuse_depth(text)
        loader = yaml.CSafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return _refused("the file is empty", "see include/config/lakemirror.yaml for one that works")
            reader = _Reader(loader, text_maps)
            data = reader.value(node, (), 0)
        finally:
            loader.dispose()
    except _Refused as err:
        return _refused(err.message, err.hint, err.line)
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        problem = " ".join(filter(None, (err.context, err.problem)))
        return _refused(f"not valid YAML: {problem}", "", mark.line + 1 if mark else None)
    except yaml.YAMLError as err:
        return _refused(f"not valid YAML: {str(err).splitlines()[0]}")
    if not isinstance(data, dict):
        return _refused(f"want a map of sections, got {describe(data)}", "start with `mirror:`", 1)
    return Document(data, reader.lines, tuple(reader.findings), reader.broken)


def _refused(message: str, hint: str = "", line: int | None = None) -> Document:
    return Document({}, {}, (Finding((), message, hint, line=line),))


class _Refused(Exception):
    def __init__(self, message: str, hint: str, line: int) -> None:
        super().__init__(message)
        self.message, self.hint, self.line = message, hint, line


def _refuse_depth(text: str) -> None:
    """Before composing: the composer calls itself in C for every level and ends the process when there are too many."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _too_deep(where: Any) -> _Refused:
    return _Refused(f"nested deeper than {MAX_DEPTH} levels", "no configuration needs that", where.start_mark.line + 1)


@dataclass(slots=True)
class _Reader:
    loader: yaml.CSafeLoader
    text_maps: frozenset[KeyPath]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    broken: set[KeyPath] = field(default_factory=set)
    count: int = 0

    def value(self, node: yaml.Node, path: KeyPath, depth: int) -> object:
        self._count(node, depth)
        if isinstance(node, yaml.MappingNode):
            return self._map(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*path, index), depth) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _count(self, node: yaml.Node, depth: int) -> None:
        """Aliases make a document larger than its text; what unfolds without end is stopped here."""
        self.count += 1
        if self.count > MAX_VALUES:
            raise _Refused(
                f"unfolds into more than {MAX_VALUES} values",
                "aliases that repeat aliases grow fast; write less",
                node.start_mark.line + 1,
            )
        if depth > MAX_DEPTH:  # an anchor that contains itself
            raise _too_deep(node)

    def _item(self, node: yaml.Node, path: KeyPath, depth: int) -> object:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path, depth + 1)

    def _map(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, object]:
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.findings.append(Finding(path, "a key must be plain text", line=line))
            elif key.value in entries:
                first = entries[key.value][0].start_mark.line + 1
                name = dotted((*path, key.value))
                self.findings.append(
                    Finding(path, f"`{name}` is given twice, first in line {first}", "keep one of them", line=line)
                )
            else:
                entries[key.value] = (key, value)
        for key, value in self._merged(node, path, depth):
            entries.setdefault(key.value, (key, value))
        found: dict[str, object] = {}
        for name, (key, value) in entries.items():
            here = (*path, name)
            self.lines[here] = key.start_mark.line + 1
            found[name] = self.value(value, here, depth + 1)
        return found

    def _merged(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """What `<<: *other` brings in; an earlier map of a list wins over a later one, and maps may merge in turn."""
        self._count(node, depth)
        for key, value in node.value:
            if key.tag != f"{_TAG}merge":
                continue
            for other in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(other, yaml.MappingNode):
                    line = key.start_mark.line + 1
                    self.findings.append(Finding(path, "`<<` merges a map or a list of maps", line=line))
                    continue
                self.count += len(other.value)
                yield from (
                    (k, v) for k, v in other.value if isinstance(k, yaml.ScalarNode) and k.tag != f"{_TAG}merge"
                )
                yield from self._merged(other, path, depth + 1)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> object:
        if node.tag in _TEXT_TAGS:
            return str(node.value)
        if node.tag not in _CONSTRUCTED_TAGS:
            self._unreadable(node, path, f"the tag {node.tag} is not allowed", "")
            return None
        try:
            value: object = self.loader.construct_object(node)
        except (ValueError, KeyError):  # 2026-13-45 looks like a date to YAML, `!!bool maybe` like a mistake
            self._unreadable(node, path, f"cannot be read as {node.tag.removeprefix(_TAG)}", "quote it")
            return None
        if value is None or path[:-1] not in self.text_maps:
            return value
        return str(value).lower() if isinstance(value, bool) else str(node.value)

    def _unreadable(self, node: yaml.Node, path: KeyPath, message: str, hint: str) -> None:
        self.broken.add(path)
        self.findings.append(Finding(path, f"`{dotted(path)}`: {message}", hint, line=node.start_mark.line + 1))

"""The short way through a manifest: records whose paths are plain beyond doubt go through the walker in C as a whole.

It is a short way and never another way. Whatever is unusual about one record of a batch (an odd spelling of a prefix, a
name that some store refuses, a folder of the mirror's own, text that is not UTF-8, a delete file, an encrypted one)
makes the answer None, and the caller goes the long way, which knows every rule and every error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.avro_program import Program
from lakemirror.formats.iceberg.avro_walk import Ranges, Walker
from lakemirror.formats.iceberg.manifest_fields import (
    CONTENT,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SIZE,
    KEY_METADATA,
    REFERENCED_DATA_FILE,
    STATUS,
)
from lakemirror.model.paths import PrefixMap, canonical
from lakemirror.storage.keys import check_key

_PLACE = re.compile(r"(?:file://|[a-z][a-z0-9+.-]*://[^/]+)(?:/[^/]+)*")
_SPELLINGS = {"file:///": ("file:///", "file:/", "/"), "s3://": ("s3://", "s3a://", "s3n://")}
_NO_BRANCH, _ABSENT = -2, (-1, -1, -1)
Place = tuple[int, int, int]  # slot, branch of the text, branch of null


@dataclass(frozen=True, slots=True)
class PlainRules:
    """Literal prefixes, the longest first, and what stands in their place; without any, nothing is plain."""

    pairs: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def mapping(cls, paths: PrefixMap) -> PlainRules:
        """From the source to the mirror, as `paths` has it."""
        if not all(_is_usual(source) and _is_folder(target) for source, target in paths.rules):
            return cls(())
        pairs = [(spelled, target) for source, target in paths.rules for spelled in _spellings(source)]
        return cls(tuple((f"{source}/".encode(), f"{target}/".encode()) for source, target in pairs))

    @classmethod
    def staying(cls, paths: PrefixMap) -> PlainRules:
        """For paths that are in the mirror already: they stay what they are."""
        targets = sorted({target for _, target in paths.rules}, key=lambda target: (-len(target), target))
        if not all(_is_folder(target) for target in targets):
            return cls(())
        return cls(tuple((f"{target}/".encode(), f"{target}/".encode()) for target in targets))


def _is_usual(place: str) -> bool:
    """A prefix that one spelling of a path has exactly if the map of prefixes finds it."""
    return _PLACE.fullmatch(place) is not None and canonical(place) == place and place != "file://"


def _spellings(place: str) -> Iterable[str]:
    for usual, others in _SPELLINGS.items():
        if place.startswith(usual):
            return [other + place[len(usual) :] for other in others]
    return [place]


def _is_folder(target: str) -> bool:
    """A place below which every plain name is a key that its store can hold."""
    try:
        check_key(f"{target}/x")
    except PermanentError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Columns:
    """Live data files: so many rows, as the buffers of Arrow columns (sizes int64; offsets int32 and texts)."""

    rows: int
    sizes: bytes
    source_offsets: bytes
    sources: bytes
    target_offsets: bytes
    targets: bytes


def rewrite(walker: Walker, ranges: Ranges, rules: PlainRules) -> bytes | None:
    """The records with every path mapped, or None if they must go the long way."""
    places = _paths(walker.program)
    if walker.native is None or places is None or not rules.pairs:
        return None
    slots = len(walker.program.slots)
    new: bytes | None = walker.native.rewrite(ranges.data, ranges.raw, slots, places, rules.pairs)
    return new


def columns(walker: Walker, ranges: Ranges, rules: PlainRules) -> Columns | None:
    """The live ones of these entries of a data manifest, or None if they must go the long way."""
    places = _entry_places(walker.program)
    if walker.native is None or places is None or not rules.pairs:
        return None
    slots = len(walker.program.slots)
    found = walker.native.entries(ranges.data, ranges.raw, slots, *places, rules.pairs)
    return None if found is None else Columns(*found)


@lru_cache(maxsize=64)
def _paths(program: Program) -> tuple[Place, ...] | None:
    """Where the paths of a data manifest lie, in the order of their bytes; None if not as usual."""
    found = [_text(program, FILE_PATH, optional=False)]
    if program.slot(REFERENCED_DATA_FILE) is not None:
        found.append(_text(program, REFERENCED_DATA_FILE, optional=True))
    usual = [place for place in found if place is not None]
    return tuple(sorted(usual)) if len(usual) == len(found) else None


@lru_cache(maxsize=64)
def _entry_places(program: Program) -> tuple[Any, ...] | None:
    """What `entries` of the extension wants to know; None if the schema is not as usual."""
    numbers = [_number(program, field_id) for field_id in (STATUS, CONTENT, FILE_SIZE)]
    if numbers[1] is None and program.slot(CONTENT) is None:
        numbers[1] = -1  # of old: only data files
    path = _text(program, FILE_PATH, optional=False)
    key, referenced = (
        _ABSENT if program.slot(field_id) is None else _text(program, field_id, optional=True, kind=kind)
        for field_id, kind in ((KEY_METADATA, "bytes"), (REFERENCED_DATA_FILE, "string"))
    )
    if None in numbers or None in (path, key, referenced) or program.slot(FILE_FORMAT) is None:
        return None
    return (tuple(numbers), key, path, referenced)


def _text(program: Program, field_id: int, *, optional: bool, kind: str = "string") -> Place | None:
    number = program.slot(field_id)
    if number is None:
        return None
    branch, null = program.slots[number].branch_of(kind), program.slots[number].branch_of("null")
    if branch is None:
        return None
    return number, branch, null if optional and null is not None else _NO_BRANCH


def _number(program: Program, field_id: int) -> int | None:
    number = program.slot(field_id)
    if number is None or program.slots[number].branch_of("int", "long") != -1:
        return None
    return number

"""What is known of the mirror's rewritten delete files, by path: looked up in a sorted table, no object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Protocol

import pyarrow as pa

from lakemirror.formats.iceberg.manifest import DeleteFileFacts, DeletionVector
from lakemirror.formats.iceberg.manifest_entry import Bounds


class FilesOfTheMirror(Protocol):
    """Tells what a delete file in the mirror holds."""

    def vectors(self, target: str) -> frozenset[DeletionVector]: ...

    def bounds(self, target: str, file_format: str) -> Bounds: ...


class DeleteFacts(Mapping[str, DeleteFileFacts]):
    """A table of target, size, lower, upper and vectors as a mapping.

    What it does not tell, because an earlier version wrote the file, is read from `files` if somebody asks. The answer
    to the last question is kept: the entries of one Puffin file follow each other.
    """

    def __init__(self, facts: pa.Table, files: FilesOfTheMirror | None = None) -> None:
        ordered = facts.sort_by("target").combine_chunks()
        self._columns = [ordered[name].combine_chunks() for name in ("target", "size", "lower", "upper", "vectors")]
        self._last: tuple[str, DeleteFileFacts] | None = None
        self._files = files

    def __getitem__(self, target: str) -> DeleteFileFacts:
        if self._last is None or self._last[0] != target:
            self._last = target, self._find(target)
        return self._last[1]

    def _find(self, target: str) -> DeleteFileFacts:
        targets, *values = self._columns
        at = bisect_left(range(len(targets)), target, key=lambda number: targets[number].as_py())
        if at == len(targets) or targets[at].as_py() != target:
            raise KeyError(target)
        size, lower, upper, vectors = (column[at].as_py() for column in values)
        known = None if vectors is None else frozenset(DeletionVector(**vector) for vector in vectors)
        if self._files is None:
            return DeleteFileFacts(size, lower, upper, known)
        read_vectors = None if known is not None else cache(partial(self._files.vectors, target))
        return DeleteFileFacts(size, lower, upper, known, read_vectors, partial(self._files.bounds, target))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns[0].to_pylist())

    def __len__(self) -> int:
        return len(self._columns[0])

"""What is known of the mirror's rewritten delete files, by path: looked up in a sorted table, no object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache, partial

import pyarrow as pa

from lakemirror.formats.iceberg.manifest import DeleteFileFacts, DeletionVector


class DeleteFacts(Mapping[str, DeleteFileFacts]):
    """A table of target, size, lower, upper and vectors as a mapping.

    The answer to the last question is kept: the entries of one Puffin file follow each other.
    """

    _read: Callable[[str], frozenset[DeletionVector]] | None = None

    def __init__(self, facts: pa.Table) -> None:
        ordered = facts.sort_by("target").combine_chunks()
        self._columns = [ordered[name].combine_chunks() for name in ("target", "size", "lower", "upper", "vectors")]
        self._last: tuple[str, DeleteFileFacts] | None = None

    def reading(self, read: Callable[[str], frozenset[DeletionVector]]) -> DeleteFacts:
        """The same facts; what vectors a file of an earlier version has is read by `read`, if somebody asks."""
        made = copy(self)
        made._read, made._last = read, None
        return made

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
        read = None if self._read is None or known is not None else cache(partial(self._read, target))
        return DeleteFileFacts(size, lower, upper, known, read)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns[0].to_pylist())

    def __len__(self) -> int:
        return len(self._columns[0])

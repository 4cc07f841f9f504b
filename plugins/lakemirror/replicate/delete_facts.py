"""What is known of the mirror's position delete files, by path: looked up in a sorted table, no object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import pyarrow as pa

from lakemirror.formats.iceberg.manifest import DeleteFileFacts


class DeleteFacts(Mapping[str, DeleteFileFacts]):
    """A table of target, size, lower and upper as a mapping."""

    def __init__(self, facts: pa.Table) -> None:
        ordered = facts.sort_by("target").combine_chunks()
        self._columns = [ordered[name].combine_chunks() for name in ("target", "size", "lower", "upper")]

    def __getitem__(self, target: str) -> DeleteFileFacts:
        targets, *values = self._columns
        at = bisect_left(range(len(targets)), target, key=lambda number: targets[number].as_py())
        if at == len(targets) or targets[at].as_py() != target:
            raise KeyError(target)
        return DeleteFileFacts(*(column[at].as_py() for column in values))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns[0].to_pylist())

    def __len__(self) -> int:
        return len(self._columns[0])

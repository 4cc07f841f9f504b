"""Delete files of every kind that hold paths, through one door: the same deletes with their paths mapped.

Position deletes in Parquet, ORC and Avro, and deletion vectors in Puffin files. Equality deletes hold no paths and are
copied as they are. Bytes in, bytes and facts out: the same input gives the same bytes, whoever asks and however often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg import position_deletes, position_deletes_avro, position_deletes_orc, puffin
from lakemirror.formats.iceberg.delete_facts import RewrittenDeletes
from lakemirror.formats.iceberg.manifest_entry import Bounds
from lakemirror.model.paths import PrefixMap


class _Format(NamedTuple):
    rewrite: Callable[[bytes, str, PrefixMap], RewrittenDeletes]
    is_same: Callable[[bytes, bytes, PrefixMap], bool]


_FORMATS = {
    "PARQUET": _Format(position_deletes.rewrite, position_deletes.same_rows),
    "ORC": _Format(position_deletes_orc.rewrite, position_deletes_orc.is_same),
    "AVRO": _Format(position_deletes_avro.rewrite, position_deletes_avro.is_same),
    "PUFFIN": _Format(puffin.rewrite, puffin.is_same),
}


def rewrite(data: bytes, uri: str, file_format: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror; `file_format` is what its manifest entry says, in any case."""
    return _format(file_format, uri).rewrite(data, uri, paths)


def is_same(left: bytes, right: bytes, file_format: str, paths: PrefixMap) -> bool:
    """True if two delete files delete the same rows in the same order, however they were compressed.

    Comments and key-values that name the source are no difference: which those are follows from all roots, and roots
    may be added. What is damaged is not the same as anything.
    """
    return _format(file_format, "two files").is_same(left, right, paths)


def bounds(data: bytes, uri: str, file_format: str) -> Bounds:
    """The first and the last path that a position delete file holds, as they stand there."""
    facts = rewrite(data, uri, file_format, _Staying(())).facts
    return facts.lower, facts.upper


class _Staying(PrefixMap):
    """Every path is where it is."""

    def find(self, path: str) -> str | None:
        return path

    def mentions_source(self, text: str) -> bool:
        return False


def _format(name: str, uri: str) -> _Format:
    found = _FORMATS.get(name.upper())
    if found is None:
        raise UnsupportedError(
            "rewrite deletes", uri, f"deletes in {name} are not supported", f"want one of {', '.join(_FORMATS)}"
        )
    return found

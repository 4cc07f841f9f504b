"""How manifests come in: a small one by one request, a large one as a stream, either in pieces for the same code.

A manifest that is shorter than its list says is refused, and a source's that is gone is a reason to plan anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakemirror.errors import SourceVanishedError
from lakemirror.formats.iceberg import manifest
from lakemirror.storage.port import ObjectNotFound, ObjectStore

# Up to here a manifest and its copy are held in memory: one request reads it, one atomic request writes it, either is
# tried again by itself, and planning and rewriting share one read.
WHOLE_BYTES = 16 * 1024 * 1024


def is_small(length: int) -> bool:
    return length <= WHOLE_BYTES


def pieces(store: ObjectStore, uri: str, length: int, op: str, *, is_source: bool) -> Iterable[bytes]:
    """The bytes of a manifest of which its list says that it has `length`."""
    try:
        if not is_small(length):
            return manifest.check_length_of(store.stream(uri), uri, length)
        data = store.get(uri, max_bytes=WHOLE_BYTES).data
    except ObjectNotFound as err:
        if not is_source:
            raise
        raise SourceVanishedError(op, uri, "the manifest is gone", "run again: it plans anew") from err
    manifest.check_length(data, uri, length)
    return [data]

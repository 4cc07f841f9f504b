"""Read an immutable object once: a second `get` of the same object within a run is answered from memory.

For metadata files, which planning and rewriting both need. Bounded in bytes; what does not fit is simply read again.
"""

from __future__ import annotations

from collections import OrderedDict

from lakemirror.storage.port import MAX_GET_BYTES, Blob, ObjectStore, within
from lakemirror.storage.wrappers.forward import ForwardingStore

MAX_BYTES = 64 * 1024 * 1024


class ReadOnceStore(ForwardingStore):
    """Remembers whole-object `get`s; for a side that this run only reads. The least recently used go first."""

    def __init__(self, inner: ObjectStore, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(inner)
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, Blob] = OrderedDict()
        self._size_bytes = 0

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        if byte_range is not None:
            return super().get(uri, byte_range=byte_range, max_bytes=max_bytes)
        with self._lock:
            if uri in self._kept:
                self._kept.move_to_end(uri)
                return within(self._kept[uri], uri, max_bytes)
        blob = super().get(uri, max_bytes=max_bytes)
        with self._lock:
            if uri not in self._kept:
                self._kept[uri] = blob
                self._size_bytes += len(blob.data)
            while self._size_bytes > self._max_bytes:
                _, gone = self._kept.popitem(last=False)
                self._size_bytes -= len(gone.data)
        return blob

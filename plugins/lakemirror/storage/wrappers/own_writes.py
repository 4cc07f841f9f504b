"""Objects that this process has created itself, below one folder, are not read again: their bytes are still here.

For segments of a plan, whose names follow from their content: what another process may have put there is the same.
Bounded in bytes; what does not fit is read from the store. Nothing that has to be verified may lie in that folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from lakemirror.storage.port import (
    CREATE,
    MAX_GET_BYTES,
    Blob,
    Condition,
    Create,
    ObjectInfo,
    ObjectStore,
    Written,
    within,
)
from lakemirror.storage.wrappers.forward import ForwardingStore

MAX_BYTES = 16 * 1024 * 1024
_UNKNOWN = datetime.fromtimestamp(0, UTC)  # nobody asked the store when it was written


class OwnWritesStore(ForwardingStore):
    """Answers whole `get`s of what was created through it below `folder` and ends in `.parquet`."""

    def __init__(self, inner: ObjectStore, folder: str, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(inner)
        self._folder = f"{folder.rstrip('/')}/"
        self._left_bytes = max_bytes
        self._kept: dict[str, Blob] = {}

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        written = super().put(uri, body, condition)
        is_segment = uri.startswith(self._folder) and uri.endswith(".parquet") and isinstance(condition, Create)
        if is_segment and isinstance(body, bytes):
            with self._lock:
                if len(body) <= self._left_bytes and uri not in self._kept:
                    self._left_bytes -= len(body)
                    self._kept[uri] = Blob(ObjectInfo(uri, len(body), written.e_tag, _UNKNOWN), body)
        return written

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        with self._lock:
            kept = self._kept.get(uri) if byte_range is None else None
        return (
            super().get(uri, byte_range=byte_range, max_bytes=max_bytes)
            if kept is None
            else within(kept, uri, max_bytes)
        )

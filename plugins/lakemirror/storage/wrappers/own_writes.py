"""Objects that this process has created itself, below some folders, are not read again: their bytes are still here.

For segments of a plan and of its ledger, whose names follow from their content: what another process may have put there
is the same. Bounded in bytes; what does not fit is read from the store. What has to be read back before it is published
lies elsewhere, or `apart_from` them.
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
    """Answers whole `get`s of what was created through it below one of `folders` and ends in `.parquet`."""

    def __init__(
        self, inner: ObjectStore, *folders: str, apart_from: tuple[str, ...] = (), max_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(inner)
        self._folders, self._apart = _prefixes(folders), _prefixes(apart_from)
        self._left_bytes = max_bytes
        self._kept: dict[str, Blob] = {}

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        written = super().put(uri, body, condition)
        if self._is_segment(uri) and isinstance(condition, Create) and isinstance(body, bytes):
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

    def _is_segment(self, uri: str) -> bool:
        return uri.startswith(self._folders) and uri.endswith(".parquet") and not uri.startswith(self._apart)


def _prefixes(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder.rstrip('/')}/" for folder in folders)

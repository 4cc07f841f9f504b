"""Objects that this process has created itself are not read again: their bytes are still here.

- Segments of a plan and of its ledger (`.parquet` below `folders`) have names that follow from their content: what
  another process may have put there is the same, and nothing is asked.
- Of all else the store is asked by HEAD whether the object is there and still the one of that write. It is answered
  from memory only if the write was proven to have arrived as it was sent; so reading back before a version is published
  costs no bytes, and what is gone or was altered is seen as by reading.

Bounded in bytes; what does not fit is read from the store, and so is what lies `apart_from` the folders, if not proven.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from lakemirror.storage.port import (
    CHUNK_BYTES,
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


@dataclass(frozen=True, slots=True)
class _Kept:
    blob: Blob
    is_segment: bool


class OwnWritesStore(ForwardingStore):
    """Answers reads of whole objects that were created through it; the module says when the store is asked."""

    def __init__(
        self, inner: ObjectStore, *folders: str, apart_from: tuple[str, ...] = (), max_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(inner)
        self._folders, self._apart = _prefixes(folders), _prefixes(apart_from)
        self._left_bytes = max_bytes
        self._kept: dict[str, _Kept] = {}

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        written = super().put(uri, body, condition)
        if isinstance(condition, Create) and isinstance(body, bytes):
            is_segment = self._is_segment(uri)
            if is_segment or (written.is_proven and written.e_tag is not None):
                self._keep(uri, body, written.e_tag, is_segment)
        return written

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        kept = self._own(uri) if byte_range is None else None
        if kept is None:
            return super().get(uri, byte_range=byte_range, max_bytes=max_bytes)
        return within(kept, uri, max_bytes)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        kept = self._own(uri)
        if kept is None:
            return super().stream(uri, chunk_bytes=chunk_bytes)
        return (kept.data[start : start + chunk_bytes] for start in range(0, len(kept.data), chunk_bytes))

    def _keep(self, uri: str, body: bytes, e_tag: str | None, is_segment: bool) -> None:
        with self._lock:
            if len(body) <= self._left_bytes and uri not in self._kept:
                self._left_bytes -= len(body)
                info = ObjectInfo(uri, len(body), e_tag, _UNKNOWN)
                self._kept[uri] = _Kept(Blob(info, body), is_segment)

    def _own(self, uri: str) -> Blob | None:
        """What was written, if it is still that; ObjectNotFound if it is gone."""
        with self._lock:
            kept = self._kept.get(uri)
        if kept is None or kept.is_segment:
            return None if kept is None else kept.blob
        info, ours = super().head(uri), kept.blob.info
        is_same = (info.e_tag, info.size_bytes) == (ours.e_tag, ours.size_bytes)
        return Blob(info, kept.blob.data) if is_same else None

    def _is_segment(self, uri: str) -> bool:
        return uri.startswith(self._folders) and uri.endswith(".parquet") and not uri.startswith(self._apart)


def _prefixes(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder.rstrip('/')}/" for folder in folders)

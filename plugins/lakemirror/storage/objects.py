"""The object store of the library: one port, each URI served by the adapter of its scheme.

Files by `FileObjects`; memory, S3 and GCS by `BucketObjects` on obstore. Cheap to make: nothing is imported or
connected before the first call. Pickles without its connections; a process that unpickles it, or was forked before the
first use, makes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lakemirror.errors import PermanentError
from lakemirror.storage.abilities import Abilities
from lakemirror.storage.buckets import BucketObjects
from lakemirror.storage.clients import Clients, MemoryBuckets
from lakemirror.storage.files import FileObjects
from lakemirror.storage.keys import Kind, check_key, check_prefix
from lakemirror.storage.port import (
    CHUNK_BYTES,
    CREATE,
    MAX_GET_BYTES,
    Blob,
    Capabilities,
    Condition,
    ObjectInfo,
    ObjectStore,
    Written,
)

__all__ = ["MemoryBuckets", "ObstoreStore", "capabilities"]

_WHOLE: Final = Capabilities(atomic_create_streams=True, if_match_streams=True, e_tags_in_lists=True)
_CAPABILITIES: Final[Mapping[Kind, Capabilities]] = {
    "file": _WHOLE,
    "memory": _WHOLE,
    "s3": Capabilities(atomic_create_streams=True, if_match_streams=False, e_tags_in_lists=True),
    "gs": Capabilities(atomic_create_streams=True, if_match_streams=False, e_tags_in_lists=False),
}


def capabilities(uri: str) -> Capabilities:
    """What the adapter for this URI can do; of S3 look-alikes it says what Amazon's S3 would."""
    return _CAPABILITIES[check_prefix(uri, "capabilities").kind]


class ObstoreStore:
    """The ObjectStore port over every supported scheme; `properties` are named as pyiceberg's, others are ignored.

    `memory` holds the `memory://` buckets; stores that are given the same one share them, others have their own.
    `abilities`, asked by the first write, are those that were probed (`ProbedAbilities`); without them Amazon's S3 is
    assumed behind `s3://`. `retries` are those of obstore; without them whoever wraps the store tries again.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        memory: MemoryBuckets | None = None,
        abilities: Callable[[], Abilities] | None = None,
        retries: bool = True,
    ) -> None:
        self._clients = Clients(properties, memory)
        self._files = FileObjects(properties)
        self._buckets = BucketObjects(self._clients, abilities, retries=retries)

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        return self._serving(uri).get(uri, byte_range=byte_range, max_bytes=max_bytes)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        return self._serving(uri).stream(uri, chunk_bytes=chunk_bytes)

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        return self._serving(uri).put(uri, body, condition)

    def head(self, uri: str) -> ObjectInfo:
        return self._serving(uri).head(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        return self._serving(prefix_uri).list(prefix_uri)

    def delete(self, uris: Sequence[str]) -> None:
        addresses = [check_key(uri, "delete") for uri in uris]
        self._files.delete([address.uri for address in addresses if address.kind == "file"])
        self._buckets.delete([address.uri for address in addresses if address.kind != "file"])

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        source, target = check_key(source_uri, "copy"), check_key(target_uri, "copy")
        if (source.kind, source.bucket) != (target.kind, target.bucket):
            raise PermanentError("copy", target.uri, f"not in the store of {source.uri}", "stream it across")
        return self._serving(source_uri).copy(source_uri, target_uri, condition)

    def _serving(self, uri: str) -> ObjectStore:
        """The adapter of the URI's scheme, which checks the URI."""
        return self._files if uri.startswith(("file:", "/")) else self._buckets

    def __repr__(self) -> str:
        return f"ObstoreStore({self._clients!r})"

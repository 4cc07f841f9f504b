"""One wire for every scheme: each URI is served by the adapter of its store, made on first use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from lakemirror.errors import PermanentError
from lakemirror.storage.abilities import Abilities
from lakemirror.storage.clients import MemoryBuckets, storage_properties
from lakemirror.storage.keys import Kind, check_key, check_prefix
from lakemirror.storage.port import ObjectInfo
from lakemirror.storage.wire import Part, Stored, Upload, WholeRead, Wire, WireCapabilities


class SchemeWire:
    """The Wire port over every supported scheme."""

    def __init__(
        self,
        properties: Mapping[str, str],
        memory: MemoryBuckets | None = None,
        abilities: Abilities | None = None,
    ) -> None:
        self._properties = storage_properties(properties)
        self._memory = memory
        self._abilities = abilities
        self._wires: dict[Kind, Wire] = {}

    def capabilities(self, uri: str) -> WireCapabilities:
        return self._at(check_prefix(uri, "capabilities").kind).capabilities(uri)

    async def head(self, uri: str) -> ObjectInfo:
        return await self._of(uri, "head").head(uri)

    async def stored(self, uri: str) -> Stored:
        return await self._of(uri, "stored").stored(uri)

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        return await self._of(uri, "read").read(uri, start, length, e_tag=e_tag, size_bytes=size_bytes)

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        return await self._of(uri, "read").read_whole(uri, size_bytes)

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        return await self._of(uri, "create").create(uri, data, crc32c, md5=md5)

    async def begin(self, uri: str) -> str:
        return await self._of(uri, "begin").begin(uri)

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        return await self._of(uri, "put_part").put_part(uri, upload, number, data, crc32c)

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        return await self._of(uri, "finish").finish(uri, upload, parts, crc32c)

    async def abort(self, uri: str, upload: str) -> None:
        await self._of(uri, "abort").abort(uri, upload)

    def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        return self._at(check_prefix(prefix_uri, "uploads").kind).uploads(prefix_uri)

    def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        return self._at(check_prefix(prefix_uri, "unnamed").kind).unnamed(prefix_uri)

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        source, target = check_key(source_uri, "copy_within"), check_key(target_uri, "copy_within")
        if source.kind != target.kind:
            raise PermanentError("copy_within", target.uri, f"not in the store of {source.uri}", "stream it across")
        return await self._at(source.kind).copy_within(source_uri, target_uri, e_tag=e_tag)

    async def close(self) -> None:
        while self._wires:
            await self._wires.popitem()[1].close()

    def _of(self, uri: str, op: str) -> Wire:
        return self._at(check_key(uri, op).kind)

    def _at(self, kind: Kind) -> Wire:
        wire = self._wires.get(kind)
        if wire is None:
            wire = self._wires[kind] = self._made(kind)
        return wire

    def _made(self, kind: Kind) -> Wire:
        from lakemirror.storage.wires.gcs import GcsWire
        from lakemirror.storage.wires.local import file_wire, memory_wire
        from lakemirror.storage.wires.s3 import S3Wire

        if kind == "file":
            return file_wire(self._properties)
        if kind == "memory":
            return memory_wire(self._memory or MemoryBuckets())
        if kind == "s3":
            return S3Wire(self._properties, self._abilities)
        return GcsWire(self._properties, self._abilities)

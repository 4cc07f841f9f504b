"""Objects in buckets (S3, GCS, memory) through obstore.

- Bodies up to CHUNK_BYTES are one conditional request: Create and IfMatch are atomic on the server.
- Larger streams are uploads in parts. Create goes over the wire, whose `finish` is conditional; obstore has no
  condition there, so IfMatch is refused (`Capabilities` says so). A body that breaks off aborts the upload. In memory
  every body is one piece, atomic at any size.
- Bodies carry a sum that the server checks: SHA-256 on S3, CRC32C on GCS, where they go over the wire because obstore
  cannot send one. Damaged ones are a TransientError, and nothing was written.
- On a server whose probed abilities lack a condition, the write looks first: the weaker mode, see docs/stores.md.
- Each request is marked for whoever counts (metering.py). obstore repeats some by itself, which nobody sees: `retries`
  is off where another one tries again. Streams keep it, because obstore reads on where an answer was cut.
- On GCS the e_tag is the object's generation, because that is what GCS compares; listings do not have it.
- Errors are told apart by exception type alone; what is not known to be permanent counts as transient.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, GOOGLE, LOCAL, Abilities
from lakemirror.storage.bucket_status import as_put, e_tag_of, explained, head_of, info_of
from lakemirror.storage.checksum import Tally
from lakemirror.storage.clients import Clients
from lakemirror.storage.keys import Address, check_key, check_prefix
from lakemirror.storage.metering import mark
from lakemirror.storage.port import (
    CHUNK_BYTES,
    CREATE,
    MAX_GET_BYTES,
    Blob,
    Condition,
    ConditionFailed,
    Create,
    IfMatch,
    ObjectInfo,
    ObjectNotFound,
    Overwrite,
    Written,
    check_copy_condition,
    check_range,
    cut_short,
)
from lakemirror.storage.streaming import create_streamed, temporary_beside
from lakemirror.storage.summed_puts import SummedPuts
from lakemirror.storage.tagged_reads import TaggedReads

if TYPE_CHECKING:
    from obstore import GetOptions, PutMode

    from lakemirror.storage.clients import Client

_PAGE_OBJECTS: Final = 1000
_DELETED_AT_ONCE: Final = 1000  # by one request, on S3
_UPLOADS_AT_ONCE: Final = 4  # parts of CHUNK_BYTES in flight per stream


class BucketObjects:
    """The ObjectStore port over obstore clients; the module says what it guarantees."""

    def __init__(
        self, clients: Clients, abilities: Callable[[], Abilities] | None = None, *, retries: bool = True
    ) -> None:
        self._clients = clients
        self._retries = retries
        self._abilities = abilities
        self._tagged = TaggedReads()
        self._summed = SummedPuts(clients.properties)

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        address = check_key(uri, "get")
        if byte_range is None and self._clients.is_unguarded(address):
            return self._tagged.blob(lambda: self._get(address, None, max_bytes))
        return self._get(address, byte_range, max_bytes)

    def _get(self, address: Address, byte_range: tuple[int, int] | None, max_bytes: int) -> Blob:
        import obstore

        uri = address.uri
        options: GetOptions = {}
        if byte_range is not None:
            start, length = byte_range
            if start < 0 or length <= 0:  # stores refuse to send nothing
                info = self.head(uri)
                check_range(uri, byte_range, info.size_bytes)
                return Blob(info, b"")
            options["range"] = (start, start + length)
        try:
            with explained("get", uri):
                answer = obstore.get(self._client(address, "get"), address.key, options=options)
                info = info_of(address, answer.meta)
                _, length = check_range(uri, byte_range, info.size_bytes, max_bytes)  # before the body is read
                data = answer.bytes().to_bytes()
        except TransientError:
            if byte_range is not None:  # a range past the end has no error type of its own
                check_range(uri, byte_range, self.head(uri).size_bytes)
            raise
        if len(data) != length:
            raise cut_short("get", uri, length, len(data))
        return Blob(info, data)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        address = check_key(uri, "stream")
        info, pieces = self._stream(address, chunk_bytes)
        if not self._clients.is_unguarded(address):
            return pieces
        return self._tagged.pieces(uri, info.e_tag, pieces, lambda: self._stream(address, chunk_bytes)[1])

    def _stream(self, address: Address, chunk_bytes: int) -> tuple[ObjectInfo, Iterator[bytes]]:
        import obstore

        _mark(address, "get")
        with explained("stream", address.uri):  # with obstore's retries: it reads on where an answer was cut
            answer = obstore.get(self._clients.open(address), address.key)
        info = info_of(address, answer.meta)

        def read() -> Iterator[bytes]:
            done = 0
            with explained("stream", address.uri):
                for piece in answer.stream(min_chunk_size=chunk_bytes):
                    done += len(piece)
                    for start in range(0, len(piece), chunk_bytes):
                        yield piece[start : start + chunk_bytes]
            if done != info.size_bytes:
                raise cut_short("stream", address.uri, info.size_bytes, done)

        return info, read()

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        address = check_key(uri, "put")
        self._can(address).check("put", address)
        tally = Tally()
        with explained("put", uri, tally):
            if isinstance(body, bytes):
                e_tag = self._put_whole(address, tally.add(body), condition)
                is_proven = _is_proven(address, body, e_tag)
            else:
                is_proven = False
                pieces = tally.over(body)
                first = _take(pieces, CHUNK_BYTES + 1)
                if sum(map(len, first)) <= CHUNK_BYTES:
                    e_tag = self._put_whole(address, b"".join(first), condition)
                elif address.kind == "memory":
                    e_tag = self._put_whole(address, b"".join(chain(first, pieces)), condition)
                else:
                    e_tag = self._put_parts(address, chain(first, pieces), condition)
        return Written(uri, tally.size_bytes, tally.crc32c, e_tag, is_proven)

    def head(self, uri: str) -> ObjectInfo:
        address = check_key(uri, "head")
        with explained("head", uri):
            return info_of(address, head_of(self._client(address, "head"), address.key))

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        address = check_prefix(prefix_uri)
        _mark(address, "list")
        return self._list(address)

    def delete(self, uris: Sequence[str]) -> None:
        import obstore

        buckets: dict[str, list[Address]] = {}
        for uri in uris:
            address = check_key(uri, "delete")
            buckets.setdefault(address.root, []).append(address)
        for root, addresses in buckets.items():
            client = self._clients.open(addresses[0], retries=self._retries)
            each = _DELETED_AT_ONCE if addresses[0].kind == "s3" else 1
            _mark(addresses[0], "delete", -(-len(addresses) // each))
            with explained("delete", addresses[0].uri if len(addresses) == 1 else root):
                try:
                    obstore.delete(client, [address.key for address in addresses])
                except FileNotFoundError:  # GCS minds, and stops there: the others one by one
                    for address in addresses:
                        _mark(address, "delete")
                        _delete_if_there(client, address.key)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        import obstore

        source, target = check_key(source_uri, "copy"), check_key(target_uri, "copy")
        check_copy_condition(target_uri, condition)
        can = self._can(target)
        can.check("copy", target)
        if isinstance(condition, Create) and not can.conditional_finish:
            self._look_before_copy(source, target)
        overwrite = isinstance(condition, Overwrite)
        _mark(source, "copy")
        if source.kind == "s3" and not overwrite:  # an upload in parts, of which one is copied
            _mark(source, "put", 2)
        client = self._clients.open(source, retries=overwrite and self._retries)
        with explained("copy", source_uri, target_uri=target_uri):
            obstore.copy(client, source.key, target.key, overwrite=overwrite)
        return self.head(target_uri)

    def _put_whole(self, address: Address, data: bytes, condition: Condition) -> str | None:
        import obstore

        self._look_first(address, condition)
        if address.kind == "gs":
            return self._summed.put(address, data, condition)
        mode: PutMode = "overwrite"
        if isinstance(condition, Create):
            mode = "create"
        elif isinstance(condition, IfMatch):
            mode = {"e_tag": condition.e_tag}
        client = self._clients.open(address, retries=mode == "overwrite" and self._retries, sums=True)
        _mark(address, "put")
        return e_tag_of(address, obstore.put(client, address.key, data, mode=mode, use_multipart=False))

    def _put_parts(self, address: Address, pieces: Iterator[bytes], condition: Condition) -> str | None:
        import obstore

        if isinstance(condition, IfMatch):
            why = f"IfMatch cannot stream more than {CHUNK_BYTES} bytes to this store"
            raise PermanentError("put", address.uri, why, "keep conditional objects small")
        if isinstance(condition, Create):
            if self._is_there(address):  # before the whole body is sent for nothing
                raise ConditionFailed("put", address.uri, "the object exists already", "read it, and decide")
            return self._create_parts(address, pieces)
        _mark(address, "put")
        result = obstore.put(
            self._clients.open(address, sums=True),
            address.key,
            pieces,
            use_multipart=True,
            chunk_size=CHUNK_BYTES,
            max_concurrency=_UPLOADS_AT_ONCE,
        )
        return e_tag_of(address, result)

    def _create_parts(self, address: Address, pieces: Iterator[bytes]) -> str | None:
        can, beside = self._can(address), None
        if can.conditional_copy and not can.atomic_finish:
            beside = check_key(temporary_beside(address.uri), "put")
        try:
            with as_put(address.uri):
                uri = beside.uri if beside else None
                return create_streamed(self._clients.properties, can, address.uri, pieces, uri).e_tag
        finally:
            if beside:
                _delete_if_there(self._client(beside, "delete"), beside.key)

    def _look_first(self, address: Address, condition: Condition) -> None:
        """On a server that ignores the condition; between the look and the write another writer may come."""
        can = self._can(address)
        if isinstance(condition, Create) and not can.conditional_create:
            if self._is_there(address):
                raise ConditionFailed("put", address.uri, "the object exists already", "read it, and decide")
        elif isinstance(condition, IfMatch) and not can.conditional_replace:
            try:
                there = self.head(address.uri).e_tag
            except ObjectNotFound:
                there = None
            if there != condition.e_tag:
                why = f"the object has changed (want {condition.e_tag}, got {there})"
                raise ConditionFailed("put", address.uri, why, "read it again, and decide")

    def _can(self, address: Address) -> Abilities:
        """Asked for by writes only: finding it out may be one."""
        if address.kind == "memory":
            return LOCAL
        if self._abilities is not None:
            return self._abilities()
        return AMAZON if address.kind == "s3" else GOOGLE

    def _client(self, address: Address, verb: str) -> Client:
        """For one request, which is marked."""
        _mark(address, verb)
        return self._clients.open(address, retries=self._retries)

    def _is_there(self, address: Address) -> bool:
        try:
            head_of(self._client(address, "head"), address.key)
        except FileNotFoundError:
            return False
        return True

    def _look_before_copy(self, source: Address, target: Address) -> None:
        self.head(source.uri)  # a missing source is the first thing to say
        if self._is_there(target):
            raise ConditionFailed("copy", target.uri, "the object exists already", "read it, and decide")

    def _list(self, address: Address) -> Iterator[ObjectInfo]:
        import obstore

        below = f"{address.key}/" if address.key else ""
        with explained("list", address.uri):
            client = self._clients.open(address, retries=self._retries)
            pages = obstore.list(client, address.key or None, chunk_size=_PAGE_OBJECTS)
            for number, page in enumerate(pages):
                if number:
                    _mark(address, "list")
                for meta in page:
                    if meta["path"].startswith(below):
                        yield info_of(address, meta)


def _is_proven(address: Address, data: bytes, e_tag: str | None) -> bool:
    """GCS compares the CRC32C. An ETag of S3 is the MD5 of what arrived; if it is another one, nothing is known."""
    if address.kind != "s3":
        return True
    return e_tag is not None and e_tag.strip('"') == hashlib.md5(data, usedforsecurity=False).hexdigest()


def _take(pieces: Iterator[bytes], at_least_bytes: int) -> list[bytes]:
    """Pieces from the front that make up so many bytes, or all that there are."""
    taken: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        taken.append(piece)
        size_bytes += len(piece)
        if size_bytes >= at_least_bytes:
            break
    return taken


def _mark(address: Address, verb: str, requests: int = 1) -> None:
    """Tell whoever counts; what is in memory makes none."""
    if address.kind != "memory":
        for _ in range(requests):
            mark(verb)


def _delete_if_there(client: Client, key: str) -> None:
    import obstore

    with suppress(FileNotFoundError):
        obstore.delete(client, key)

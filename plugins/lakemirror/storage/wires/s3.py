"""The wire to S3 and its look-alikes: signed requests with CRC32C and conditions that obstore cannot send.

- Objects and parts go out with `x-amz-checksum-crc32c`, which the server checks; a server that does not, of
  either, gets Content-MD5. Whatever sum the answer names is compared.
- Whole objects are read by one request without a range, and compared with the sum that its answer names (sums.py).
- `create` and `finish` carry `If-None-Match: *`. Servers that ignore it on `finish` are looked at first.
- `copy_within` is CopyObject with that condition where the server keeps it, otherwise an upload whose parts the server
  copies; objects over 5 GiB always go that way.
- 409 is a conflict between two writers of one key: a TransientError, and the next attempt finds the winner.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from xml.sax.saxutils import escape

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, Abilities
from lakemirror.storage.checksum import as_base64, from_base64
from lakemirror.storage.keys import Address, check_key, check_prefix
from lakemirror.storage.md5_tags import Md5Tag
from lakemirror.storage.port import ConditionFailed, ObjectInfo, ObjectNotFound, check_range, cut_short
from lakemirror.storage.wire import (
    Part,
    Stored,
    Upload,
    WholeRead,
    WireCapabilities,
    check_arrived,
    check_parts,
    check_size,
    check_slice,
    no_uploads,
)
from lakemirror.storage.wires.http import (
    Answer,
    Http,
    Request,
    UnexplainedError,
    body_of,
    check_answer,
    encoded,
    encoded_query,
    is_whole,
)
from lakemirror.storage.wires.s3_place import S3Places
from lakemirror.storage.wires.sigv4 import UNSIGNED, Credentials, Signer
from lakemirror.storage.wires.sums import ASK, CRC32, CRC32C, WholeReads, full_sum, tag_in
from lakemirror.storage.wires.xml import parsed, text_in

_GIB: Final = 1 << 30
_MAX_PUT_BYTES: Final = 5 * _GIB
_COPY_PART_BYTES: Final = _GIB
_NOTHING: Final = hashlib.sha256(b"").hexdigest()
_NEW: Final = {"if-none-match": "*"}


class S3Wire:
    """The Wire port over S3; the module says what it guarantees."""

    def __init__(self, properties: Mapping[str, str], abilities: Abilities | None = None) -> None:
        self._places = S3Places(properties)
        self._can = abilities or AMAZON
        self._http = Http()
        self._credentials = Credentials(self._places.credential)
        self._signer = Signer(self._places.region)
        self._whole_reads = WholeReads()

    def capabilities(self, uri: str) -> WireCapabilities:
        return WireCapabilities(
            min_part_bytes=5 << 20,
            max_parts=10_000,
            max_create_bytes=_MAX_PUT_BYTES,
            copies_within=self._can_copy and self._can.copies_across_buckets,
            checks_md5=self._can.checks_md5,
            tags_parts_md5=self._can.tags_parts_md5,
            aborts_safely=self._places.is_amazon,
            spoiled=self._can.spoiled,
        )

    async def head(self, uri: str) -> ObjectInfo:
        return _info(uri, (await self.ask("head", check_key(uri, "head"), "HEAD")).headers)

    async def stored(self, uri: str) -> Stored:
        address = check_key(uri, "stored")
        headers = (await self.ask("stored", address, "HEAD", ASK)).headers
        size_bytes, e_tag = _info(uri, headers).size_bytes, headers.get("etag")
        crc32c, crc32 = full_sum(headers, CRC32C), full_sum(headers, CRC32)
        if crc32c is not None or crc32 is not None or self._places.has_tls or not self._whole_reads.trusts_tags:
            return Stored(size_bytes, crc32c, e_tag, crc32)
        md5 = await tag_in(headers, partial(self._part_bytes, address, size_bytes))
        return Stored(size_bytes, None, e_tag, md5=md5)

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        check_slice(uri, start, length)
        if length == 0:
            await self._check_empty(uri, start, e_tag)
            return b""
        if start == 0 and length == size_bytes:
            read = partial(self._read_whole, uri, length, e_tag)
            part_bytes = partial(self._part_bytes, check_key(uri, "read"), length)
            return await self._whole_reads(uri, read, part_bytes, has_tls=self._places.has_tls)
        request = await self._reading("read", uri, start, length, e_tag)
        answer = await self._http.read(request, length)
        check_answer(request, answer, start, length, size_bytes)
        return body_of(request, answer, length)

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        if size_bytes == 0:
            return WholeRead(await self.read(uri, 0, 0, size_bytes=0))
        read = partial(self._read_whole, uri, size_bytes, None)
        part_bytes = partial(self._part_bytes, check_key(uri, "read"), size_bytes)
        return await self._whole_reads.leaving(uri, read, part_bytes, has_tls=self._places.has_tls)

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        address = self._target(uri, "create")
        if not self._can.conditional_create:
            await self._look_first("create", address)
        headers = _sums(data, crc32c, is_checked=self._can.checks_crc32c) | _NEW
        if md5 is not None:
            headers["content-md5"] = base64.b64encode(md5).decode()
        answer = await self.ask("create", address, "PUT", headers, body=data)
        got = from_base64(answer.headers.get(CRC32C, ""))
        check_arrived("create", uri, crc32c, got)
        return Stored(len(data), got, answer.headers.get("etag"))

    async def begin(self, uri: str) -> str:
        kind = {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
        headers = kind if self._can.checks_part_crc32c else {}
        answer = await self.ask("begin", self._target(uri, "begin"), "POST", headers, {"uploads": ""})
        return text_in(parsed("begin", uri, answer.body), "UploadId")

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        address = check_key(uri, "put_part")
        query = {"partNumber": str(number), "uploadId": upload}
        sums = _sums(data, crc32c, is_checked=self._can.checks_part_crc32c)
        answer = await self.ask("put_part", address, "PUT", sums, query, data)
        check_arrived("put_part", uri, crc32c, from_base64(answer.headers.get(CRC32C, "")))
        return Part(number, len(data), crc32c, answer.headers.get("etag", ""))

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        size_bytes = check_parts(uri, parts, crc32c)
        sums = {CRC32C: as_base64(crc32c), "x-amz-checksum-type": "FULL_OBJECT"} if self._can.checks_part_crc32c else {}
        got, e_tag = await self._complete(uri, upload, _listed(parts, sums=bool(sums)), sums, size_bytes)
        check_arrived("finish", uri, crc32c, got)
        return Stored(size_bytes, got, e_tag)

    async def abort(self, uri: str, upload: str) -> None:
        try:
            await self.ask("abort", check_key(uri, "abort"), "DELETE", query={"uploadId": upload})
        except ObjectNotFound:
            return  # finished, or aborted before

    async def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        address = check_prefix(prefix_uri, "uploads")
        bucket = Address(address.scheme, address.bucket, "")
        query = {"uploads": "", "prefix": f"{address.key}/" if address.key else "", "max-uploads": "1000"}
        while True:
            page = parsed("uploads", prefix_uri, (await self.ask("uploads", bucket, "GET", query=query)).body)
            for found in page.findall("{*}Upload"):
                key = text_in(found, "Key")
                if key.startswith(query["prefix"]):  # not every server minds the prefix
                    begun_at = datetime.fromisoformat(text_in(found, "Initiated"))
                    yield Upload(f"{address.root}{key}", text_in(found, "UploadId"), begun_at)
            if text_in(page, "IsTruncated", "false") != "true":
                return
            markers = (text_in(page, "NextKeyMarker"), text_in(page, "NextUploadIdMarker", ""))
            if markers == (query.get("key-marker"), query.get("upload-id-marker")):
                raise PermanentError(
                    "uploads", prefix_uri, "the store lists one page again and again", "ask its makers"
                )
            query |= {"key-marker": markers[0], "upload-id-marker": markers[1]}

    def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        return no_uploads()

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        source, target = check_key(source_uri, "copy_within"), self._target(target_uri, "copy_within")
        if not self._can_copy or (source.root != target.root and not self._can.copies_across_buckets):
            raise PermanentError("copy_within", target_uri, "this store cannot copy create-only", "stream it across")
        there = await self.head(source_uri)
        if e_tag is not None and there.e_tag != e_tag:
            raise _changed(source_uri, e_tag, there.e_tag)
        named = {"x-amz-copy-source": f"/{source.bucket}/{encoded(source.key)}"}
        if there.e_tag is not None:
            named["x-amz-copy-source-if-match"] = there.e_tag
        is_one_request = self._can.conditional_copy and there.size_bytes <= _MAX_PUT_BYTES
        try:
            if is_one_request:
                sums = {"x-amz-checksum-algorithm": "CRC32C"} if self._can.keeps_crc32c else {}
                await self.ask("copy_within", target, "PUT", named | sums | _NEW)
            else:
                await self._copy_parts(target, named, there.size_bytes)
        except ConditionFailed:
            if (now := await self.head(source_uri)).e_tag != there.e_tag:
                raise _changed(source_uri, there.e_tag or "", now.e_tag) from None
            raise
        except ObjectNotFound as err:
            await self.head(source_uri)  # if it is the source that is gone, this says so
            raise _target_gone(target_uri, err, is_begun=not is_one_request) from err
        try:
            stored = await self.stored(target_uri)
        except ObjectNotFound as err:
            why = "it was copied a moment ago, and is not there"
            raise TransientError("copy_within", target_uri, why, "run again; find out who deletes here") from err
        if stored.size_bytes != there.size_bytes:
            why = f"the copy is not whole (want {there.size_bytes} bytes, got {stored.size_bytes})"
            raise PermanentError("copy_within", target_uri, why, "find out who wrote it")
        return stored

    async def close(self) -> None:
        await self._http.close()

    @property
    def _can_copy(self) -> bool:
        return self._can.conditional_copy or self._can.conditional_finish

    def _target(self, uri: str, op: str) -> Address:
        address = check_key(uri, op)
        self._can.check(op, address)
        return address

    async def _copy_parts(self, target: Address, named: Mapping[str, str], size_bytes: int) -> None:
        try:
            answer = await self.ask("begin", target, "POST", {}, {"uploads": ""})
        except ObjectNotFound as err:
            raise _target_gone(target.uri, err, is_begun=False) from err
        upload = text_in(parsed("copy_within", target.uri, answer.body), "UploadId")
        try:
            tags: list[tuple[int, str]] = []
            starts = range(0, size_bytes, _COPY_PART_BYTES)
            for number, start in enumerate(starts, 1):
                last = min(start + _COPY_PART_BYTES, size_bytes) - 1
                headers = {**named, "x-amz-copy-source-range": f"bytes={start}-{last}"}
                query = {"partNumber": str(number), "uploadId": upload}
                answer = await self.ask("copy_within", target, "PUT", headers, query)
                tags.append((number, text_in(parsed("copy_within", target.uri, answer.body), "ETag")))
            if not tags:  # an upload must have a part, and no range of an empty object can be copied
                part = await self.put_part(target.uri, upload, 1, b"", 0)
                tags.append((1, part.tag))
        except BaseException:
            await self.abort(target.uri, upload)
            raise
        listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{escape(t)}</ETag></Part>" for n, t in tags)
        try:
            await self._complete(target.uri, upload, listed, {}, size_bytes)
        except PermanentError:  # refused; of what has no answer an object may have been made, whose bytes these are
            await self.abort(target.uri, upload)
            raise

    async def _complete(
        self, uri: str, upload: str, listed: str, sums: Mapping[str, str], size_bytes: int
    ) -> tuple[int | None, str | None]:
        """CRC32C and e_tag of the object made of the listed parts."""
        address = check_key(uri, "finish")
        if not self._can.conditional_finish:
            await self._look_first("finish", address)
        body = f'<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{listed}</CompleteMultipartUpload>'
        headers = {**sums, **_NEW, "x-amz-mp-object-size": str(size_bytes), "content-type": "application/xml"}
        answer = await self.ask("finish", address, "POST", headers, {"uploadId": upload}, body.encode())
        said = parsed("finish", uri, answer.body)
        return from_base64(text_in(said, "ChecksumCRC32C", "")), text_in(said, "ETag", "") or None

    async def _look_first(self, op: str, address: Address) -> None:
        """For servers that ignore conditions, in the weaker mode that the operator chose by name."""
        try:
            await self.ask(op, address, "HEAD")
        except ObjectNotFound:
            return
        raise ConditionFailed(op, address.uri, "the object exists already", "read it, and decide")

    async def _check_empty(self, uri: str, start: int, e_tag: str | None) -> None:
        """Servers cannot send nothing: look whether the place is within the object."""
        there = await self.head(uri)
        if e_tag is not None and there.e_tag != e_tag:
            raise _changed(uri, e_tag, there.e_tag)
        check_range(uri, (start, 0), there.size_bytes)

    async def _read_whole(self, uri: str, size_bytes: int, e_tag: str | None) -> tuple[bytes, Mapping[str, str]]:
        """Without a range: the answer to a range need not name the sum of the whole."""
        headers = ASK if e_tag is None else {**ASK, "if-match": e_tag}
        request = await self._request("read", check_key(uri, "read"), "GET", headers, {}, b"")
        answer = await self._http.read(request, size_bytes)
        if is_whole(request, answer, size_bytes):
            return body_of(request, answer, size_bytes), answer.headers
        check_size(uri, size_bytes, (await self.head(uri)).size_bytes)
        raise cut_short("read", uri, size_bytes, int(answer.headers["content-length"]))

    async def _part_bytes(self, address: Address, size_bytes: int, tag: Md5Tag) -> int | None:
        """The size of the parts that an object was uploaded in; None if the store does not say, or they differ."""
        try:
            first = (await self.ask("head", address, "HEAD", query={"partNumber": "1"})).headers
        except PermanentError:
            return None  # it knows no parts; of one that is gone the next read tells
        part_bytes = int(first.get("content-length", "0"))
        is_same = Md5Tag.of(first.get("etag")) == tag and first.get("x-amz-mp-parts-count") == str(tag.parts)
        return part_bytes if is_same and part_bytes and -(-size_bytes // part_bytes) == tag.parts else None

    async def _reading(self, op: str, uri: str, start: int, length: int, e_tag: str | None) -> Request:
        headers = {"range": f"bytes={start}-{start + length - 1}"}
        if e_tag is not None:
            headers["if-match"] = e_tag
        return await self._request(op, check_key(uri, op), "GET", headers, {}, b"")

    async def ask(
        self,
        op: str,
        address: Address,
        method: str,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One request about an object or bucket, signed; for verbs that the port has not, as those of the probe."""
        request = await self._request(op, address, method, headers or {}, query or {}, body)
        try:
            return await self._http.ask(request)
        except UnexplainedError:
            await self._check_expired(op, address)
            raise

    async def _check_expired(self, op: str, address: Address) -> None:
        """TransientError if a read of one byte is refused for a reason that passes."""
        request = await self._request(op, address, "GET", {"range": "bytes=0-0"}, {}, b"")
        with suppress(PermanentError):
            await self._http.read(request, 1)

    async def _request(
        self, op: str, address: Address, method: str, headers: Mapping[str, str], query: Mapping[str, str], body: bytes
    ) -> Request:
        place, path = self._places.of(address)
        encoded_pairs = encoded_query(query)
        if not self._places.is_anonymous:
            payload = _NOTHING
            if body:
                is_summed = CRC32C in headers or place.origin.startswith("https:")
                payload = UNSIGNED if is_summed else hashlib.sha256(body).hexdigest()
            credential = await self._credentials.now()
            headers = self._signer.sign(credential, method, place.host, path, encoded_pairs, headers, payload)
        return Request(op, address.uri, method, place, path, encoded_pairs, headers, body)


def _sums(data: bytes, crc32c: int, *, is_checked: bool) -> dict[str, str]:
    if is_checked:
        return {CRC32C: as_base64(crc32c)}
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return {"content-md5": base64.b64encode(digest).decode()}


def _info(uri: str, headers: Mapping[str, str]) -> ObjectInfo:
    try:
        size_bytes, modified_at = int(headers["content-length"]), parsedate_to_datetime(headers["last-modified"])
    except (KeyError, ValueError) as err:
        raise PermanentError("head", uri, "the store does not say size and time", "check the endpoint") from err
    return ObjectInfo(uri, size_bytes, headers.get("etag"), modified_at)


def _listed(parts: Sequence[Part], *, sums: bool) -> str:
    return "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.tag)}</ETag>"
        f"{f'<ChecksumCRC32C>{as_base64(part.crc32c)}</ChecksumCRC32C>' if sums else ''}</Part>"
        for part in parts
    )


def _changed(uri: str, want: str, got: str | None) -> ConditionFailed:
    return ConditionFailed("read", uri, f"the object has changed (want {want}, got {got})", "find out who wrote it")


def _target_gone(uri: str, err: ObjectNotFound, *, is_begun: bool) -> TransientError | PermanentError:
    """A copy that finds something missing which is not its source: never ObjectNotFound, which means that."""
    if is_begun:
        return TransientError("copy_within", uri, f"its upload was dropped ({err.message})", "run again")
    return PermanentError("copy_within", uri, f"there is no place for it ({err.message})", "check bucket and URI")

"""The wire to Google Cloud Storage: the XML API for bytes, the JSON API for copies on its side.

- An e_tag is the object's generation, as everywhere in this library: that is what GCS compares.
- `create` is one PUT with `x-goog-if-generation-match: 0` and `x-goog-hash: crc32c=…`, which GCS checks.
- Whole objects that are read are compared with the CRC32C that the answer names.
- GCS knows no condition on uploads in parts. So the parts become an object beside the target,
  `<key>._upload-<token>`; when its CRC32C is right, a rewrite with ifGenerationMatch=0 gives it its name (within a
  bucket that moves no bytes), and it is deleted. A writer that dies between the two leaves that object behind: nobody
  refers to it, and `unnamed` finds it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from lakemirror.errors import PermanentError
from lakemirror.storage.abilities import GOOGLE, Abilities
from lakemirror.storage.checksum import as_base64, from_base64
from lakemirror.storage.clients import timeouts
from lakemirror.storage.keys import Address, check_key, check_prefix
from lakemirror.storage.port import ConditionFailed, ObjectInfo, ObjectNotFound, check_range
from lakemirror.storage.wire import (
    Part,
    Stored,
    Upload,
    WholeRead,
    WireCapabilities,
    check_arrived,
    check_md5,
    check_parts,
    check_slice,
)
from lakemirror.storage.wires.gcs_token import Tokens
from lakemirror.storage.wires.http import (
    Answer,
    Http,
    Request,
    body_of,
    check_answer,
    encoded,
    encoded_query,
    environment_proxy,
)
from lakemirror.storage.wires.pool import Place
from lakemirror.storage.wires.sums import check_read
from lakemirror.storage.wires.xml import parsed, text_in

_GENERATION: Final = "x-goog-generation"
_TEMPORARY: Final = re.compile(r"(?P<key>.+)\._upload-(?P<token>[0-9a-f]{16})")
_STORED_AS_IT_IS: Final = {"accept-encoding": "gzip"}  # otherwise GCS unpacks what was stored packed
_REWRITE_STEPS: Final = 10_000
_LIST_PAGES: Final = 10_000


class GcsWire:
    """The Wire port over GCS; the module says what it guarantees."""

    def __init__(self, properties: Mapping[str, str], abilities: Abilities | None = None) -> None:
        host = properties.get("gcs.service.host") or "https://storage.googleapis.com"
        parts = urlsplit(host)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PermanentError("open", "gs", "gcs.service.host is no address", "write https://host")
        proxy = environment_proxy(parts.scheme, parts.netloc)
        self._place = Place(host.rstrip("/"), parts.netloc, proxy, *timeouts(properties, "gcs"))
        self._can = abilities or GOOGLE
        self._tokens = Tokens(properties)
        self._http = Http()

    def capabilities(self, uri: str) -> WireCapabilities:
        return WireCapabilities(
            min_part_bytes=5 << 20,
            max_parts=10_000,
            max_create_bytes=5 << 30,
            copies_within=self._can.conditional_copy and self._can.copies_across_buckets,
            spoiled=self._can.spoiled,
        )

    async def head(self, uri: str) -> ObjectInfo:
        return _info(uri, (await self.ask("head", check_key(uri, "head"), "HEAD", _STORED_AS_IT_IS)).headers)

    async def stored(self, uri: str) -> Stored:
        headers = (await self.ask("stored", check_key(uri, "stored"), "HEAD", _STORED_AS_IT_IS)).headers
        info = _info(uri, headers)
        return Stored(info.size_bytes, _crc32c_in(headers), info.e_tag)

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        check_slice(uri, start, length)
        if length == 0:
            await self._check_empty(uri, start, e_tag)
            return b""
        request = await self._reading("read", uri, start, length, e_tag)
        answer = await self._http.read(request, length)
        _check_same(uri, e_tag, answer.headers.get(_GENERATION))
        check_answer(request, answer, start, length, size_bytes)
        data = body_of(request, answer, length)
        if answer.headers["content-range"].endswith(f"/{length}"):  # GCS names the sum of the whole, of parts too
            check_read(uri, data, _crc32c_in(answer.headers))
        return data

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        return WholeRead(await self.read(uri, 0, size_bytes, size_bytes=size_bytes))

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        check_md5(uri, data, md5)
        address = check_key(uri, "create")
        self._can.check("create", address)
        if not self._can.conditional_create:
            await self._look_first("create", address)
        headers = {"x-goog-if-generation-match": "0", "x-goog-hash": f"crc32c={as_base64(crc32c)}"}
        answer = await self.ask("create", address, "PUT", headers, body=data)
        got = _crc32c_in(answer.headers)
        check_arrived("create", uri, crc32c, got)
        return Stored(len(data), got, answer.headers.get(_GENERATION))

    async def begin(self, uri: str) -> str:
        address = check_key(uri, "begin")
        self._can.check("begin", address)
        token = secrets.token_hex(8)
        beside = check_key(_beside(uri, token), "begin")
        answer = await self.ask("begin", beside, "POST", query={"uploads": ""})
        return f"{token}:{text_in(parsed('begin', uri, answer.body), 'UploadId')}"

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        beside, upload_id = _taken_apart(uri, upload, "put_part")
        query = {"partNumber": str(number), "uploadId": upload_id}
        headers = {"x-goog-hash": f"crc32c={as_base64(crc32c)}"}
        answer = await self.ask("put_part", beside, "PUT", headers, query, data, about=uri)
        check_arrived("put_part", uri, crc32c, _crc32c_in(answer.headers))
        return Part(number, len(data), crc32c, answer.headers.get("etag", ""))

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        size_bytes = check_parts(uri, parts, crc32c)
        beside, upload_id = _taken_apart(uri, upload, "finish")
        listed = "".join(
            f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.tag)}</ETag></Part>" for part in parts
        )
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        with suppress(ObjectNotFound):  # an earlier attempt may have come this far; if not, `stored` says so
            await self.ask("finish", beside, "POST", query={"uploadId": upload_id}, body=body, about=uri)
        whole = await self._stored_beside(uri, beside)
        check_arrived("finish", uri, crc32c, whole.crc32c)
        if whole.size_bytes != size_bytes:
            why = f"the parts are not whole (want {size_bytes} bytes, got {whole.size_bytes})"
            raise PermanentError("finish", uri, why, "copy it anew")
        try:
            stored = await self._rewrite("finish", beside, check_key(uri, "finish"), whole.e_tag)
        except ConditionFailed:
            await self._delete(beside)
            raise
        await self._delete(beside)
        return stored

    async def abort(self, uri: str, upload: str) -> None:
        beside, upload_id = _taken_apart(uri, upload, "abort")
        if upload_id:
            with suppress(ObjectNotFound):
                await self.ask("abort", beside, "DELETE", query={"uploadId": upload_id}, about=uri)
        if beside.uri != uri:
            await self._delete(beside)

    async def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        address = check_prefix(prefix_uri, "uploads")
        bucket = Address(address.scheme, address.bucket, "")
        query = {"uploads": "", "prefix": f"{address.key}/" if address.key else "", "max-uploads": "1000"}
        while True:
            page = parsed("uploads", prefix_uri, (await self.ask("uploads", bucket, "GET", query=query)).body)
            for found in page.findall("{*}Upload"):
                key, upload_id = text_in(found, "Key"), text_in(found, "UploadId")
                if not key.startswith(query["prefix"]):
                    continue  # not every server minds the prefix
                ours = _TEMPORARY.fullmatch(key)
                uri = f"{address.root}{ours['key'] if ours else key}"
                begun_at = datetime.fromisoformat(text_in(found, "Initiated"))
                yield Upload(uri, f"{ours['token'] if ours else ''}:{upload_id}", begun_at)
            if text_in(page, "IsTruncated", "false") != "true":
                return
            markers = (text_in(page, "NextKeyMarker"), text_in(page, "NextUploadIdMarker", ""))
            if markers == (query.get("key-marker"), query.get("upload-id-marker")):
                raise _again_and_again("uploads", prefix_uri)
            query |= {"key-marker": markers[0], "upload-id-marker": markers[1]}

    async def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        address = check_prefix(prefix_uri, "unnamed")
        prefix = f"{address.key}/" if address.key else ""
        query = {"prefix": prefix, "matchGlob": "**._upload-*", "maxResults": "1000"}
        query["fields"] = "items(name,timeCreated),nextPageToken"
        for _ in range(_LIST_PAGES):
            path, headers = f"/storage/v1/b/{address.bucket}/o", await self._tokens.headers()
            request = Request("unnamed", prefix_uri, "GET", self._place, path, encoded_query(query), headers)
            page = _json(request, (await self._http.ask(request)).body)
            for name, made_at in _listed(request, page):
                ours = _TEMPORARY.fullmatch(name)
                if ours is not None and name.startswith(prefix):  # not every server knows globs
                    yield Upload(f"{address.root}{ours['key']}", f"{ours['token']}:", made_at)
            token = str(page.get("nextPageToken") or "")
            if not token:
                return
            if token == query.get("pageToken"):
                raise _again_and_again("unnamed", prefix_uri)
            query["pageToken"] = token
        raise PermanentError("unnamed", prefix_uri, f"there are more than {_LIST_PAGES} pages of objects", "look there")

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        source, target = check_key(source_uri, "copy_within"), check_key(target_uri, "copy_within")
        self._can.check("copy_within", target)
        across = source.root != target.root
        if not self._can.conditional_copy or (across and not self._can.copies_across_buckets):
            raise PermanentError("copy_within", target_uri, "this store cannot copy create-only", "stream it across")
        if e_tag is None:
            e_tag = (await self.head(source_uri)).e_tag
        try:
            return await self._rewrite("copy_within", source, target, e_tag)
        except ConditionFailed:
            _check_same(source_uri, e_tag, (await self.head(source_uri)).e_tag)
            raise
        except ObjectNotFound as err:
            await self.head(source_uri)  # if it is the source that is gone, this says so
            why = f"there is no place for it ({err.message})"
            raise PermanentError("copy_within", target_uri, why, "check bucket and URI") from err

    async def close(self) -> None:
        await self._http.close()

    async def _rewrite(self, op: str, source: Address, target: Address, generation: str | None) -> Stored:
        """Copy on the server's side, create-only; objects that must be moved take several calls."""
        path = (
            f"/storage/v1/b/{source.bucket}/o/{encoded(source.key, '')}"
            f"/rewriteTo/b/{target.bucket}/o/{encoded(target.key, '')}"
        )
        query = {"ifGenerationMatch": "0"}
        if generation is not None:
            query["ifSourceGenerationMatch"] = generation
        for _ in range(_REWRITE_STEPS):
            headers = await self._tokens.headers()
            request = Request(op, target.uri, "POST", self._place, path, encoded_query(query), headers)
            said = _json(request, (await self._http.ask(request)).body)
            if said.get("done") is True:
                made = said.get("resource") or {}
                size_bytes, e_tag = int(made.get("size", -1)), made.get("generation")
                return Stored(size_bytes, from_base64(str(made.get("crc32c", ""))), e_tag)
            query["rewriteToken"] = str(said.get("rewriteToken", ""))
        raise PermanentError(op, target.uri, f"the copy did not end in {_REWRITE_STEPS} calls", "stream it across")

    async def _delete(self, address: Address) -> None:
        with suppress(ObjectNotFound):
            await self.ask("abort", address, "DELETE")

    async def _stored_beside(self, uri: str, beside: Address) -> Stored:
        try:
            return await self.stored(beside.uri)
        except ObjectNotFound as err:
            why = "there is no such upload of it"
            raise ObjectNotFound("finish", uri, why, "it was finished or aborted: begin anew") from err

    async def _look_first(self, op: str, address: Address) -> None:
        """For servers that ignore conditions, in the weaker mode that the operator chose by name."""
        try:
            await self.ask(op, address, "HEAD")
        except ObjectNotFound:
            return
        raise ConditionFailed(op, address.uri, "the object exists already", "read it, and decide")

    async def _check_empty(self, uri: str, start: int, e_tag: str | None) -> None:
        there = await self.head(uri)
        _check_same(uri, e_tag, there.e_tag)
        check_range(uri, (start, 0), there.size_bytes)

    async def _reading(self, op: str, uri: str, start: int, length: int, e_tag: str | None) -> Request:
        headers = {"range": f"bytes={start}-{start + length - 1}", **_STORED_AS_IT_IS}
        if e_tag is not None:
            headers["x-goog-if-generation-match"] = e_tag
        return await self._request(op, check_key(uri, op), "GET", headers, {}, b"", uri)

    async def ask(
        self,
        op: str,
        address: Address,
        method: str,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        about: str | None = None,
    ) -> Answer:
        """One request about an object or bucket, signed; for verbs that the port has not, as those of the probe."""
        uri = about or address.uri
        return await self._http.ask(await self._request(op, address, method, headers or {}, query or {}, body, uri))

    async def _request(
        self,
        op: str,
        address: Address,
        method: str,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        body: bytes,
        uri: str,
    ) -> Request:
        path = f"/{address.bucket}{f'/{encoded(address.key)}' if address.key else ''}"
        admitted = {**headers, **await self._tokens.headers()}
        return Request(op, uri, method, self._place, path, encoded_query(query), admitted, body)


def _beside(uri: str, token: str) -> str:
    return f"{uri}._upload-{token}" if token else uri


def _taken_apart(uri: str, upload: str, op: str) -> tuple[Address, str]:
    token, _, upload_id = upload.partition(":")
    return check_key(_beside(uri, token), op), upload_id


def _info(uri: str, headers: Mapping[str, str]) -> ObjectInfo:
    size = headers.get("x-goog-stored-content-length") or headers.get("content-length", "")
    try:
        return ObjectInfo(uri, int(size), headers.get(_GENERATION), parsedate_to_datetime(headers["last-modified"]))
    except (KeyError, ValueError) as err:
        raise PermanentError("head", uri, "the store does not say size and time", "check the endpoint") from err


def _crc32c_in(headers: Mapping[str, str]) -> int | None:
    """`x-goog-hash` has both sums, in any order."""
    for one in headers.get("x-goog-hash", "").split(","):
        kind, _, text = one.strip().partition("=")
        if kind == "crc32c":
            return from_base64(text)
    return None


def _listed(request: Request, page: Mapping[str, Any]) -> list[tuple[str, datetime]]:
    """Names of objects with the time they were made."""
    try:
        return [(str(one["name"]), datetime.fromisoformat(one["timeCreated"])) for one in page.get("items", ())]
    except (KeyError, TypeError, ValueError) as err:
        raise PermanentError(request.op, request.uri, "the answer is no list", "check the endpoint") from err


def _again_and_again(op: str, uri: str) -> PermanentError:
    return PermanentError(op, uri, "the store lists one page again and again", "ask its makers")


def _json(request: Request, body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError as err:
        raise PermanentError(request.op, request.uri, "the answer is no JSON", "check the endpoint") from err
    if not isinstance(said, dict):
        raise PermanentError(request.op, request.uri, "the answer is no object", "check the endpoint")
    return said


def _check_same(uri: str, want: str | None, got: str | None) -> None:
    if want is not None and want != got:
        why = f"the object has changed (want generation {want}, got {got})"
        raise ConditionFailed("read", uri, why, "find out who wrote it")

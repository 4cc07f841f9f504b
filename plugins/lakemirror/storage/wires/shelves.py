"""Where the parts of an upload wait on this machine until the object is made of them.

In memory beside the buckets; on files beside the object, under hidden names that no listing shows, so that any process
of the machine may add to them: `.<upload>.<number>-<size>-<crc32c>#0`. Attempts at one part that differ do not disturb
each other; `finish` names the one that counts.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

from lakemirror.errors import PermanentError
from lakemirror.storage.checksum import Tally, crc32c_of
from lakemirror.storage.clients import MemoryBuckets, MemoryUpload
from lakemirror.storage.file_status import explained, folders_below
from lakemirror.storage.keys import check_key, check_prefix
from lakemirror.storage.port import CHUNK_BYTES, ObjectNotFound
from lakemirror.storage.spool import spooled
from lakemirror.storage.wire import Part, Upload

_UPLOAD: Final = re.compile(r"[0-9a-f]{24}")
_PART: Final = re.compile(r"\.(?P<upload>[0-9a-f]{24})\.(?P<number>\d{5})-(?P<tag>[^#]*)#0")
_BEGUN: Final = "begun"


class Shelf(Protocol):
    """Where parts wait until the object is made of them."""

    def begin(self, uri: str) -> str: ...

    def put(self, uri: str, upload: str, number: int, data: bytes) -> str: ...

    def pieces(self, uri: str, upload: str, parts: Sequence[Part]) -> Iterator[bytes]: ...

    def drop(self, uri: str, upload: str) -> None: ...

    def uploads(self, prefix_uri: str) -> Iterator[Upload]: ...


class MemoryShelf:
    def __init__(self, memory: MemoryBuckets) -> None:
        self._uploads = memory.uploads

    def begin(self, uri: str) -> str:
        check_key(uri, "begin")
        upload = secrets.token_hex(12)
        self._uploads[upload] = MemoryUpload(uri, datetime.now(UTC))
        return upload

    def put(self, uri: str, upload: str, number: int, data: bytes) -> str:
        self._at(uri, upload, "put_part").parts[number] = data
        return _tag(data)

    def pieces(self, uri: str, upload: str, parts: Sequence[Part]) -> Iterator[bytes]:
        there = self._at(uri, upload, "finish").parts
        for part in parts:
            data = there.get(part.number)
            if data is None or _tag(data) != part.tag:
                raise _no_such_part(uri, part)
            yield data

    def drop(self, uri: str, upload: str) -> None:
        self._uploads.pop(upload, None)

    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        below = f"{check_prefix(prefix_uri, 'uploads').uri.removesuffix('/')}/"
        for upload, there in sorted(self._uploads.items()):
            if there.uri.startswith(below):
                yield Upload(there.uri, upload, there.begun_at)

    def _at(self, uri: str, upload: str, op: str) -> MemoryUpload:
        there = self._uploads.get(upload)
        if there is None or there.uri != uri:
            raise _no_such_upload(op, uri, upload)
        return there


class FileShelf:
    """An upload is the file `.<upload>.00000-begun…#0`, which holds the URI, and a file for each part."""

    def begin(self, uri: str) -> str:
        address = check_key(uri, "begin")
        upload = secrets.token_hex(12)
        self._write(uri, f"{os.path.dirname(address.path)}/{_name(upload, 0, _BEGUN)}", address.uri.encode(), "begin")
        return upload

    def put(self, uri: str, upload: str, number: int, data: bytes) -> str:
        folder = self._folder(uri, upload, "put_part")
        self._write(uri, f"{folder}/{_name(upload, number, _tag(data))}", data, "put_part")
        return _tag(data)

    def pieces(self, uri: str, upload: str, parts: Sequence[Part]) -> Iterator[bytes]:
        folder = self._folder(uri, upload, "finish")
        for part in parts:
            try:
                with open(f"{folder}/{_name(upload, part.number, part.tag)}", "rb") as file:
                    while data := file.read(CHUNK_BYTES):
                        yield data
            except FileNotFoundError as err:
                raise _no_such_part(uri, part) from err

    def drop(self, uri: str, upload: str) -> None:
        if not _UPLOAD.fullmatch(upload):
            return
        folder = os.path.dirname(check_key(uri, "abort").path)
        with explained("abort", uri), suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(os.listdir(folder), reverse=True):  # the file that says it was begun goes last
                if name.startswith(f".{upload}."):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{folder}/{name}")

    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        top = check_prefix(prefix_uri, "uploads").path.rstrip("/")
        for folder in folders_below(top):
            with suppress(FileNotFoundError):
                for name in sorted(os.listdir(folder)):
                    found = _PART.fullmatch(name)
                    if found and found["tag"] == _BEGUN:
                        path = f"{folder}/{name}"
                        with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                            begun = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
                            yield Upload(file.read(), found["upload"], begun)

    def _folder(self, uri: str, upload: str, op: str) -> str:
        """The folder of an upload that was begun."""
        folder = os.path.dirname(check_key(uri, op).path)
        begun = f"{folder}/{_name(upload, 0, _BEGUN)}"
        if not _UPLOAD.fullmatch(upload) or not os.path.exists(begun):
            raise _no_such_upload(op, uri, upload)
        with explained(op, uri), open(begun, encoding="utf-8") as file:
            if file.read() != check_key(uri, op).uri:
                raise _no_such_upload(op, uri, upload)
        return folder

    def _write(self, uri: str, path: str, data: bytes, op: str) -> None:
        with (
            explained(op, uri, Tally()),
            spooled(path, data, Tally(), sync=False) as spool,
            suppress(FileExistsError),  # the very same part, from another attempt
        ):
            spool.link(path)


def _name(upload: str, number: int, tag: str) -> str:
    return f".{upload}.{number:05d}-{tag}#0"


def _tag(data: bytes) -> str:
    return f"{len(data)}-{crc32c_of(data):08x}"


def _no_such_upload(op: str, uri: str, upload: str) -> ObjectNotFound:
    return ObjectNotFound(op, uri, f"there is no upload {upload[:64]} of it", "it was finished or aborted: begin anew")


def _no_such_part(uri: str, part: Part) -> PermanentError:
    return PermanentError("finish", uri, f"part {part.number} is not the one that was sent", "copy it anew")

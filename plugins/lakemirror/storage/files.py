"""Objects that are files of this machine (`file:///…`), with the guarantees of an object store.

Written with the operating system's own calls rather than obstore's LocalStore, which has no replace-if-match, holds
streamed create-only bodies in memory, lists in no order, and streams at a fortieth of the speed.

- Create: the body is spooled to a nameless file and named by link(2), which is atomic and never replaces.
- Replacing (IfMatch, Overwrite) and deleting hold flock(2) on the very file that the key names, look again whether the
  key still names it, compare e_tags, then rename(2). The lock is on the object itself: there is no lock file that could
  be listed or left behind, and it dies with its holder. It needs a file system with flock between all writers (any
  local one; not every NFS).
- The e_tag is inode, modification time and size; a replacement is always younger than what it replaces.
- Durability: what `put` returned for survives the death of the process. A power cut is up to the operating system,
  unless the property `file.sync` is `true`: then file and folder are synced before `put` returns.
- Symbolic links are followed. Unfinished writes are never listed. Folders are made as needed and never removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from lakemirror.errors import TransientError
from lakemirror.storage.checksum import Tally
from lakemirror.storage.file_status import NO_SUCH_OBJECT, e_tag_of, explained, info_of, regular, walk
from lakemirror.storage.keys import Address, check_key, check_prefix
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
    Written,
    check_copy_condition,
    check_range,
    cut_short,
)
from lakemirror.storage.spool import Spool, spooled, sync_folder

LOCK_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.002


class FileObjects:
    """The ObjectStore port over files; the module says what it guarantees."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sync = properties.get("file.sync", "false").lower() == "true"
        self._clock = clock
        self._sleep = sleep

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        address = check_key(uri, "get")
        with explained("get", address.uri), _opened(address) as (file, info):
            start, length = check_range(address.uri, byte_range, info.size_bytes, max_bytes)
            data = os.pread(file, length, start)
            while len(data) < length:  # the kernel gives 2 GiB at a time
                more = os.pread(file, length - len(data), start + len(data))
                if not more:
                    raise cut_short("get", address.uri, length, len(data))
                data += more
        return Blob(info, data)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        return _pieces(check_key(uri, "stream"), chunk_bytes, "stream")

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        return self._put(check_key(uri, "put"), body, condition, "put")

    def head(self, uri: str) -> ObjectInfo:
        address = check_key(uri, "head")
        with explained("head", address.uri):
            return info_of(address.uri, regular(os.stat(address.path)))

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        return walk(check_prefix(prefix_uri).path.rstrip("/"))

    def delete(self, uris: Sequence[str]) -> None:
        for address in [check_key(uri, "delete") for uri in uris]:
            with explained("delete", address.uri), suppress(*NO_SUCH_OBJECT), self._held(address, "delete") as status:
                regular(status)
                os.unlink(address.path)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        source, target = check_key(source_uri, "copy"), check_key(target_uri, "copy")
        check_copy_condition(target.uri, condition)
        self._put(target, _pieces(source, CHUNK_BYTES, "copy"), condition, "copy")
        return self.head(target.uri)

    def _put(self, address: Address, body: bytes | Iterator[bytes], condition: Condition, op: str) -> Written:
        tally = Tally()
        with explained(op, address.uri, tally):
            if isinstance(condition, Create) and os.path.isfile(address.path):
                raise _taken(op, address.uri)  # before the whole body is spooled for nothing
            with spooled(address.path, body, tally, sync=self._sync) as spool:
                if isinstance(condition, Create):
                    _create(address, spool, op)
                else:
                    self._replace(address, spool, condition.e_tag if isinstance(condition, IfMatch) else None, op)
                status = os.fstat(spool.file)
            if self._sync:
                sync_folder(os.path.dirname(address.path))
        return Written(address.uri, tally.size_bytes, tally.crc32c, e_tag_of(status), is_proven=True)

    def _replace(self, address: Address, spool: Spool, e_tag: str | None, op: str) -> None:
        """Turn the key to the spooled file; given an e_tag, only if the key still names that content."""
        while True:
            try:
                with self._held(address, op) as status:
                    regular(status)
                    if e_tag is not None and e_tag_of(status) != e_tag:
                        raise _changed(op, address.uri, e_tag, e_tag_of(status))
                    spool.make_newer_than(status)
                    return spool.rename_over(address.path)
            except FileNotFoundError as err:
                if e_tag is not None:
                    raise _changed(op, address.uri, e_tag, "nothing") from err
            with suppress(FileExistsError):  # created since we looked: then that is what we replace
                return spool.link(address.path)

    @contextmanager
    def _held(self, address: Address, op: str) -> Iterator[os.stat_result]:
        """Hold the lock of the file that the key names; FileNotFoundError if it names none."""
        deadline = self._clock() + LOCK_TIMEOUT_S
        while self._clock() <= deadline:
            file = os.open(address.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if not _try_lock(file):
                    self._sleep(_POLL_S)
                    continue
                status = os.fstat(file)
                if os.path.samestat(status, os.stat(address.path)):  # else it was replaced before we had the lock
                    yield status
                    return
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # by hand, because a process forked meanwhile shares the descriptor
                os.close(file)
        raise TransientError(op, address.uri, f"no lock in {LOCK_TIMEOUT_S:g} s: other writers hold it", "run again")


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create(address: Address, spool: Spool, op: str) -> None:
    try:
        spool.link(address.path)
    except FileExistsError as err:
        if os.path.isdir(address.path):
            raise IsADirectoryError(errno.EISDIR, "a folder") from err
        raise _taken(op, address.uri) from err


def _taken(op: str, uri: str) -> ConditionFailed:
    return ConditionFailed(op, uri, "the object exists already", "read it, and decide")


def _pieces(address: Address, chunk_bytes: int, op: str) -> Iterator[bytes]:
    """The file's bytes; it is opened by this call, not by the first piece."""

    def read() -> Iterator[bytes]:
        with explained(op, address.uri), _opened(address) as (file, info):
            yield b""
            done = 0
            while done < info.size_bytes:
                piece = os.read(file, min(chunk_bytes, info.size_bytes - done))
                if not piece:
                    raise cut_short(op, address.uri, info.size_bytes, done)
                done += len(piece)
                yield piece

    pieces = read()
    next(pieces)
    return pieces


@contextmanager
def _opened(address: Address) -> Iterator[tuple[int, ObjectInfo]]:
    file = os.open(address.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield file, info_of(address.uri, regular(os.fstat(file)))
    finally:
        os.close(file)


def _changed(op: str, uri: str, want: str, got: str) -> ConditionFailed:
    return ConditionFailed(op, uri, f"the object has changed (want {want}, got {got})", "read it again, and decide")

"""A body on its way to becoming a file: written whole where no key sees it, then named at one stroke.

The file has no name while it is written (O_TMPFILE), so a writer killed in the middle leaves nothing behind. On file
systems without that, it has a hidden name that ends in `#0`; see `is_unfinished`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from lakemirror.storage.checksum import Tally

_UNFINISHED: Final = re.compile(r"#\d+$")
_NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


def is_unfinished(name: str) -> bool:
    """Whether a file of this name is an unfinished write, ours or of obstore's LocalStore, and no object."""
    return _UNFINISHED.search(name) is not None


@dataclass(frozen=True, slots=True)
class Spool:
    """A whole body that no key names yet; `name` is empty where the file has no name at all."""

    file: int
    name: str

    def link(self, path: str) -> None:
        """Name it, atomically; FileExistsError if the name is taken."""
        if self.name:
            os.link(self.name, path)
        else:  # the descriptor is not used for an absolute path, but makes Python follow the link in /proc
            os.link(f"/proc/self/fd/{self.file}", path, src_dir_fd=self.file)

    def rename_over(self, path: str) -> None:
        """Name it in the place of `path`, atomically; the caller holds its lock, and so that of the name between."""
        folder, name = os.path.split(path)
        between = f"{folder}/.{hashlib.blake2s(name.encode(), digest_size=12).hexdigest()}#0"
        with suppress(FileNotFoundError):
            os.unlink(between)  # of a writer that was killed right here
        self.link(between)
        os.rename(between, path)

    def make_newer_than(self, replaced: os.stat_result) -> None:
        """Clocks tick slower than writers write; e_tags need a time that differs."""
        if os.fstat(self.file).st_mtime_ns <= replaced.st_mtime_ns:
            os.utime(self.file, ns=(replaced.st_mtime_ns + 1, replaced.st_mtime_ns + 1))


@contextmanager
def spooled(path: str, body: bytes | Iterator[bytes], tally: Tally, *, sync: bool) -> Iterator[Spool]:
    """The body in a nameless file beside `path`, whose folder is made if it is missing."""
    spool = _open_beside(os.path.dirname(path))
    try:
        if isinstance(body, bytes):
            _write(spool.file, tally.add(body))
        else:
            for piece in tally.over(body):
                _write(spool.file, piece)
        if sync:
            os.fsync(spool.file)
        yield spool
    finally:
        os.close(spool.file)
        if spool.name:
            os.unlink(spool.name)


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive a power cut."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _open_beside(folder: str) -> Spool:
    try:
        return _open_nameless(folder)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        return _open_nameless(folder)


def _open_nameless(folder: str) -> Spool:
    nameless = getattr(os, "O_TMPFILE", None)
    if nameless is not None:
        try:
            return Spool(os.open(folder, nameless | os.O_WRONLY | os.O_CLOEXEC, 0o666), "")
        except OSError as err:
            if err.errno not in _NO_TMPFILE:
                raise
    name = f"{folder}/.{secrets.token_hex(12)}#0"
    return Spool(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666), name)


def _write(file: int, data: bytes) -> None:
    done = os.write(file, data)
    while done < len(data):  # the kernel takes 2 GiB at a time
        done += os.write(file, memoryview(data)[done:])

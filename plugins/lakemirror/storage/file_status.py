"""What the operating system says of files, in the words of the port: descriptions, e_tags, errors, listings."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.checksum import Tally
from lakemirror.storage.port import ObjectInfo, ObjectNotFound
from lakemirror.storage.spool import is_unfinished

NO_SUCH_OBJECT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_IN_THE_WAY: Final = (FileExistsError, NotADirectoryError, IsADirectoryError)
_NEEDS_A_PERSON: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOLCK, errno.EOPNOTSUPP}
)


def regular(status: os.stat_result) -> os.stat_result:
    """The same, if it is of a file; only files are objects."""
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "not a regular file")
    return status


def info_of(uri: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(uri, status.st_size, e_tag_of(status), datetime.fromtimestamp(status.st_mtime, UTC))


def e_tag_of(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


@contextmanager
def explained(op: str, uri: str, written: Tally | None = None) -> Iterator[None]:
    """Turn OSErrors into the port's, by their kind; the error of a body being written is not ours and passes."""
    try:
        yield
    except OSError as err:
        if written is not None and err is written.failure:
            raise
        raise _translated(err, op, uri, is_write=written is not None) from err


def _translated(err: OSError, op: str, uri: str, *, is_write: bool) -> Exception:
    reason = err.strerror or type(err).__name__
    if is_write and isinstance(err, _IN_THE_WAY):
        return PermanentError(op, uri, f"a file or folder is in the way ({reason})", "files cannot hold both a and a/b")
    if not is_write and isinstance(err, NO_SUCH_OBJECT):
        return ObjectNotFound(op, uri, "there is no such object", "check the URI")
    if isinstance(err, PermissionError):
        return PermanentError(op, uri, f"access denied ({reason})", "check owner and mode of file and folder")
    if err.errno in _NEEDS_A_PERSON:
        return PermanentError(op, uri, reason, "check disk, path and kind of file system")
    return TransientError(op, uri, reason, "run again")


def walk(folder: str, links: frozenset[tuple[int, int]] = frozenset()) -> Iterator[ObjectInfo]:
    """Every object below a folder, in key order; memory grows with the largest folder, not with the tree.

    Files are looked at before their names are read: what was written before one of them, in the same folder, is listed
    too. One that came in between has no e_tag. `links` are the symbolic links that led here: one that leads back is
    refused.
    """
    with explained("list", f"file://{folder}/"), suppress(*NO_SUCH_OBJECT):
        seen = {entry.name: entry.stat() for entry in _entries(folder) if _is_file(entry)}
        named = sorted(
            ((f"{entry.name}/" if entry.is_dir() else entry.name, entry) for entry in _entries(folder)),
            key=itemgetter(0),
        )
        for name, entry in named:
            uri = f"file://{folder}/{name}"
            if not _is_unicode(name):
                raise PermanentError("list", repr(uri), "the name of the file is not valid UTF-8", "rename the file")
            if name.endswith("/"):
                yield from walk(f"{folder}/{entry.name}", _below(entry, uri, links))
            elif name in seen:
                yield info_of(uri, seen[name])
            elif not is_unfinished(name):
                with suppress(*NO_SUCH_OBJECT):  # gone since, or a link to nowhere, or no regular file
                    yield replace(info_of(uri, regular(entry.stat())), e_tag=None)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder or "/") as found:
        return list(found)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a finished object, also by a link. `entry` keeps what it was asked."""
    try:
        return not is_unfinished(entry.name) and stat.S_ISREG(entry.stat().st_mode)
    except NO_SUCH_OBJECT:
        return False


def folders_below(folder: str) -> Iterator[str]:
    """A folder and those in it, at any depth, links not followed; none if it is not there."""
    with explained("list", f"file://{folder}/"), suppress(*NO_SUCH_OBJECT):
        with os.scandir(folder or "/") as found:
            inner = sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
        yield folder
        for path in inner:
            yield from folders_below(path)


def _below(entry: os.DirEntry[str], uri: str, links: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    if not entry.is_symlink():
        return links
    status = entry.stat()
    link = (status.st_dev, status.st_ino)
    if link in links:
        raise PermanentError("list", uri, "the link leads back to a folder above it", "remove the link")
    return links | {link}


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Object URIs: taken apart, put together, and refused by name where a store cannot hold the key.

URIs are literal: `%20` is three characters. What passes `check_key` is stored, read and listed under exactly that key
by the store it names. Refused: empty segments (S3 and GCS hold such keys, obstore cannot name them), `.` and `..`
segments, a trailing `/`, control characters, text that is not Unicode, keys over 1,024 bytes on S3 and GCS, on files
names over 255 bytes, and `#`, which marks unfinished writes there (here and in obstore).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from lakemirror.errors import PermanentError

Kind = Literal["file", "memory", "s3", "gs"]

_KINDS: Final[Mapping[str, Kind]] = {
    "file": "file",
    "memory": "memory",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
}
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<bucket>[^/]*)(?:/(?P<key>.*))?", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_KEY_BYTES: Final[Mapping[Kind, int]] = {"file": 4000, "memory": 4000, "s3": 1024, "gs": 1024}
_MAX_NAME_BYTES: Final = 255
_REMEMBERED: Final = 1024  # a copy asks five times for each of its two URIs
_HINT: Final = "rename the object, or move the table to a location without it"


@dataclass(frozen=True, slots=True)
class Address:
    """A URI taken apart; `key` has no leading `/`, `bucket` is empty for files."""

    scheme: str
    bucket: str
    key: str

    @property
    def kind(self) -> Kind:
        return _KINDS[self.scheme]

    @property
    def root(self) -> str:
        """The part that is the same for every key of this bucket."""
        return f"{self.scheme}://{self.bucket}/"

    @property
    def uri(self) -> str:
        return f"{self.root}{self.key}"

    @property
    def path(self) -> str:
        """The path of a file."""
        return f"/{self.key}"


@lru_cache(maxsize=_REMEMBERED)
def check_key(uri: str, op: str = "check key") -> Address:
    """The address of an object that its store can hold; PermanentError naming what is wrong otherwise."""
    address = _parse(uri, op)
    if not address.key:
        raise _refused(op, uri, "it names no object")
    if address.key.endswith("/"):
        raise _refused(op, uri, "it ends in '/'")
    _check_segments(uri, op, address)
    return address


@lru_cache(maxsize=_REMEMBERED)
def check_prefix(uri: str, op: str = "list") -> Address:
    """The address of everything below `uri`, without the trailing `/`; the key may be empty (the whole bucket)."""
    address = _parse(uri, op)
    if address.key != "/":
        address = Address(address.scheme, address.bucket, address.key.removesuffix("/"))
    if address.key:
        _check_segments(uri, op, address)
    return address


def _parse(uri: str, op: str) -> Address:
    literal = uri
    if literal.startswith("/"):
        literal = f"file://{literal}"
    elif literal.startswith("file:/") and not literal.startswith("file://"):
        literal = f"file://{literal.removeprefix('file:')}"
    match = _URI.fullmatch(literal)
    if match is None or match["scheme"] not in _KINDS:
        known = ", ".join(f"{scheme}://" for scheme in _KINDS)
        raise PermanentError(op, _shown(uri), "not the URI of an object", f"want one of {known} or an absolute path")
    scheme, bucket, key = match["scheme"], match["bucket"], match["key"] or ""
    if scheme == "file" and bucket:
        raise PermanentError(
            op, _shown(uri), f"names the host {bucket!r}", "write file:/// followed by an absolute path"
        )
    if scheme != "file" and not _BUCKET.fullmatch(bucket):
        raise PermanentError(op, _shown(uri), f"{bucket!r} cannot be a bucket", f"write {scheme}://<bucket>/<key>")
    return Address(scheme, bucket, key)


def _check_segments(uri: str, op: str, address: Address) -> None:
    key, kind = address.key, address.kind
    try:
        encoded = key.encode()
    except UnicodeEncodeError as err:
        raise _refused(op, uri, "it is not valid Unicode") from err
    if control := _CONTROL.search(key):
        raise _refused(op, uri, f"it holds the control character {control.group()!r}")
    if len(encoded) > _MAX_KEY_BYTES[kind]:
        raise _refused(op, uri, f"it is longer than {_MAX_KEY_BYTES[kind]} bytes ({len(encoded)})")
    segments = key.split("/")
    if "" in segments:
        who = "the client by which the store is reached" if kind in ("s3", "gs") else "the store"
        raise _refused(op, uri, "it holds '//'", who)
    for dots in (".", ".."):
        if dots in segments:
            raise _refused(op, uri, f"it holds the segment {dots!r}")
    if kind == "file":
        if "#" in key:
            raise _refused(op, uri, "it holds '#', which marks unfinished writes on files")
        if len(encoded) > _MAX_NAME_BYTES and any(len(name.encode()) > _MAX_NAME_BYTES for name in segments):
            raise _refused(op, uri, f"it holds a name longer than {_MAX_NAME_BYTES} bytes")


def _refused(op: str, uri: str, why: str, who: str = "the store") -> PermanentError:
    return PermanentError(op, _shown(uri), f"{who} cannot hold this key: {why}", _HINT)


def _shown(uri: str) -> str:
    """The URI as it is, or escaped if it would break a log line or not be seen at all."""
    return uri if uri and uri.isprintable() else repr(uri)

"""The object-store port: what the rest of the library may ask of a place that keeps bytes.

Objects are addressed by full URI, a literal string as Iceberg writes it (never percent-encoded here):
`file:///abs/path`, `memory://bucket/key`, `s3://bucket/key` (also `s3a`, `s3n`), `gs://bucket/key`. `/abs/path` and
`file:/abs/path` mean the same as `file:///abs/path`, which is the form that every answer uses; other URIs come back in
the scheme they were asked in.

Errors: TransientError (network, server, cut short; ThrottledError if the store asks for fewer requests),
ObjectNotFound, ConditionFailed, and PermanentError for what will not change by itself (access denied, a key that the
store cannot hold). Each carries the verb as `op` and the URI as `subject`. After a TransientError of a write nobody
knows whether it took effect; it did so wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from lakemirror.errors import PermanentError, TransientError

CHUNK_BYTES: Final = 8 * 1024 * 1024
MAX_GET_BYTES: Final = 1 << 30
"""What `get` holds in memory at most unless a caller says otherwise; what may be larger is streamed."""
EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
"""The codes by which stores refuse credentials that were good before."""


class ObjectNotFound(PermanentError):
    """There is no object at this URI."""


class ConditionFailed(PermanentError):
    """The object is there already (Create) or is not what the caller has seen (IfMatch); nothing changed."""


class ThrottledError(TransientError):
    """The store asks for fewer requests (429, 503, SlowDown); `retry_after_s` is what it said, None if nothing."""

    def __init__(self, op: str, subject: str, message: str, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(op, subject, message, hint)
        self.retry_after_s = retry_after_s  # pickles with the other attributes


class ConflictError(TransientError):
    """Two writers met at one key, and this one lost (409); whoever asks again finds the winner."""


class DamagedError(TransientError):
    """The bytes that arrived do not have the sum that was sent with them."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of an object; `e_tag` is opaque, changes with the content, None if a listing lacks it."""

    uri: str
    size_bytes: int
    e_tag: str | None
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes of an object (all, or the range asked for) and what the same answer said of the whole object."""

    info: ObjectInfo
    data: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """A completed write: size and CRC32C are of the bytes sent, computed while they went through."""

    uri: str
    size_bytes: int
    crc32c: int
    e_tag: str | None
    is_proven: bool = False
    """The object of this e_tag has these very bytes: the store compared a sum of them, or its answer names one."""


@dataclass(frozen=True, slots=True)
class Create:
    """Write only if nothing is there."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Replace only the content that had this e_tag, taken from `get`, `head` or `put`.

    On S3 the e_tag is that of the bytes: writing again what is there lets the next holder of the same e_tag in as well.
    What is to have one winner must therefore differ from one write to the next, as a rising token does.
    """

    e_tag: str


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Write whatever is there; for control objects that nobody builds on."""


Condition = Create | IfMatch | Overwrite
CREATE: Final = Create()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Powers in which stores differ, as data; see `lakemirror.storage.objects.capabilities`."""

    atomic_create_streams: bool
    """Create is atomic for streamed bodies of any size; if not, above CHUNK_BYTES it is a look followed by a write."""
    if_match_streams: bool
    """IfMatch takes streamed bodies above CHUNK_BYTES; if not, they are refused."""
    e_tags_in_lists: bool
    """`list` gives e_tags that IfMatch accepts; if not, they are None there and `head` has them."""


class ObjectStore(Protocol):
    """Seven verbs; synchronous, safe to share between threads, picklable (connections are made anew there)."""

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        """The object, or exactly the bytes of `byte_range` (start, length); PermanentError if it ends past it.

        More than `max_bytes` are refused with a PermanentError before they are read.
        """
        ...

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The object in order, in pieces of at most `chunk_bytes`; ObjectNotFound comes from the call itself.

        Ends normally only after as many bytes as the answer's head promised; cut short, it raises TransientError.
        """
        ...

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        """Write the whole object or nothing; readers never see a part of it.

        An iterator is streamed with bounded memory; if it raises, nothing is written and its error passes through
        unchanged.
        """
        ...

    def head(self, uri: str) -> ObjectInfo:
        """What the store says of the object, without its bytes."""
        ...

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        """Everything below `<prefix_uri>/`, page by page, in key order (of UTF-8 bytes); empty if nothing is there.

        Key order is the store's own promise: Amazon S3, GCS, files and memory keep it, look-alike servers may not.
        Where an object has an e_tag here, what was written in its folder before it is listed, too.
        """
        ...

    def delete(self, uris: Sequence[str]) -> None:
        """Remove these objects; those that are gone already are fine. After an error some may be gone: call again."""
        ...

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        """Copy within one store, on its side; Create or Overwrite. Returns the target."""
        ...


def check_range(
    uri: str, byte_range: tuple[int, int] | None, size_bytes: int, max_bytes: int = MAX_GET_BYTES
) -> tuple[int, int]:
    """(start, length) to read of an object of this size; PermanentError if they are not within it, or too many."""
    start, length = byte_range or (0, size_bytes)
    if length > max_bytes:
        raise PermanentError(
            "get",
            uri,
            f"it is larger than it may be (want at most {max_bytes} bytes, got {length})",
            "it is not what it should be: find out who wrote it",
        )
    if start < 0 or length < 0 or start + length > size_bytes:
        want = f"want {length} bytes from {start}, got an object of {size_bytes}"
        raise PermanentError(
            "get", uri, f"the range is not within the object ({want})", "the object is not what it was"
        )
    return start, length


def within(blob: Blob, uri: str, max_bytes: int) -> Blob:
    """The blob, unless it holds more than `max_bytes`."""
    check_range(uri, None, len(blob.data), max_bytes)
    return blob


def check_copy_condition(uri: str, condition: Condition) -> None:
    """Copies cannot be conditional on an e_tag of the target: no store offers that."""
    if isinstance(condition, IfMatch):
        raise PermanentError("copy", uri, "a copy cannot replace by e_tag", "use Create or Overwrite")


def cut_short(op: str, uri: str, want_bytes: int, got_bytes: int) -> TransientError:
    """The error of an answer that ended before the length that its head promised."""
    return TransientError(op, uri, f"cut short (want {want_bytes} bytes, got {got_bytes})", "read it again")


def has_expired(op: str, uri: str, reason: str) -> TransientError:
    """The error of credentials that were good before: they are renewed elsewhere, and the next run has them."""
    return TransientError(
        op, uri, f"the credentials have expired ({reason})", "renew them; the next run takes the new ones"
    )

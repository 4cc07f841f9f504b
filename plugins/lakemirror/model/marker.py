"""The marker: one small JSON that says "version N is whole" and binds everything needed to check that claim.

Two markers are equal if their content hash is equal; who wrote it, when and under which fence token stays outside that
hash. `format` is the major format: another one is refused. Within it, later versions may add fields: they are inside
the hash like all others, and a reader that does not know them keeps them and looks past them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Any

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.model import bounded_json

FORMAT = 1
HEAD, HISTORY = "head", "history"
ENVELOPE = ("checksum", "created_at", "producer", "fence_token")  # what the hash leaves out
MAX_BYTES = 1 << 18  # a marker has some 2 KB; paths of the longest kind make 20 KB
_MAX_VALUES = 1000
_DEMOTED_AT_MOST = 500
_VERSION = re.compile(r"v([1-9][0-9]{0,17})")
_SNAPSHOT_ID = re.compile(r"-?[0-9]{1,19}")
# What each field must be; the hash does not tell, because whoever alters a marker can compute it anew.
_KINDS: dict[str, type | UnionType] = {
    **dict.fromkeys(("table", "epoch", "kind", "metadata_uri", "metadata_sha256", "index_uri", "index_sha256"), str),
    **dict.fromkeys(("closure_digest", "source_metadata_location", "source_fingerprint"), str),
    **dict.fromkeys(("parent_checksum", "manifest_list_uri"), str | None),
    **dict.fromkeys(("manifest_count", "sequence_number", "files", "size_bytes"), int),
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who wrote a marker, when, and under which token of the fence; None: without a fence."""

    created_at: datetime
    producer: str
    fence_token: int | None


@dataclass(frozen=True, slots=True)
class Marker:
    """What a version is. `parent` and `parent_checksum` name the marker before it in the chain.

    `demoted` are ordinals that were demoted when it was planned: the chain behind it has none of them. It saves walking
    back to them, so that some may be missing. `dropped` is the last that was dropped by then, 0 if none was: the chain
    begins after it. One ordinal may be demoted first and dropped later, so that the two are told apart. A marker of
    kind `head` moves the table; one of kind `history` fills its past and never moves main. `further` is the JSON of
    fields that a later version of Lakemirror wrote.
    """

    table: str
    version: int
    epoch: str
    kind: str
    parent: int | None
    parent_checksum: str | None
    metadata_uri: str
    metadata_sha256: str
    manifest_list_uri: str | None
    manifest_count: int
    index_uri: str
    index_sha256: str
    closure_digest: str
    source_metadata_location: str
    source_fingerprint: str
    snapshot_id: int | None
    sequence_number: int
    source_committed_at: datetime
    files: int
    size_bytes: int
    demoted: tuple[int, ...] = ()
    dropped: int = 0
    further: str = "{}"

    def content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "table": self.table,
            "version": f"v{self.version}",
            "epoch": self.epoch,
            "kind": self.kind,
            "parent": None if self.parent is None else f"v{self.parent}",
            "parent_checksum": self.parent_checksum,
            "metadata_uri": self.metadata_uri,
            "metadata_sha256": self.metadata_sha256,
            "manifest_list_uri": self.manifest_list_uri,
            "manifest_count": self.manifest_count,
            "index_uri": self.index_uri,
            "index_sha256": self.index_sha256,
            "closure_digest": self.closure_digest,
            "source_metadata_location": self.source_metadata_location,
            "source_fingerprint": self.source_fingerprint,
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "sequence_number": self.sequence_number,
            "source_committed_at": self.source_committed_at.astimezone(UTC).isoformat(),
            "files": self.files,
            "bytes": self.size_bytes,
            **({"demoted": [f"v{number}" for number in self.demoted]} if self.demoted else {}),
            **({"dropped": f"v{self.dropped}"} if self.dropped else {}),
            **json.loads(self.further),
        }

    @property
    def checksum(self) -> str:
        canonical = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"

    def to_bytes(self, *, created_at: datetime, producer: str, fence_token: int | None = None) -> bytes:
        document = {
            **self.content(),
            "checksum": self.checksum,
            "created_at": created_at.astimezone(UTC).isoformat(),
            "producer": producer,
            "fence_token": fence_token,
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Marker:
        """Read a marker and check its hash; a newer format, a broken one, or one before its parent is refused."""
        return cls.read(data, uri)[0]

    @classmethod
    def read(cls, data: bytes, uri: str) -> tuple[Marker, Envelope]:
        """The same, with what stands outside the hash: nothing that anybody may build on."""
        try:
            document = bounded_json.object_of(data, max_values=_MAX_VALUES)
            marker, checksum = cls._from_document(document, uri)
            envelope = _envelope(document)
        except (ValueError, KeyError, TypeError, OverflowError) as err:
            raise PermanentError(
                "read marker", uri, f"not a marker ({err!r})", "it was not written by Lakemirror"
            ) from err
        if marker.checksum != checksum:
            raise PermanentError(
                "read marker", uri, f"its hash does not fit (want {checksum}, got {marker.checksum})", "it was altered"
            )
        if marker.parent is not None and marker.parent >= marker.version:  # the way back would have no end
            raise PermanentError(
                "read marker",
                uri,
                f"it does not come after its parent (want a parent before v{marker.version}, got v{marker.parent})",
                "it was altered or forged: see who writes to the bucket, and remove it",
            )
        return marker, envelope

    @classmethod
    def _from_document(cls, document: dict[str, Any], uri: str) -> tuple[Marker, str]:
        if type(document["format"]) is not int or document["format"] != FORMAT:
            raise UnsupportedError(
                "read marker",
                uri,
                f"it is of format {repr(document['format'])[:100]}, and this version reads format {FORMAT}",
                "upgrade Lakemirror on this side; until then nothing changes here",
            )
        own = cls.__dataclass_fields__.keys() - {"size_bytes", "further"}
        fields = {key: value for key, value in document.items() if key in own}
        fields["size_bytes"] = document["bytes"]
        fields["version"] = _number(document["version"])
        fields["parent"] = None if document["parent"] is None else _number(document["parent"])
        fields["snapshot_id"] = None if document["snapshot_id"] is None else _snapshot_id(document["snapshot_id"])
        fields["demoted"] = tuple(_number(text) for text in document.get("demoted", ()))
        fields["dropped"] = _number(document["dropped"]) if "dropped" in document else 0
        fields["source_committed_at"] = _time(document["source_committed_at"], "source_committed_at")
        further = {key: value for key, value in document.items() if key not in {*own, "bytes", "format", *ENVELOPE}}
        fields["further"] = json.dumps(further, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for name, kind in _KINDS.items():
            value = fields[name]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ValueError(f"{name} is {repr(value)[:100]}")
            if isinstance(value, int) and not 0 <= value < 1 << 63:
                raise ValueError(f"{name} is out of range")
        return cls(**fields), str(document["checksum"])


def named(demoted: Iterable[int]) -> tuple[int, ...]:
    """As a marker names them: the last few hundred, so that it stays small."""
    return tuple(sorted(demoted)[-_DEMOTED_AT_MOST:])


def _number(text: str) -> int:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:100]!r} is not v and a number of at most 18 digits")
    return int(found.group(1))


def _snapshot_id(text: str) -> int:
    if _SNAPSHOT_ID.fullmatch(text) is None or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError(f"snapshot_id is {text[:100]!r}")
    return int(text)


def _time(text: str, name: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{name} has no time zone")
    return moment.astimezone(UTC)


def _envelope(document: dict[str, Any]) -> Envelope:
    """Markers of before the fence name no token."""
    producer, token = document["producer"], document.get("fence_token")
    if not isinstance(producer, str) or (token is not None and (type(token) is not int or not 0 < token < 1 << 62)):
        raise ValueError(f"producer is {repr(producer)[:100]}, fence_token is {repr(token)[:100]}")
    return Envelope(_time(document["created_at"], "created_at"), producer, token)

"""The marker: one small JSON that says "version N is whole" and binds everything needed to check that claim.

Two markers are equal if their content hash is equal; who wrote it and when stays outside that hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Any

from lakemirror.errors import PermanentError

FORMAT = 1
# What each field must be; the hash does not tell, because whoever alters a marker can compute it anew.
_KINDS: dict[str, type | UnionType] = {
    **dict.fromkeys(("table", "epoch", "kind", "metadata_uri", "metadata_sha256", "index_uri", "index_sha256"), str),
    **dict.fromkeys(("closure_digest", "source_metadata_location", "source_fingerprint"), str),
    **dict.fromkeys(("parent_checksum", "manifest_list_uri"), str | None),
    **dict.fromkeys(("manifest_count", "sequence_number", "files", "size_bytes"), int),
}


@dataclass(frozen=True, slots=True)
class Marker:
    """What a version is. `parent` and `parent_checksum` name the marker before it in the chain."""

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
        }

    @property
    def checksum(self) -> str:
        canonical = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"

    def to_bytes(self, *, created_at: datetime, producer: str) -> bytes:
        document = {
            **self.content(),
            "checksum": self.checksum,
            "created_at": created_at.astimezone(UTC).isoformat(),
            "producer": producer,
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Marker:
        """Read a marker and check its hash; a newer format or a broken one is refused."""
        try:
            marker, checksum = cls._from_document(json.loads(data), uri)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            raise PermanentError(
                "read marker", uri, f"not a marker ({err!r})", "it was not written by Lakemirror"
            ) from err
        if marker.checksum != checksum:
            raise PermanentError(
                "read marker", uri, f"its hash does not fit (want {checksum}, got {marker.checksum})", "it was altered"
            )
        return marker

    @classmethod
    def _from_document(cls, document: dict[str, Any], uri: str) -> tuple[Marker, str]:
        if document["format"] != FORMAT:
            raise PermanentError(
                "read marker", uri, f"format {document['format']} (this version reads {FORMAT})", "upgrade this side"
            )
        fields = {key: value for key, value in document.items() if key in cls.__dataclass_fields__}
        fields["size_bytes"] = document["bytes"]
        fields["version"] = _number(document["version"])
        fields["parent"] = None if document["parent"] is None else _number(document["parent"])
        fields["snapshot_id"] = None if document["snapshot_id"] is None else int(document["snapshot_id"])
        fields["source_committed_at"] = datetime.fromisoformat(document["source_committed_at"])
        for name, kind in _KINDS.items():
            if not isinstance(fields[name], kind) or isinstance(fields[name], bool):
                raise ValueError(f"{name} is {fields[name]!r}")
        return cls(**fields), document["checksum"]


def _number(text: str) -> int:
    if not text.startswith("v"):
        raise ValueError(f"version {text!r} does not start with v")
    return int(text[1:])

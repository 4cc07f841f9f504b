"""The JSON Schema of markers, as it is published in `docs/marker.schema.json` for whoever reads them elsewhere.

It says what Lakemirror writes. Fields that it does not name are allowed: later versions may add some within a format.
"""

from __future__ import annotations

from typing import Any

from lakemirror.model.marker import ENVELOPE, FORMAT, HEAD, HISTORY

Json = dict[str, Any]
_VERSION = r"^v[1-9][0-9]{0,17}$"
_HEX_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_CHECKSUM = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_TIME = {"type": "string", "format": "date-time"}
_URI = {"type": "string", "minLength": 1}
_OPTIONAL = ("demoted", "dropped")


def build_schema() -> Json:
    """JSON Schema, draft 2020-12."""
    properties = {**_content(), **_envelope()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lakemirror marker",
        "description": "`_ready/vN.ready.json`, `_ready/vN.demoted.json` and `_inprogress/vN.marker.json`. The content "
        f"hash is the SHA-256 of all fields but {', '.join(ENVELOPE)}, as JSON with sorted keys, no spaces and "
        "characters as they are, in UTF-8. Fields that are not named here may come with later versions: they are part "
        "of the hash.",
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in _OPTIONAL],
        "additionalProperties": True,
    }


def _content() -> Json:
    return {
        "format": _told("Major format; a reader refuses another one.", {"const": FORMAT}),
        "table": _told("Full name, namespace and table.", {"type": "string", "minLength": 3}),
        "version": _told("The ordinal of the mirror's version.", {"type": "string", "pattern": _VERSION}),
        "epoch": _told("UUID of the source table; a recreated table is another epoch.", {"type": "string"}),
        "kind": _told("`head` moves the table, `history` fills its past and never moves main.", _kinds()),
        "parent": _told("The newest version that was ready before it.", _or_null({"pattern": _VERSION})),
        "parent_checksum": _told("Content hash of the parent's marker.", _or_null(_CHECKSUM)),
        "metadata_uri": _told("The version's metadata file, in the table's folder.", _URI),
        "metadata_sha256": _told("SHA-256 of that file.", _HEX_HASH),
        "manifest_list_uri": _told("Manifest list of the current snapshot; null: the table is empty.", _or_null(_URI)),
        "manifest_count": _told("Manifests of the current snapshot.", _COUNT),
        "index_uri": _told("What the next run needs to know of this version.", _URI),
        "index_sha256": _told("SHA-256 of that file.", _HEX_HASH),
        "closure_digest": _told("Digest of everything that the version needs.", {"type": "string", "minLength": 1}),
        "source_metadata_location": _told("The source's metadata file that was mirrored.", _URI),
        "source_fingerprint": _told("Digest of what a reader can see of the source.", {"type": "string"}),
        "snapshot_id": _told("Current snapshot; null: the table is empty.", _or_null({"pattern": "^-?[0-9]{1,19}$"})),
        "sequence_number": _told("Of the current snapshot.", _COUNT),
        "source_committed_at": _told("When the source was committed.", _TIME),
        "files": _told("Files that this version added.", _COUNT),
        "bytes": _told("Their size.", _COUNT),
        "demoted": _told(
            "Versions that were demoted when it was planned, and that it does not build on; missing: none.",
            {"type": "array", "items": {"type": "string", "pattern": _VERSION}},
        ),
        "dropped": _told(
            "The last version that was dropped when it was planned: its chain begins after it; missing: none.",
            {"type": "string", "pattern": _VERSION},
        ),
    }


def _envelope() -> Json:
    return {
        "checksum": _told("The content hash.", _CHECKSUM),
        "created_at": _told("When it was staged. Outside the hash.", _TIME),
        "producer": _told("Who staged it: host and process. Outside the hash.", {"type": "string"}),
        "fence_token": _told(
            "Token of the lease under which it was staged; null: without a fence. Outside the hash.",
            {"type": ["integer", "null"], "minimum": 1},
        ),
    }


def _told(description: str, schema: Json) -> Json:
    return {"description": description, **schema}


def _or_null(schema: Json) -> Json:
    return {**schema, "type": ["string", "null"]}


def _kinds() -> Json:
    return {"enum": [HEAD, HISTORY]}

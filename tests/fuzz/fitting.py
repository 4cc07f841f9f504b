"""What else an attacker changes: lengths, hashes and checksums that others keep of a file that was made hostile.

Without it nearly every hostile file would be refused at the door, by its length or its hash.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests import avro_bytes

OUTSIDE_HASH = ("checksum", "created_at", "producer")


def fit_source(files: dict[str, bytes], uri: str) -> None:
    """Manifests and lists of these files say how long the file at `uri` is now; what cannot be read stays."""
    for other in sorted(files):
        if other.endswith(".avro") and other != uri and "/metadata/" in other and _fit_lengths(files, other, uri):
            fit_source(files, other)


def _fit_lengths(files: dict[str, bytes], container: str, uri: str) -> bool:
    """Whether a manifest or a list named the file and was changed."""
    try:
        header = avro_bytes.header_of(files[container])
        records = avro_bytes.records(files[container])
    except Exception:  # noqa: BLE001 - whatever is hostile about it, it is left as it is
        return False
    changed = False
    for record in records:
        place = record.get("data_file", record)
        path, size = (
            ("file_path", "file_size_in_bytes") if "file_path" in place else ("manifest_path", "manifest_length")
        )
        if path in place and _plain(place[path]) == _plain(uri) and place[size] != len(files[uri]):
            place[size] = len(files[uri])
            changed = True
    if changed:
        files[container] = avro_bytes.container(json.loads(header["avro.schema"]), [records], codec=None, meta=header)
    return changed


def _plain(uri: Any) -> str:
    return str(uri).replace("file:///", "/").replace("file:/", "/")


def fit_mirror(objects: dict[str, bytes], uri: str, root: str) -> None:
    """Ready markers hold the hash of the file at `uri` and their own checksum."""
    digest = hashlib.sha256(objects[uri]).hexdigest()
    for marker in [one for one in objects if one.startswith(f"{root}/_ready/")]:
        try:
            document = json.loads(objects[marker])
            for name in ("metadata", "index"):
                if document.get(f"{name}_uri") == uri:
                    document[f"{name}_sha256"] = digest
            objects[marker] = with_checksum(document)
        except (ValueError, AttributeError, TypeError, RecursionError):
            continue  # not a marker any more


def with_checksum(document: dict[str, Any]) -> bytes:
    """A marker whose checksum fits, computed as whoever alters it would."""
    content = {key: value for key, value in document.items() if key not in OUTSIDE_HASH}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    document["checksum"] = f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
    return json.dumps(document, ensure_ascii=False).encode()

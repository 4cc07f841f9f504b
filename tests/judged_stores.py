"""The stores that judged tables live in, as the judges reach them: without any code of lakemirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

from dev.services import gcsemu


@dataclass(frozen=True, slots=True)
class GcsStore:
    """The emulator of GCS, which lets everybody in."""

    endpoint: str
    bucket: str = gcsemu.BUCKET

    @property
    def properties(self) -> dict[str, str]:
        """By Iceberg's names."""
        return {"gcs.service.host": self.endpoint, "gcs.no-auth": "true", "gcs.project-id": gcsemu.PROJECT_ID}


def size_in_gcs(store: GcsStore, key: str) -> int | None:
    """None: it is not there."""
    answer = requests.get(f"{store.endpoint}/storage/v1/b/{store.bucket}/o/{quote(key, safe='')}", timeout=30)
    if answer.status_code == requests.codes.not_found:
        return None
    answer.raise_for_status()
    return int(answer.json()["size"])


def size_in_s3(client: Any, bucket: str, key: str) -> int | None:
    """None: it is not there."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", [])
    return next((int(one["Size"]) for one in listed if one["Key"] == key), None)

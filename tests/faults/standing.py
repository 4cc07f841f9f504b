"""What stands in a mirror's bucket, read by code that is not lakemirror's: markers, all that they name, and the head.

For tables that nobody demotes, drops or recreates: their markers are one line without gaps. What was published once is
remembered, so that whatever changes or vanishes later is found.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from dev.services.seaweed import S3Store
from tests.avro_bytes import records
from tests.simulation.reading import View, differences, view

Json = dict[str, Any]
VERSION: Final = "lakemirror.version"
ENVELOPE: Final = ("checksum", "created_at", "producer", "fence_token")  # who wrote a marker and when: not hashed


class Standing:
    """The table whose mirror lies at `home`; `look` reads its bucket and says what is wrong."""

    def __init__(self, store: S3Store, home: str) -> None:
        self.home = home
        self.markers: dict[int, Json] = {}
        self.published: dict[str, bytes] = {}  # all that versions need; never to change again
        self._views: dict[int, View] = {}
        self._shown = 0
        self._objects: dict[str, tuple[str, bytes]] = {}  # by URI: ETag and bytes
        self._bucket, self._client = store.bucket, store.client()
        self._marker = re.compile(re.escape(home) + r"/_ready/v([0-9]+)\.ready\.json")

    @property
    def head(self) -> View:
        """Of the newest version."""
        return self._views[max(self._views)]

    def look(self, shown_uri: str | None) -> None:
        """`shown_uri` is the metadata file that the catalog showed just before; None: it had no such table."""
        objects = self._read()
        other = [uri for uri, data in self.published.items() if objects.get(uri) != data]
        assert other == [], f"published, and not there as it was: {other}"
        found = sorted((int(match[1]), uri) for uri in objects if (match := self._marker.fullmatch(uri)))
        assert [number for number, _ in found] == [*range(1, len(found) + 1)], f"not one line: {found}"
        for number, uri in found[len(self.markers) :]:
            self._appeared(number, uri, objects)
        if shown_uri is not None:
            seen = view(objects, shown_uri, (self.home,))  # with all that it needs
            number = int(seen.properties[VERSION])
            told = f"readers see v{number}, saw v{self._shown}, and v{len(self.markers)} is ready"
            assert self._shown <= number <= len(self.markers), told
            unlike = differences(seen, self._views[number])
            assert unlike == "", f"readers see other {unlike}"
            self._shown = number

    def own(self, number: int) -> set[str]:
        """The objects of which every version has its own, whatever the source's state."""
        marker = self.markers[number]
        return {f"{self.home}/_ready/v{number}.ready.json", marker["metadata_uri"], marker["index_uri"]}

    def _appeared(self, number: int, uri: str, objects: dict[str, bytes]) -> None:
        marker: Json = json.loads(objects[uri])
        content = {key: value for key, value in marker.items() if key not in ENVELOPE}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert marker["checksum"] == f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}", uri
        before = (f"v{number - 1}", self.markers[number - 1]["checksum"]) if number > 1 else (None, None)
        named = (marker["parent"], marker["parent_checksum"])
        assert (marker["version"], *named) == (f"v{number}", *before), f"want {before}, got {named}"
        for what in ("metadata", "index"):
            place = marker[f"{what}_uri"]
            assert place in objects, f"{what} of v{number} is missing"
            assert hashlib.sha256(objects[place]).hexdigest() == marker[f"{what}_sha256"], f"{what} of v{number}"
        seen = view(objects, marker["metadata_uri"], (self.home,))
        assert (seen.properties[VERSION], str(seen.current)) == (str(number), marker["snapshot_id"]), uri
        assert len(records(objects[marker["manifest_list_uri"]])) == marker["manifest_count"], uri
        self.markers[number], self._views[number] = marker, seen
        self.published |= {one: objects[one] for one in {uri, marker["index_uri"], *seen.closure}}

    def _read(self) -> dict[str, bytes]:
        """All objects below the table's folder; what is as it was is not fetched again."""
        now = {}
        prefix = self.home.removeprefix(f"s3://{self._bucket}/") + "/"
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            for one in page.get("Contents", ()):
                uri, tag = f"s3://{self._bucket}/{one['Key']}", one["ETag"]
                known = self._objects.get(uri)
                if known is None or known[0] != tag:
                    known = tag, self._client.get_object(Bucket=self._bucket, Key=one["Key"])["Body"].read()
                now[uri] = known
        self._objects = now
        return {uri: data for uri, (_, data) in now.items()}


def check_same(disturbed: Standing, undisturbed: Standing) -> None:
    """The first version that nobody disturbed has the bytes of the last one that was: of the same state of the source.

    Where they have the same number, in everything but who wrote the marker and when.
    """
    number = len(disturbed.markers)
    assert len(undisturbed.markers) == 1, undisturbed.markers
    same = undisturbed.published.keys() - undisturbed.own(1)
    if number == 1:
        before, after = (_content(one.markers[1]) for one in (disturbed, undisturbed))
        assert before == after, f"want {after}, got {before}"
        same = undisturbed.published.keys() - {f"{undisturbed.home}/_ready/v1.ready.json"}
    assert len(same) > 2, same
    other = [uri for uri in same if disturbed.published.get(uri) != undisturbed.published[uri]]
    assert other == [], f"other bytes than without kills: {other}"
    current = undisturbed.head.current
    assert current is not None
    assert disturbed.head.snapshots[current] == undisturbed.head.snapshots[current], "other files than without kills"


def _content(marker: Json) -> Json:
    return {key: value for key, value in marker.items() if key not in ENVELOPE}

"""The invariants, looked at after every write: each is told with what happened and when.

1. The mirror's head names a metadata file whose whole closure is there, and it is a state that the source had. Nobody
   shows a version that was demoted before he began, and not restored since; nor one that lacks what was known then to
   be lost, unless readers lack it already.
2. A ready marker never changes; all that it names is there when it appears, and stays as it is.
3. An ordinal is used once: whatever becomes of it, no other content ever comes under it.
4. The mirror's head never goes back, nor does the source's state that versions show.
5. Every marker names the one before it; the markers are one line.
6. Tokens of a lease only rise, and do with each who takes it.
7. Nothing is written outside the table's own folder, and nothing at the source.
8. What a run tells of itself is so; whoever demotes leaves no version demoted that readers saw by then.
9. When all is calm, a few rounds bring the mirror to what the source is.
10. What was put on a version after that was demoted is shown to nobody.
11. A group's watermark covers no commit of the source that readers do not see, neither when it is written nor when they
    are shown another version, and goes back only if it says so.
12. Nobody but an operator goes on where somebody else has written to the mirror's catalog, and whoever meets it tells.
13. What is copied or rewritten under a name has the same bytes in every schedule of a story, whatever died on the way.

After `drop-mirror` nobody who begins then shows a version again that was dropped, and it takes away none that was
published since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.simulation.demotions import RESTORER, Begun, Damage, Demotions
from tests.simulation.reading import NotWhole, View, differences, view
from tests.simulation.stories import PLACE, Story

MIRROR = "gs://mirror/lake"
ROOT = f"{MIRROR}/shop/orders"
VERSION = "lakemirror.version"
LEFT_OUT = "lakemirror.unsupported-by-catalog"
_OURS = (f"{ROOT}/", f"{MIRROR}/_tables/", f"{MIRROR}/_groups/")
_MARKER = re.compile(re.escape(ROOT) + r"/_ready/v(\d+)\.(ready|demoted|restored|dropped)\.json")
_LEASES = tuple(f"{ROOT}/_control/{name}.json" for name in ("lease", "swap"))
GROUP = "all"
OPERATORS = ("operator", "last")
_GROUP = f"{MIRROR}/_groups/{GROUP}.json"
Json = dict[str, Any]
_SHOWN: dict[str, Callable[[Json], Any]] = {
    "uuid": lambda metadata: metadata["table-uuid"],
    "current snapshot": lambda metadata: metadata.get("current-snapshot-id"),
    "refs": lambda metadata: {name: one["snapshot-id"] for name, one in metadata["refs"].items()},
    "snapshots": lambda metadata: {one["snapshot-id"]: one["manifest-list"] for one in metadata["snapshots"]},
    "schema": lambda metadata: metadata["current-schema-id"],
    "partition spec": lambda metadata: metadata["default-spec-id"],
    "properties": lambda metadata: metadata["properties"],
}
_VIEWS: dict[bytes, tuple[View, dict[str, bytes]]] = {}
_VIEWS_AT_MOST = 1 << 13
_SOURCES: dict[str, View] = {}
_ALWAYS: dict[tuple[str, str], bytes] = {}  # what every schedule of a story writes under a name
_ALWAYS_AT_MOST = 1 << 14
_MADE_OF_THE_SOURCE = (f"{ROOT}/data/", f"{ROOT}/metadata/")


def parent_of(marker: Json) -> int | None:
    return None if marker["parent"] is None else int(marker["parent"][1:])


def forget() -> None:
    """The code is another one from now on."""
    _ALWAYS.clear()


class Watch:
    """Sees the mirror's bucket and catalog; `violate` is told what must not be."""

    def __init__(self, story: Story, violate: Callable[[str], None]) -> None:
        self.story, self.violate = story, violate
        self.objects: dict[str, bytes] = {}
        self.kept: dict[str, bytes] = {}  # objects that may never change again
        self.markers: dict[int, Json] = {}
        self.demotions, self.damage = Demotions(), Damage()
        self.begun, self.by = Begun(), ""  # of the run that is at work
        self.dropped = 0  # up to this one
        self.stillborn: set[int] = set()  # published when something that they build on was demoted
        self.closures: dict[int, frozenset[str]] = {}
        self.states_so_far = 0
        self.committed_at: list[datetime] = []  # of the states so far, by a clock that is right
        self.clock_error_s = 0.0  # how much more the clocks are wrong than the knob allows
        self.head: int | None = None
        self.head_at = 0
        self.foreign_at: int | None = None  # since when the head is not ours
        self.was_foreign_at = 0
        self.is_foreign_next = False
        self.is_unguarded = False  # a swap or a drop that was sent under the lease and comes after it (docs/STATUS.md)
        self.put_back_at = 0  # when such a swap has last shown an older version
        self.shown: set[int] = set()
        self.group: Json | None = None
        self.leases: dict[str, tuple[int, str]] = {}  # the token of each, and who holds it

    def begin(self) -> Begun:
        """For a run that begins now."""
        return Begun(self.demotions.moment, self.dropped, self.foreign_at is not None)

    def acts(self, name: str, begun: Begun) -> None:
        """Whose request it is that changes something next."""
        self.by, self.begun = name, begun
        self.demotions.moment += 1

    # -------------------------------------------------------------------------------------------------- the bucket

    def before_put(self, uri: str, data: bytes) -> None:
        kept = self.kept.get(uri)
        if kept is not None and kept != data:
            self.violate(f"2: {uri} belongs to a published version and was written again with other bytes")
        if not uri.startswith(_OURS):
            self.violate(f"7: {uri} was written, outside the table's folder")

    def after_put(self, uri: str, data: bytes) -> None:
        if uri.startswith(_MADE_OF_THE_SOURCE):
            self._check_always(uri, data)
        found = _MARKER.fullmatch(uri)
        if found is not None:
            self._marker_written(int(found[1]), found[2], uri, data)
        elif uri in _LEASES:
            self._lease_written(uri, json.loads(data))
        elif uri == _GROUP:
            self._watermark_written(json.loads(data))

    def _check_always(self, uri: str, data: bytes) -> None:
        if len(_ALWAYS) > _ALWAYS_AT_MOST:
            _ALWAYS.clear()
        if _ALWAYS.setdefault((self.story.name, uri), data) != data:
            self.violate(f"13: {uri} was written with other bytes than in another schedule")

    def _lease_written(self, uri: str, lease: Json) -> None:
        token, holder = lease["token"], lease["holder"]
        before, by = self.leases.get(uri, (0, ""))
        if token < before:
            self.violate(f"6: the token of {uri} fell from {before} to {token}")
        elif token == before and holder != by:
            self.violate(f"6: {holder} took {uri} from {by} under the same token {token}")
        self.leases[uri] = token, holder

    def before_delete(self, uri: str) -> None:
        """A ready marker goes only after its bytes were kept as those of a demoted one."""
        found = _MARKER.fullmatch(uri)
        if found is not None and found[2] == "restored":
            self.demotions.demoted(int(found[1]))
        elif found is not None and found[2] == "ready" and self.objects[uri] == self._find(int(found[1]), "demoted"):
            self.demotions.unready[int(found[1])] = self.demotions.moment
            self.kept.pop(uri, None)
        elif uri in self.kept:
            self.violate(f"2: {uri} belongs to a published version and was deleted")

    def _find(self, number: int, kind: str) -> bytes | None:
        return self.objects.get(f"{ROOT}/_ready/v{number}.{kind}.json")

    def is_live(self, number: int) -> bool:
        """Published and not dropped, and neither demoted now nor built on one that is."""
        return number > self.dropped and self._stands(number)

    def _stands(self, number: int) -> bool:
        data, record = self._find(number, "ready"), self._find(number, "demoted")
        if data is None or (record is not None and (record != data or self._find(number, "restored") is None)):
            return False
        parent = parent_of(self.markers[number])
        return parent is None or self._stands(parent)

    # ------------------------------------------------------------------------------------------------------ damage

    def lacks(self, number: int) -> bool:
        """Whether something of what this version needs was lost and is not back."""
        return self.damage.lacks(self.closures.get(number, frozenset()), self.objects)

    def _builds_on_damage(self, marker: Json) -> bool:
        parent = parent_of(marker)
        return parent is not None and (self.lacks(parent) or self._builds_on_damage(self.markers[parent]))

    def _marker_written(self, number: int, kind: str, uri: str, data: bytes) -> None:
        if kind == "demoted":
            if data != self._find(number, "ready"):
                self.violate(f"3: v{number} was demoted with other bytes than were ready")
            self.demotions.demoted(number)
            if self.by == RESTORER:
                self.damage.notice(self.objects, self.demotions.moment)
            self.kept[uri] = data
        elif kind == "restored":
            self._is_back(number)
        elif kind == "dropped":
            self.dropped = max(self.dropped, number)
            self.kept[uri] = data
        elif number not in self.demotions.ever:
            self._published(number, json.loads(data), uri, data)
        elif data == self._find(number, "demoted"):
            self.kept[uri] = data
            if self._find(number, "restored") is not None:
                self._is_back(number)
        elif self.demotions.is_known(number, self.begun):
            self.violate(f"3: v{number} was demoted, and taken again by a run that began after that")
        # what a run that came late leaves there does not count, and nobody may tell that it does

    def _is_back(self, number: int) -> None:
        if self._find(number, "ready") == self._find(number, "demoted"):
            self.demotions.restored(number, self.by)
            self.stillborn = {one for one in self.stillborn if not self._stands(one)}

    def _published(self, number: int, marker: Json, uri: str, data: bytes) -> None:
        if number in self.markers:
            self.violate(f"3: v{number} was used before")
        newest = max(self.markers, default=0)
        if number != newest + 1:
            self.violate(f"3: v{number} was published after v{newest}")
        self._check_parent(number, marker)
        state = self.state_of(marker)
        before = max((self.state_of(one) for one in self.markers.values()), default=-1)
        if state < before:
            self.violate(f"4: v{number} shows state {state} of the source, an earlier version showed {before}")
        self.markers[number] = marker
        parent = parent_of(marker)
        if parent is not None and not self._stands(parent):
            self.stillborn.add(number)
        try:
            closure = self._whole(marker, number, self.objects)
        except NotWhole as err:
            if self._builds_on_damage(marker):
                self.closures[number] = self._whole_once(marker, number)
            else:
                self.violate(f"2: v{number} is ready but not whole: {err}")
            return
        self.closures[number] = frozenset(closure)
        self.kept |= closure
        self.kept[uri] = data

    def _check_parent(self, number: int, marker: Json) -> None:
        """The one before it, or one before those that were demoted or dropped."""
        parent = parent_of(marker) or 0
        skipped = [one for one in range(max(parent, self.dropped) + 1, number) if one not in self.demotions.ever]
        if parent >= number or skipped:
            self.violate(f"5: v{number} names v{parent} as its parent, though there is {skipped}")
        elif parent and marker["parent_checksum"] != self.markers[parent]["checksum"]:
            self.violate(f"5: v{number} names another v{parent} than was published")

    def state_of(self, marker: Json) -> int:
        """Which of the story's states a version shows."""
        for place, state in enumerate(self.story.states[: self.states_so_far]):
            if state.pointer == marker["source_metadata_location"]:
                return place
        self.violate(f"1: {marker['version']} shows {marker['source_metadata_location']}, which was never committed")
        return -1

    def _whole_once(self, marker: Json, number: int) -> frozenset[str]:
        """What a version needs that builds on damage: it lacks what was lost, and nothing else."""
        try:
            return frozenset(self._whole(marker, number, {**self.damage.lost, **self.objects}))
        except NotWhole as err:
            self.violate(f"2: v{number} lacks more than was lost: {err}")
            return frozenset()

    def _whole(self, marker: Json, number: int, objects: Mapping[str, bytes]) -> dict[str, bytes]:
        """Everything that the version needs, among these; it is what the source had."""
        metadata_uri = marker["metadata_uri"]
        data = objects.get(metadata_uri)
        if data is None or hashlib.sha256(data).hexdigest() != marker["metadata_sha256"]:
            raise NotWhole(f"{metadata_uri} is missing or is another")
        index = objects.get(marker["index_uri"])
        if index is None or hashlib.sha256(index).hexdigest() != marker["index_sha256"]:
            raise NotWhole(f"{marker['index_uri']} is missing or is another")
        known = _VIEWS.get(data)
        if known is None or any(objects.get(uri) != what for uri, what in known[1].items()):
            found = view(objects, metadata_uri, (ROOT,))
            known = found, {uri: objects[uri] for uri in found.closure}
            if len(_VIEWS) >= _VIEWS_AT_MOST:
                _VIEWS.clear()
            _VIEWS[data] = known
        self._compare(known[0], self.source_view(marker["source_metadata_location"]), number)
        return {**known[1], marker["index_uri"]: index}

    def source_view(self, pointer: str) -> View:
        found = _SOURCES.get(pointer)
        if found is None:
            place = f"file://{PLACE}/{self.story.name}"
            found = _SOURCES[pointer] = view(self.story.archive, pointer, (place,))
        return found

    def _compare(self, got: View, want: View, number: int) -> None:
        if got.properties.get(VERSION) != str(number):
            raise NotWhole(f"its metadata says version {got.properties.get(VERSION)}")
        problem = differences(got, want)
        if problem:
            raise NotWhole(f"it differs from the source in {problem}")

    # -------------------------------------------------------------------------------------------------- the catalog

    def head_gone(self) -> None:
        if not self.dropped:
            self.violate("4: the table is gone from the mirror, and was not dropped")
        if not self.is_unguarded and self.foreign_at is None:
            if self.head is not None and self.is_live(self.head):
                self.violate(f"4: v{self.head} is gone from the mirror, and was published after the drop")
            if self.group is not None and any(self.group["tables"].values()):
                self.violate(f"11: the table is gone from the mirror, and the watermark is {self.group['watermark']}")
        if self._is_foreign_to(self.begun) and self.by not in OPERATORS:
            self.violate(f"12: {self.by} dropped what somebody else had committed before it began")
        self.head = self.foreign_at = None

    def head_moved(self, metadata: Json, metadata_uri: str | None) -> None:
        """The mirror catalog shows another head; a catalog of pointers names our own file."""
        if self.is_foreign_next:
            self.foreign_at = self.was_foreign_at = self.demotions.moment
            self.is_foreign_next = False
            return
        if self._is_foreign_to(self.begun) and self.by not in OPERATORS:
            self.violate(f"12: {self.by} went over what somebody else had committed before it began")
        self.foreign_at = None
        claimed = (metadata.get("properties") or {}).get(VERSION, "")
        if not claimed.isdecimal() or int(claimed) not in self.markers:
            self.violate(f"1: the mirror's head claims version {claimed!r}, which was never ready")
            return
        number = int(claimed)
        marker = self.markers[number]
        if metadata_uri is not None and metadata_uri != marker["metadata_uri"]:
            self.violate(f"1: the mirror's head is {metadata_uri}, v{number} is {marker['metadata_uri']}")
        self._check_shown(number)
        if not self.is_unguarded:
            self._check_not_back(number)
        elif self.head is not None and number < self.head:
            self.put_back_at = self.demotions.moment
        self.head, self.head_at = number, self.demotions.moment
        self.shown.add(number)

    def _check_not_back(self, number: int) -> None:
        if self.head is not None and number < self.head:
            self.violate(f"4: the mirror's head went back from v{self.head} to v{number}")
        if self.group is not None and self.group["watermark"] is not None:
            self._check_covered(number, self.group["watermark"])

    def _check_shown(self, number: int) -> None:
        """Whoever shows it could have known by when he began that it is not to be shown."""
        if number <= self.begun.dropped:
            self.violate(f"4: v{number} was dropped, and is shown again")
        if number in self.stillborn:
            self.violate(f"10: readers see v{number}, which was published on a version that was demoted before")
        for one in self.line(number):
            if self.demotions.is_known(one, self.begun):
                self.violate(f"1: readers see v{number}, and v{one} of its line was demoted before {self.by} began")
        seen = self.closures.get(self.head or 0, frozenset())
        lost = self.damage.known_before(self.closures.get(number, frozenset()) - seen, self.objects, self.begun)
        if lost is not None:
            self.violate(f"1: readers see v{number} without {lost}, which was known to be lost before {self.by} began")

    def line(self, number: int) -> list[int]:
        """It and all that it builds on."""
        found = [number]
        while (parent := parent_of(self.markers[found[-1]])) is not None:
            found.append(parent)
        return found

    def check_demoted(self, number: int) -> None:
        """Whoever demoted this version has just told that it is done."""
        unready = self.demotions.unready.get(number)
        is_seen = self.head is not None and self.head >= number and number in self.demotions.since
        if unready is not None and is_seen and self.head_at < unready:
            self.violate(f"8: v{number} was demoted and is left so, though readers saw v{self.head} by then")

    def _is_foreign_to(self, begun: Begun) -> bool:
        return self.foreign_at is not None and self.foreign_at < begun.moment

    def check_told(self, name: str, begun: Begun) -> None:
        """A follower ended well."""
        if self._is_foreign_to(begun) and name not in OPERATORS:
            self.violate(f"12: {name} did not tell that somebody else had written to the mirror's catalog")

    def head_shown(self, metadata: Json) -> None:
        """The mirror catalog keeps metadata itself: what it shows must be the version that it claims to be."""
        is_foreign = self.is_foreign_next
        self.head_moved(metadata, None)
        if self.head is None or is_foreign:
            return
        want = json.loads(self.objects[self.markers[self.head]["metadata_uri"]])
        late = (metadata.get("properties") or {}).get(LEFT_OUT)
        if late is not None:  # what this catalog could not take, and says so
            gone = {int(number) for number in json.loads(late)}
            want["properties"][LEFT_OUT] = late
            want["snapshots"] = [one for one in want["snapshots"] if one["snapshot-id"] not in gone]
            want["refs"] = {name: one for name, one in want["refs"].items() if one["snapshot-id"] not in gone}
        wrong = [name for name, facts in _SHOWN.items() if facts(want) != facts(metadata)]
        if wrong and self.was_foreign_at > self.begun.moment:
            self.foreign_at = self.was_foreign_at  # a mixture: no requirement names what somebody else changed
        elif wrong:
            self.violate(f"1: the mirror's head claims to be v{self.head}, but its {', '.join(wrong)} are others")

    # ----------------------------------------------------------------------------------------------------- the group

    def _watermark_written(self, document: Json) -> None:
        """Its only table is ours; it is announced before it is a member."""
        entry = next(iter(document["tables"].values()), None)
        before, self.group = self.group, document
        is_told = before is None or document["moves_back"] != before["moves_back"]
        if entry is None:  # the mirror was dropped
            if before is not None and before["watermark"] is not None and not is_told:
                self.violate("11: the watermark was taken away, and the document does not say so")
            return
        if entry["version"] not in self.shown:
            self.violate(f"11: the group tells of v{entry['version']}, which was never shown")
            return
        through = self._check_covered(entry["version"], document["watermark"])
        was = None if before is None else before["watermark"]
        if was is not None and not is_told and through < datetime.fromisoformat(was):
            self.violate(f"11: the watermark went back from {was} to {through}, and does not say so")

    def _check_covered(self, number: int, watermark: str) -> datetime:
        """Whoever sees this version lacks nothing up to the watermark."""
        through = datetime.fromisoformat(watermark)
        until = self._covered_until(self.state_of(self.markers[number]))
        if until is not None and (through - until).total_seconds() > self.clock_error_s:
            self.violate(f"11: the watermark is {through}, and v{number} lacks what was committed at {until}")
        return through

    def _covered_until(self, state: int) -> datetime | None:
        """When the source left for good what a version of this state shows, as far as it has come; None: it has not.

        It may have gone through other states and come back: readers then see all that there is.
        """
        last = max(place for place in range(state, self.states_so_far) if not self._is_other(state, place))
        return None if last + 1 == self.states_so_far else self.committed_at[last + 1]

    def _is_other(self, state: int, later: int) -> bool:
        """Whether a reader could tell these states of the source apart."""
        pointers = [self.story.states[place].pointer for place in (state, later)]
        if pointers[0] is None or pointers[1] is None:
            return pointers[0] != pointers[1]
        one, other = self.source_view(pointers[0]), self.source_view(pointers[1])
        return one.properties != other.properties or differences(one, other) != ""

    # ------------------------------------------------------------------------------------------------------ at the end

    def behind(self, pointer: str | None) -> str:
        """What is missing when everybody has had time enough; empty: the mirror is what the source is."""
        newest = max((one for one in self.markers if self.is_live(one)), default=None)
        if newest is None:
            return "nothing is published"
        if self.foreign_at is not None:
            return "the mirror's head is somebody else's"
        if self.head is None or self.head < newest:
            return f"the mirror's head is v{self.head}, the newest version is v{newest}"
        if pointer is None:
            return ""
        marker = self.markers[self.head]
        try:
            self._whole(marker, self.head, self.objects)
        except NotWhole as err:
            return f"v{self.head} is not whole: {err}"
        got, want = _VIEWS[self.objects[marker["metadata_uri"]]][0], self.source_view(pointer)
        problem = differences(got, want)
        return f"v{self.head} is not what the source is: {problem}" if problem else ""

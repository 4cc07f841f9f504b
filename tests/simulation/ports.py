"""What the real application is given: stores and catalogs whose every request is one of the actor that makes it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import yaml
from greenlet import getcurrent

from lakemirror.app import App
from lakemirror.config.loader import load_config
from lakemirror.config.models import Config
from lakemirror.errors import LakemirrorError
from lakemirror.model.table import TableRef
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.wires.local import LocalWire
from lakemirror.storage.wires.shelves import MemoryShelf
from lakemirror.storage.wrappers.retry import RetryingStore
from tests.simulation import strangers
from tests.simulation.bucket import Bucket, Face
from tests.simulation.database import Database, SqlFace
from tests.simulation.demotions import Begun
from tests.simulation.remembered import Memory, Stages
from tests.simulation.rest import PATH, RestServer, rest_face
from tests.simulation.stories import Story
from tests.simulation.watch import MIRROR, ROOT, Watch
from tests.simulation.world import START, Actor, Request, World

TABLE = TableRef.parse("shop.orders")
LEASE_S, SKEW_S = 30, 3
_NOTHING = Begun()
_SWAP_LEASE = f"{ROOT}/_control/swap.json"
SwapLease = tuple[int, str]  # under which token, by whom


@dataclass(frozen=True)
class Sent:
    """What was so when a request was sent that may compare nothing.

    `lease` is that of swaps if its process had it, live by its clock. `updated` counts what the catalog had taken from
    whoever had no lease, or had it no more: by the last look at the head, if nothing was asked since.
    """

    lease: SwapLease | None
    updated: int


_TAKEN = 200
_BUCKET_VERBS = frozenset(("get", "put", "head", "list", "delete"))
KNOBS = {
    "max_concurrency": 1,
    "copy_attempts": 1,
    "lease_seconds": LEASE_S,
    "clock_skew_seconds": SKEW_S,
}


class Places:
    """Source and mirror as they are: buckets and catalogs, and what a request does to them."""

    def __init__(self, story: Story, world: World, *, swaps: bool, fence: bool) -> None:
        self.story, self.world, self._fence = story, world, fence
        self.watch = Watch(story, world.violate)
        self.source, self.mirror = Bucket(), Bucket(self.watch)
        self.watch.objects = world.objects = self.mirror.objects
        self.pointer: str | None = None
        self.updated = 0  # how often a REST catalog has taken something from somebody who had no lease (any more)
        self._apps: dict[Actor, App] = {}
        self.database = Database(self._pointer_moved)
        self.server = RestServer(lambda uri: parsed(self.mirror.objects[uri]), self._head_shown, swaps=swaps)

    def close(self) -> None:
        """At the end nothing is left that knows who knows it, so that all goes when nobody looks at it any more."""
        del self.database, self.server
        for actor in [*self._apps]:
            self.shut(actor)

    def open(self, actor: Actor, app: App) -> App:
        """What its actor had before is over."""
        self.shut(actor)
        self._apps[actor] = app
        return app

    def shut(self, actor: Actor) -> None:
        app = self._apps.pop(actor, None)
        if app is not None:
            app._opened = None

    def commit_at_source(self, place: int) -> None:
        state = self.story.states[place]
        self.source.objects = {uri: self.story.archive[uri] for uri in state.files}
        self.pointer = state.pointer
        self.watch.states_so_far = place + 1
        self.watch.committed_at.append(START + timedelta(seconds=self.world.time))

    def request(self, request: Request) -> Any:
        """Of whoever is at work: an actor, or the thread beside it that keeps its lease."""
        actor: Actor = getcurrent().actor
        begun = actor.facts.get("begun", _NOTHING)
        sent = Sent(self._swap_lease_of(actor), actor.facts.pop("looked", self.updated))
        return self.world.request(actor, request, lambda: self._effect(actor, request, begun, sent))

    def _effect(self, actor: Actor, request: Request, begun: Begun, sent: Sent) -> Any:
        """It may come late, when whoever asked for it is busy with something else, or dead.

        A whole swap and a drop compare nothing (docs/STATUS.md): they are excused if the lease that they were `sent`
        under has ended since; a drop, if there is no fence; a swap, if a commit by updates, which needs no lease, or a
        swap that came too late, was taken after the last look, which came right before.
        """
        verb = request[0]
        self.watch.acts(actor.name, begun)
        if verb in _BUCKET_VERBS:
            bucket = self.mirror if request[2] == "mirror" else self.source
            if verb == "get":
                return bucket.get(request[1], request[3], request[4])
            if verb in ("put", "delete") and bucket is self.source:
                self.world.violate(f"7: {actor.name} wrote {request[1]} at the source")
            if verb == "put":
                written = bucket.put(request[1], request[3], request[4])
                if request[1] == _SWAP_LEASE:
                    actor.facts["swap lease"] = request[3]
                return written
            if verb == "delete":
                bucket.delete([request[1]])
                self.world.deleted(request[1])
                return None
            return bucket.head(request[1]) if verb == "head" else bucket.list(request[1])
        if verb == "head of":
            return self.pointer
        if verb in ("select", "commit"):
            return self.database.execute(request[1], dict(request[2]))
        if verb in ("GET", "POST", "DELETE"):
            is_over = sent.lease is not None and not self._is_held(sent.lease, actor)
            if _is_swap(request):
                self.watch.is_unguarded = is_over or (sent.lease is not None and self.updated > sent.updated)
            elif verb == "DELETE":
                self.watch.is_unguarded = is_over or not self._fence
            try:
                found = self.server.answer(verb, request[1], request[2])
            finally:
                self.watch.is_unguarded = False
            is_of_table = request[1].endswith(PATH)
            is_commit = verb == "POST" and (is_of_table or _is_swap(request))
            self.updated += is_commit and found[0] == _TAKEN and (is_over or sent.lease is None)
            if verb == "GET" and is_of_table:
                actor.facts["looked"] = self.updated
            return found
        assert verb == "sleep"
        return None

    def _swap_lease_of(self, actor: Actor) -> SwapLease | None:
        """The lease of swaps that this very process has written last, if it is live by its own clock."""
        data = actor.facts.get("swap lease")
        found = None if data is None else self._live(data, actor)
        return found if found is not None and found[1].startswith(f"{actor.name}:{actor.life}.{actor.apps}:") else None

    def _is_held(self, lease: SwapLease, actor: Actor) -> bool:
        """Whether it is this very one still, and live by the clock of whoever took it: a later one is another."""
        return self._live(self.mirror.objects.get(_SWAP_LEASE, b"{}"), actor) == lease

    def _live(self, data: bytes, actor: Actor) -> SwapLease | None:
        """Its token and its holder, unless it was given back or has ended by the actor's clock."""
        lease = parsed(data)
        if not lease or lease["released"] or datetime.fromisoformat(lease["expires_at"]) <= actor.now():
            return None
        return lease["token"], lease["holder"]

    def commit_by_stranger(self, *, rest: bool) -> None:
        self.watch.acts(strangers.NAME, Begun())
        if rest:
            strangers.commit_by_updates(self.server, self.watch)
        else:
            strangers.commit_by_pointer(self.database, self.mirror.objects, self.watch)

    def _pointer_moved(self, uri: str | None) -> None:
        if uri is None:
            self.watch.head_gone()
        else:
            self.watch.head_moved(parsed(self.mirror.objects.get(uri, b"{}")), uri)

    def _head_shown(self, metadata: dict[str, Any] | None) -> None:
        if metadata is None:
            self.watch.head_gone()
        else:
            self.watch.head_shown(metadata)


def _is_swap(request: Request) -> bool:
    return request[0] == "POST" and b'"overwrite"' in request[2]


class SourceFace:
    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def head(self, table: TableRef) -> str | None:
        found: str | None = self._stages.perform(("head of", str(table)))
        return found

    def tables(self) -> tuple[TableRef, ...]:
        return (TABLE,)

    def file_io(self) -> Mapping[str, str]:
        return {}


def app_of(
    actor: Actor, places: Places, memory: Memory, *, fence: bool, rest: bool, owner: str, group: str | None = None
) -> App:
    """The application as a new process would have it; `owner` is the run that it belongs to."""
    if actor.stages is None:
        actor.stages = Stages(memory, actor, places.request)
        actor.facts["ports"] = _ports_of(actor.stages)
    stages = actor.stages
    app = places.open(actor, App(config(fence, group), now=actor.now, timer=_no_time, owner=owner))
    app._ports.__dict__.update(
        actor.facts["ports"],
        mirror_catalog=rest_face(stages, places.world, app._swapping) if rest else SqlFace(stages.perform),
    )
    return app


def _ports_of(stages: Stages) -> dict[str, Any]:
    """What knows nothing of earlier requests: the same for all processes that an actor is, one after the other."""
    source, mirror = (Face(side, stages.perform) for side in ("source", "mirror"))

    def sleep(seconds: float) -> None:
        stages.perform(("sleep", seconds))

    return {
        "source_catalog": SourceFace(stages),
        "source_store": RetryingStore(source, attempts=2, sleep=sleep, random=_longest),
        "mirror_store": RetryingStore(mirror, attempts=2, sleep=sleep, random=_longest),
        "source_wire": partial(_wire, source),
        "mirror_wire": partial(_wire, mirror),
        "is_one_store": False,
    }


def _wire(face: Face) -> LocalWire:
    return LocalWire(face, MemoryShelf(MemoryBuckets()), in_threads=False)


def _no_time() -> float:
    return 0.0


def _longest() -> float:
    return 1.0


def key_of(request: Request, answer: Any) -> Hashable:
    """What of an answer decides how a stage goes on.

    Markers are told apart by what their hash covers, unless one was demoted under this ordinal: then bytes count. It
    also counts whether they are what the last listing showed.
    """
    if isinstance(answer, LakemirrorError):
        return type(answer).__name__
    verb = request[0]
    if verb == "get":
        uri, actor = request[1], getcurrent().actor
        if not uri.endswith(".ready.json"):
            return str(answer.info.e_tag)
        is_as_listed = actor.facts.get("listed", {}).get(uri) == answer.info.e_tag
        if uri.replace(".ready.", ".demoted.") in actor.world.objects:
            return str(answer.info.e_tag), is_as_listed
        start = answer.data.find(b'"checksum": "sha256:')
        return bytes(answer.data[start : start + 90] if start >= 0 else answer.data), is_as_listed
    if verb == "list":
        if request[1].endswith("/_ready/"):
            getcurrent().actor.facts["listed"] = {one.uri: one.e_tag for one in answer}
            return tuple(one.uri for one in answer)
        return tuple((one.uri, one.e_tag) for one in answer)
    if verb == "head":
        return str(answer.e_tag)
    return str(answer) if verb == "head of" else None


@lru_cache(maxsize=1 << 12)
def parsed(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    return found


@lru_cache(maxsize=4)
def config(fence: bool, group: str | None) -> Config:
    catalogs = {side: {"name": side, "type": "sql", "uri": "sqlite:///none.db"} for side in ("source", "mirror")}
    document = {
        "source": {"catalog": catalogs["source"]},
        "mirror": {"catalog": catalogs["mirror"], "location": MIRROR},
        "defaults": {**KNOBS, "fence": fence, "group": group},
        "tables": [{"name": str(TABLE)}],
    }
    with tempfile.TemporaryDirectory(prefix="lakemirror-simulation-") as folder:
        path = Path(folder, "lake.yaml")
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_config(path)

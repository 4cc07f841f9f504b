"""One schedule: who takes part, what they do, and what must hold at the end.

Replicators run the whole real way of a commit, in one process or as single tasks like those of a scheduler, which may
also run one of them twice. Followers run the real follower. All of them use the real application over faces of the
simulated buckets and catalogs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakemirror import bridge
from lakemirror.app import App
from lakemirror.errors import LakemirrorError, LostRaceError, PermanentError, TransientError
from lakemirror.follow.follower import head_of
from lakemirror.model.layout import TableLayout
from lakemirror.model.results import MirrorResult
from lakemirror.replicate.stage import LocalEngine
from tests.simulation import stories, strangers
from tests.simulation.choices import Choices
from tests.simulation.demotions import Begun
from tests.simulation.ports import LEASE_S, SKEW_S, TABLE, Places, app_of, key_of
from tests.simulation.remembered import Memory
from tests.simulation.watch import GROUP, MIRROR
from tests.simulation.world import About, Actor, Violation, World

RUNS = 3
POLL_S = 5.0
STEPS_AT_MOST = 20_000
CALM_ROUNDS = 4
MEMORY = Memory(key_of)


@dataclass(frozen=True)
class Settings:
    """What is not left to chance."""

    fence: bool = True
    rest: bool = False  # the mirror's catalog is a REST server, not a table of pointers
    swaps: bool = False  # one that can swap a head as a whole
    about: About | None = None  # None: drawn
    reconciled: bool = False  # somebody demotes and restores in any case
    grouped: bool = False  # the table belongs to a group in any case
    stories: tuple[str, ...] = ()  # one of these; none: any
    begun: bool = False  # the mirror shows the first state before anything else happens
    meddled: bool = False  # somebody else writes to the mirror in any case
    dropped: bool = False  # somebody drops the mirror in any case


def settings_of(seed: int) -> Settings:
    """Every second schedule has no fence, every fourth a REST catalog; of those with the fence half can swap a head."""
    return Settings(fence=seed % 2 == 0, rest=seed % 8 in (3, 6), swaps=seed % 16 == 6)


KINDS: dict[str, Callable[[int], Settings]] = {
    "": settings_of,
    "markers": lambda seed: Settings(fence=seed % 2 == 0, about="markers", reconciled=True),
    "pointers": lambda seed: Settings(fence=seed % 2 == 0, about="commits"),
    "groups": lambda seed: Settings(
        fence=seed % 2 == 0, grouped=True, stories=("undone", "undone", "properties"), begun=True
    ),
    "announced": lambda seed: Settings(
        fence=seed % 2 == 0, grouped=True, stories=("undone",), begun=True, about="watermarks"
    ),
    "guards": lambda seed: Settings(
        fence=seed % 2 == 0, rest=True, about="commits", stories=("painted", "properties", "evolved"), begun=True
    ),
    "undone": lambda seed: Settings(
        fence=seed % 2 == 0, about="markers", reconciled=True, meddled=True, stories=("undone",), begun=True
    ),
    "dropped": lambda seed: Settings(
        fence=seed % 2 == 0, rest=True, about="commits", stories=("painted", "properties"), begun=True, dropped=True
    ),
    "swaps": lambda seed: Settings(rest=True, swaps=True, about="commits", stories=("remade",), begun=True),
    "throttled": lambda seed: Settings(
        rest=True, swaps=True, about="throttling", stories=("remade",), begun=True, dropped=seed % 2 == 0
    ),
    "updates": lambda seed: Settings(fence=seed % 2 == 0, rest=True, swaps=seed % 4 == 0, about="commits"),
}


@dataclass
class Scene:
    choices: Choices
    settings: Settings = field(default_factory=Settings)
    memory: Memory = field(default_factory=lambda: MEMORY)

    def __post_init__(self) -> None:
        self.is_whole = False  # it ran to its end, and readers saw something
        self.world = World(self.choices, self.settings.about)
        every = stories.FOR_REST if self.settings.rest and not self.settings.swaps else stories.NAMES
        names = self.settings.stories or every
        self.story = stories.story(names[self.choices.of(len(names))])
        self.places = Places(self.story, self.world, swaps=self.settings.swaps, fence=self.settings.fence)
        self.watch = self.places.watch
        self.places.commit_at_source(0)
        self.group = GROUP if self.settings.grouped or self.choices.of(4) == 3 else None

    def run(self) -> str | None:
        """The violation, if there is one."""
        world = self.world
        if self.settings.begun:
            self._add("beginner", self._begin)
            world.run(STEPS_AT_MOST)
        self._add("writer", self._write)
        self._add("replicator 1", self._replicate)
        second = (self._replicate, self._replicate_by_tasks)[self.choices.of(2)]
        self._add("replicator 2", self._replicate_slowly if self.settings.grouped else second)
        self._add("follower 1", self._follow)
        self._add("follower 2", self._follow)
        if self.settings.reconciled or self.choices.of(2 if world.weather.about == "markers" else 3) == 1:
            self._add("reconciler", self._reconcile)
        if self.settings.dropped or self.choices.of(6) == 5:
            self._add("dropper", self._drop)
        if self.settings.meddled or self.choices.of(8) == 7:
            self._add(strangers.NAME, self._meddle)
            self._add("operator", self._find_a_way_out)
        world.run(STEPS_AT_MOST)
        if world.violation is None:
            world.calm_down()
            self._add("last", self._finish)
            world.run(STEPS_AT_MOST)
        world.end()
        self.places.close()
        self.is_whole = world.violation is None and bool(self.watch.shown)
        return world.violation

    def _add(self, name: str, work: Callable[[Actor], None], starts: int = 6) -> None:
        # what a clock is wrong beyond the knob is allowed for in watermarks: that hides most of what is wrong in them
        skew_s = (0.0, 2.0, -2.0, 0.0 if self.settings.grouped else 40.0)[self.choices.of(4)]
        self.watch.clock_error_s = max(self.watch.clock_error_s, skew_s - SKEW_S)
        self.world.actors.append(Actor(name, self.world, work, skew_s, starts, wakes_at=self.world.time))

    # ------------------------------------------------------------------------------------------------------ the actors

    def _write(self, actor: Actor) -> None:
        """The source goes on, whatever the mirror does."""
        for place in range(1, len(self.story.states)):
            actor.sleep((0.0, 1.0, 10.0)[self.choices.of(3)])
            self.world.request(actor, ("commit source", place), lambda place=place: self.places.commit_at_source(place))

    def _begin(self, actor: Actor) -> None:
        self._told(actor, "mirror", lambda: self._app(actor).mirror(TABLE, engine=LocalEngine(1)))
        self._told(actor, "follow", lambda: self._app(actor).follow(TABLE))

    def _replicate(self, actor: Actor) -> None:
        while self._goes_on(actor):
            self._told(actor, "mirror", lambda: self._app(actor).mirror(TABLE, engine=LocalEngine(1)))

    def _replicate_slowly(self, actor: Actor) -> None:
        """The source goes on between what it has found and what it does about it."""
        while self._goes_on(actor):
            self._told(actor, "mirror", lambda: self._slowly(actor))

    def _slowly(self, actor: Actor) -> MirrorResult:
        app = self._app(actor)
        detected = app.detect(TABLE)
        actor.sleep(POLL_S * self.choices.of(8))
        return app.mirror(TABLE, detected=detected, engine=LocalEngine(1))

    def _replicate_by_tasks(self, actor: Actor) -> None:
        while self._goes_on(actor):
            self._told(actor, "mirror by tasks", lambda: self._tasks(actor))

    def _tasks(self, actor: Actor) -> MirrorResult | None:
        """Each stage in a process of its own; one may run twice, as a task that was cleared does.

        Or twice at once: the scheduler took it for dead, and the one that is left and its next try have one owner.
        """
        engine, owner = LocalEngine(1), f"{actor.name} run {actor.facts['runs']}"
        detected = self._app(actor, owner).detect(TABLE)
        if detected.lane == "none":
            return None
        again = self.choices.of(9)
        source_name = str(detected.source_name)
        stages: tuple[Callable[[App, str], Any], ...] = (
            lambda app, plan: app.plan_diff(TABLE, plan, source_name, engine),
            lambda app, plan: app.copy_objects(TABLE, plan, engine),
            lambda app, plan: app.rewrite_metadata(TABLE, plan, engine),
            lambda app, plan: app.publish(TABLE, plan),
        )
        plan_uri, begun = str(detected.plan_uri), actor.facts["begun"]
        for place, stage in enumerate(stages, 1):
            if again == place + len(stages):
                self._add(
                    f"{owner} twin", lambda me, at=plan_uri, stage=stage: self._twin(me, owner, stage, at, begun), 1
                )
            for _ in range(2 if again == place else 1):
                result = stage(self._app(actor, owner), plan_uri)
            plan_uri = str(getattr(result, "plan_uri", plan_uri))
        return result  # type: ignore[no-any-return]

    def _twin(self, actor: Actor, owner: str, stage: Callable[[App, str], Any], plan_uri: str, begun: Begun) -> None:
        def run() -> MirrorResult | None:
            result = stage(self._app(actor, owner), plan_uri)
            return result if isinstance(result, MirrorResult) else None

        self._told(actor, "mirror, one task of it", run, begun)  # what it knows is what its run has found

    def _follow(self, actor: Actor) -> None:
        while self._goes_on(actor):
            self._told(actor, "follow", lambda: self._app(actor).follow(TABLE))

    def _reconcile(self, actor: Actor) -> None:
        """Takes versions back and gives them again, for no reason or because of damage: it must be safe for any."""
        while self._goes_on(actor):
            self._told(actor, "reconcile", lambda: self._demote_or_restore(actor))

    def _demote_or_restore(self, actor: Actor) -> None:
        app = self._app(actor)
        layout = TableLayout.of(MIRROR, TABLE)
        found = bridge.published(app.mirror_store, layout)
        gone = [version for version in sorted(found.gone) if not self.watch.lacks(version)]
        if gone and self.choices.of(2):
            bridge.restore(app.mirror_store, layout, gone[self.choices.of(len(gone))])
        elif found.ready:
            version = found.ready[-1 - self.choices.of(min(2, len(found.ready)))]
            is_seen = version <= (self.watch.head or 0)
            has_always_counted = self.watch.demotions.ever.isdisjoint(self.watch.line(version))
            if not is_seen and has_always_counted and self.choices.of(2) and version > self.watch.dropped:
                self._damage(actor, version)
            self.watch.damage.reason = version
            try:
                bridge.demote(app.mirror_store, layout, version, lambda: _shown(app, layout))
            except (LostRaceError, PermanentError):  # readers see it: what it lacks is copied in place
                self.watch.damage.heal(self.world.objects, self.watch.closures.get(version, frozenset()))
                raise
            self.watch.check_demoted(version)

    def _meddle(self, actor: Actor) -> None:
        """Somebody else commits to the mirror's catalog."""
        for _ in range(1 + self.choices.of(2)):
            actor.sleep(POLL_S * self.choices.of(8))
            self.world.request(
                actor,
                ("commit source", "by a stranger"),
                lambda: self.places.commit_by_stranger(rest=self.settings.rest),
            )

    def _find_a_way_out(self, actor: Actor) -> None:
        """An operator who was told of it says what is to become of it."""
        while self._goes_on(actor):
            actor.sleep(POLL_S * self.choices.of(4))
            way = strangers.WAYS_OUT[self.choices.of(len(strangers.WAYS_OUT))]
            if way:
                self._told(actor, "follow", lambda way=way: self._app(actor).follow(TABLE, **way))
            elif self.watch.foreign_at is not None:
                self._told(actor, "drop mirror", lambda: self._app(actor).drop_mirror(TABLE, overwrite_foreign=True))

    def _drop(self, actor: Actor) -> None:
        """An operator takes the table out of the mirror; it comes back with the next version."""
        actor.sleep(POLL_S * self.choices.of(8))
        self._told(actor, "drop mirror", lambda: self._app(actor).drop_mirror(TABLE))

    def _damage(self, actor: Actor, version: int) -> None:
        """Something of a version that nobody sees yet is lost.

        Never of one that was demoted or dropped before, or builds on one that was demoted: a run that does not build on
        it may have found its files there and looked at them. What is lost after that look is lost to every version, and
        no protocol can help it.
        """
        lost = self.watch.damage.lose(version, self.watch.closures, self.world.objects, self.choices.of)
        self.world.note(actor.name, ("lost", lost), f"of v{version}")

    def _finish(self, actor: Actor) -> None:
        """When nothing goes wrong any more, a few rounds bring the mirror to what the source is."""
        self.watch.damage.heal(self.world.objects)
        for _ in range(CALM_ROUNDS):
            actor.sleep(LEASE_S + SKEW_S + 100.0)  # what others held has expired, also if their clock was wrong
            self._told(actor, "mirror", lambda: self._app(actor).mirror(TABLE, engine=LocalEngine(1)))
            self._told(actor, "follow", lambda: self._follow_at_last(actor))
            if not self.watch.behind(self.places.pointer):
                return
        raise Violation(f"9: after {CALM_ROUNDS} calm rounds {self.watch.behind(self.places.pointer)}")

    def _follow_at_last(self, actor: Actor) -> Any:
        """Where no updates lead on from what somebody else has appended, the operator does what the error says."""
        try:
            return self._app(actor).follow(TABLE, overwrite_foreign=self.watch.foreign_at is not None)
        except PermanentError as err:
            if not self._is_late(err):
                raise
            self._app(actor).drop_mirror(TABLE, overwrite_foreign=True)
            return None

    def _goes_on(self, actor: Actor) -> bool:
        """Counted over all lives of the actor."""
        done = actor.facts["runs"] = actor.facts.get("runs", 0) + 1
        if done > RUNS:
            return False
        actor.sleep(POLL_S * self.choices.of(3))
        return True

    def _app(self, actor: Actor, owner: str | None = None) -> App:
        actor.apps += 1
        name = actor.new_name()
        settings = self.settings
        return app_of(
            actor,
            self.places,
            self.memory,
            fence=settings.fence,
            rest=settings.rest,
            owner=owner or name,
            group=self.group,
        )

    # ----------------------------------------------------------------------------------------------- what they tell

    def _told(self, actor: Actor, what: str, run: Callable[[], Any], begun: Begun | None = None) -> None:
        """A run may fail for a passing reason; nothing here gives it any other."""
        world = self.world
        world.note(actor.name, ("begins", what), "")
        actor.facts["begun"] = begun or self.watch.begin()
        try:
            result = run()
        except TransientError as err:
            world.note(actor.name, ("ends", what), f"{type(err).__name__}: {err}")
            return
        except LakemirrorError as err:
            is_true = err.subject in self.watch.damage.lost or (err.op == "detect" and self._was_dropped())
            is_true = is_true or (err.op == "follow" and self._was_put_back(actor))
            if err.op in ("demote", "restore") or is_true or self._is_late(err) or self._was_foreign(actor, err):
                world.note(actor.name, ("ends", what), f"{type(err).__name__}: {err}")
                return
            raise Violation(f"8: {actor.name} gave a false alarm: {type(err).__name__}: {err}") from err
        version = getattr(result, "version", None)
        world.note(actor.name, ("ends", what), "" if version is None else f"v{version}")
        if what == "follow":
            self.watch.check_told(actor.name, actor.facts["begun"])
        if version is not None and what != "drop mirror":
            self._check_result(actor, what, result, version)

    def _was_put_back(self, actor: Actor) -> bool:
        """A whole swap that nobody expected any more has shown an older version while the run was at work."""
        begun: Begun = actor.facts["begun"]
        return self.watch.put_back_at > begun.moment

    def _was_dropped(self) -> bool:
        """Before anything of it was mirrored a dropped table is one that does not exist."""
        return any(state.pointer is None for state in self.story.states[: self.watch.states_so_far])

    def _was_foreign(self, actor: Actor, err: LakemirrorError) -> bool:
        """Somebody else had written to the catalog when the run began, or did so while it was at work."""
        begun: Begun = actor.facts["begun"]
        is_told = err.op in ("follow", "drop mirror", "commit")
        return is_told and (begun.is_foreign or self.watch.was_foreign_at > begun.moment)

    def _is_late(self, err: LakemirrorError) -> bool:
        """No REST commit can add a snapshot that the catalog never had and that is older than its last.

        That is the source's own after a rollback, or any after somebody else has appended one.
        """
        may_be = self.story.name == "rollback" or self.watch.was_foreign_at > 0
        return self.settings.rest and err.op == "commit" and may_be and "sequence number" in err.message

    def _check_result(self, actor: Actor, what: str, result: Any, version: int) -> None:
        marker = self.watch.markers.get(version)
        if marker is None:
            raise Violation(f"8: {actor.name} told of v{version}, which is not ready")
        if marker["snapshot_id"] != (None if result.snapshot_id is None else str(result.snapshot_id)):
            raise Violation(f"8: {actor.name} told that v{version} is snapshot {result.snapshot_id}")
        begun: Begun = actor.facts["begun"]
        line = [one for one in self.watch.line(version) if version > self.watch.dropped]
        if any(self.watch.demotions.is_known(one, begun) for one in line) and not _warns(result):
            told = f"8: {actor.name} told of v{version}, which was demoted before it began, or something of its line"
            raise Violation(f"{told}, without a word of it")
        if isinstance(result, MirrorResult) and line and version in self.watch.stillborn:
            raise Violation(f"8: {actor.name} told of v{version}, which it put on a version that was demoted by then")
        is_behind = not self.watch.dropped and (self.watch.head or 0) < version
        if what == "follow" and is_behind and not self._was_put_back(actor):
            raise Violation(f"8: {actor.name} told that the mirror shows v{version}, it shows v{self.watch.head}")


def _shown(app: App, layout: TableLayout) -> int | None:
    """What whoever demotes asks for; it stops where that cannot be told."""
    head = head_of(app._ports.mirror_catalog, app.mirror_store, layout, TABLE)
    if head is not None and head.version is None:
        raise PermanentError("demote", str(TABLE), "the mirror's head is foreign", "see who writes to it")
    return None if head is None else head.version


def _warns(result: Any) -> bool:
    return any("demoted" in one for one in getattr(result, "warnings", ()))

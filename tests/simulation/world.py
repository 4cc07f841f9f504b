"""The simulated world: two buckets, two catalogs, a clock, and actors that take turns at every request that they make.

Actors are greenlets of one thread that run the real code. Whenever one asks anything of a bucket or a catalog it stops,
and the scheduler decides who goes on, what goes wrong with that request, and how much time passes. Stores and catalogs
are strongly consistent, as S3, GCS and the catalogs promise to be: no request is ever answered with an old state.

What can go wrong with a request:

| fault | the actor sees | the effect |
|---|---|---|
| crash, crash after | it dies, as by kill -9, and later starts anew | none, all of it |
| fail, fail after | TransientError: nobody knows what became of it | none, all of it |
| late, crash late | as with fail and crash | all of it, some steps later, whatever has happened by then |
| throttle | ThrottledError | none |
| pause | nothing; it goes on when all its leases have expired, a little or long ago | later |

A schedule may have a subject, what it is `about`, that this befalls above all, however few faults there are else:

| about | what befalls it |
|---|---|
| markers | whoever is about to put or read a ready marker sleeps, or its put is late, perhaps until one is deleted |
| commits | writes to the mirror's catalog get no answer: they are lost, done, or late |
| watermarks | whoever is about to read or write a group's document, or to write to the mirror's catalog, sleeps |
| throttling | a REST catalog wants to be asked again later; whoever has looked at its head, or writes to it, sleeps |
"""

from __future__ import annotations

import asyncio.events
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from greenlet import getcurrent, greenlet

from lakemirror.errors import LakemirrorError, TransientError
from lakemirror.storage.port import ThrottledError
from tests.simulation.choices import Choices

START = datetime(2027, 1, 1, tzinfo=UTC)  # after all that the stories tell of
STEP_S = 0.05
FAULTS = ("crash", "crash after", "fail", "fail after", "throttle", "pause", "late", "crash late")
LATE_STEPS = (3, 20, 100, 400)
WHEN_GONE = 1 << 40  # in place of a step: when what is there under its name was deleted, or when all calms down
PAUSES_S = (40.0, 10_000.0)
About = Literal["", "markers", "commits", "watermarks", "throttling"]
ABOUT: tuple[About, ...] = ("", "", "", "commits", "markers", "markers")  # as often as this
SLEEPY = ("pause", "late", "crash late")
SILENT = ("fail", "fail after", "late")
PUT_OFF = ("throttle", "throttle", "throttle", "pause")
WRITES = frozenset(("put", "delete", "commit", "POST", "DELETE"))
_IS_DECIDED = True  # told to the hub by whoever has chosen who is next
_SILENCE = "simulated: no answer"
Request = tuple[Any, ...]  # verb, subject, …


def _is_ready_marker(request: Request) -> bool:
    return request[0] in ("put", "get") and request[1].endswith(".ready.json")


def _is_group_document(request: Request) -> bool:
    return request[0] in ("put", "get") and "/_groups/" in request[1]


class Killed(BaseException):
    """The actor's process is gone. Nothing that it still tries has any effect."""


class Violation(Exception):
    """What must never happen has happened."""


@dataclass(frozen=True)
class Weather:
    """How a schedule is: drawn once, at its beginning."""

    switch: float
    fault: float
    write_fault: float
    faults_at_most: int
    jump: float
    about: About


def weather(choices: Choices, about: About | None = None) -> Weather:
    """`about` is drawn like all else, unless it is given."""
    switch = (0.02, 0.05, 0.15, 0.4)[choices.of(4)]
    fault = (0.0, 0.005, 0.02, 0.05)[choices.of(4)]
    write_fault = (0.0, 0.02, 0.1)[choices.of(3)]
    most, jump = (0, 1, 2, 4, 8)[choices.of(5)], (0.0, 0.01, 0.05)[choices.of(3)]
    return Weather(switch, fault, write_fault, most, jump, ABOUT[choices.of(len(ABOUT))] if about is None else about)


@dataclass(eq=False)
class Actor:
    """A process that is started again when it dies. `work` is what it does from start to end."""

    name: str
    world: World
    work: Callable[[Actor], None]
    skew_s: float = 0.0
    starts_left: int = 6
    wakes_at: float = 0.0
    is_dead: bool = False
    is_done: bool = False
    pending: Request = ("start", "")
    owns: greenlet | None = None
    life: int = 0
    names: int = 0
    apps: int = 0  # processes that it was, one after the other, in all its lives
    process: Actor | None = None  # of a thread: the actor that it lives and dies with
    stages: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.world.time + self.skew_s)

    def new_name(self) -> str:
        """One that no process ever had."""
        self.names += 1
        return f"{self.name}:{self.life}.{self.apps}:{self.names}"

    def sleep(self, seconds: float) -> None:
        self.world.request(self, ("sleep", seconds), lambda: None)

    def start(self) -> None:
        life = self.life = self.life + 1
        self.starts_left -= 1
        self.is_dead = False
        self.pending = ("start", "")

        def live() -> None:
            try:
                self.work(self)
                self.is_done = True
            except Killed:
                pass
            except Violation as err:
                self.world.violate(str(err))
            except Exception as err:  # noqa: BLE001 - any other error of the real code is a finding
                self.world.violate(f"{self.name} broke: {err!r}\n{''.join(traceback.format_exception(err)[-6:])}")
            finally:
                if life == self.life:
                    self.owns = None

        self.owns = greenlet(live, parent=self.world.hub)
        self.owns.actor = self  # what runs in it finds its actor by this


class World:
    """Runs one schedule to its end or to the first violation. What is in it is set up by `scene`."""

    def __init__(self, choices: Choices, about: About | None = None) -> None:
        self.choices = choices
        self.weather = weather(choices, about)
        self.hub = getcurrent()
        self.actors: list[Actor] = []
        self.current: Actor | None = None  # whose turn it is
        self.fault: str | None = None  # what its request meets
        self.time = 0.0
        self.steps = self.last_step = 0
        self.faults = 0
        self.is_calm = False
        self.is_one_machine = choices.of(2) == 1
        self.violation: str | None = None
        self.trace: list[tuple[Any, ...]] = []
        self.objects: dict[str, bytes] = {}  # of the mirror's bucket
        self.late: list[
            tuple[int, str, Request, Callable[[], Any]]
        ] = []  # on their way, with the step of their arrival

    # ------------------------------------------------------------------------------------------------ for the actors

    def request(self, actor: Actor, request: Request, effect: Callable[[], Any]) -> Any:
        """Everything that an actor asks for comes through here. Whose turn is next is decided at once, in its place."""
        if actor.is_dead or self.violation is not None:
            raise Killed
        actor.pending = request
        if request[0] == "sleep":
            actor.wakes_at = self.time + request[1]
        turn = self._turn()
        if turn is not actor:
            self._wait(turn)
        if actor.is_dead:
            raise Killed
        return self._answer(actor, request, effect, self.fault)

    def _wait(self, turn: Actor | None) -> None:
        """Until it is the turn of whoever is here now; the hub begins lives, and ends the run."""
        loop = asyncio.events._get_running_loop()
        if loop is not None:  # another actor's loop must neither meet this one nor close its generators
            asyncio.events._set_running_loop(None)
            hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(None, None)
        if turn is None or turn.owns is None:
            self.hub.switch(_IS_DECIDED)
        else:
            turn.owns.switch()
        if loop is not None:
            asyncio.events._set_running_loop(loop)
            sys.set_asyncgen_hooks(*hooks)

    def _answer(self, actor: Actor, request: Request, effect: Callable[[], Any], fault: str | None) -> Any:
        if fault in ("late", "crash late"):
            if request[0] in WRITES:
                self.late.append((self._arrival(request), actor.name, request, effect))
            fault = "crash" if fault == "crash late" else "fail"
        if fault == "crash":
            self._die(actor, fault)
        if fault == "fail" or fault == "throttle":
            self.note(actor.name, request, fault)
            kind, what = (TransientError, _SILENCE) if fault == "fail" else (ThrottledError, "simulated: throttled")
            raise kind(request[0], str(request[1]), what, "run again")
        try:
            found = effect()
        except LakemirrorError as err:
            self.note(actor.name, request, type(err).__name__)
            if self.violation is not None:
                raise Killed from err
            if fault == "crash after":
                self._die(actor, fault)
            raise
        self.note(actor.name, request, fault or "")
        if self.violation is not None:
            raise Killed
        if fault == "crash after":
            self._die(actor, fault)
        if fault == "fail after":
            raise TransientError(request[0], str(request[1]), _SILENCE, "run again")
        return found

    def _arrival(self, request: Request) -> int:
        """The step at which a write that is late takes effect."""
        is_subject = self.weather.about == "markers" and _is_ready_marker(request)
        chosen = self.choices.of(len(LATE_STEPS) + 2 * is_subject)
        return self.steps + LATE_STEPS[chosen] if chosen < len(LATE_STEPS) else WHEN_GONE

    def deleted(self, uri: str) -> None:
        """An object of the mirror's bucket: what waited for that is there at once."""
        for place, one in enumerate(self.late):
            if one[0] == WHEN_GONE and one[2][1] == uri:
                self.late[place] = (self.steps, *one[1:])

    def _die(self, actor: Actor, how: str) -> None:
        self.note(actor.name, actor.pending, how)
        process = actor.process or actor
        for one in self.actors:
            if one is process or one.process is process:
                one.is_dead = True
        raise Killed

    def note(self, *what: Any) -> None:
        self.trace.append((self.steps, self.time, *what))

    def violate(self, what: str) -> None:
        if self.violation is None:
            self.violation = what

    def has_ended(self, name: str) -> bool:
        """Whether a process of this machine is no more; of others nothing is known."""
        actor_name, _, rest = name.partition(":")
        found = next((one for one in self.actors if one.name == actor_name), None)
        if found is None or not self.is_one_machine:
            return False
        return found.is_dead or found.is_done or rest.partition(":")[0] != f"{found.life}.{found.apps}"

    # --------------------------------------------------------------------------------------------------- the scheduler

    def run(self, steps_at_most: int) -> None:
        """Until all actors are done, or have died for good."""
        self.current = None
        self.last_step = self.steps + steps_at_most
        turn = self._turn()
        while turn is not None:
            if turn.owns is None:
                turn.start()
            assert turn.owns is not None
            if turn.owns.switch() is _IS_DECIDED:
                turn = self.current
            else:  # the life of whoever had the last turn is over
                self._bury()
                turn = self._turn()

    def _turn(self) -> Actor | None:
        """Decides who goes on, and what goes wrong with what it asked for; None: nobody does."""
        while self.violation is None and self.steps < self.last_step:
            if self.late:
                self._arrive(self.steps)
            current = self.current = self._next(self.current)
            if current is None:
                return None
            self.steps += 1
            self.time += STEP_S
            self.fault = None
            if self.is_calm or current.owns is None:
                return current
            self.fault = self._fault(current)
            if self.fault != "pause":
                return current
            self._pause(current)
        if self.violation is None:
            self.violate(f"not done after {self.steps} steps")
        self.current = None
        return None

    def _arrive(self, step: int) -> None:
        """What is due by this step takes effect. Nobody hears what came of it."""
        due = [one for one in self.late if one[0] <= step]
        self.late = [one for one in self.late if one[0] > step]
        for _, name, request, effect in due:
            try:
                effect()
            except LakemirrorError as err:
                self.note(name, request, f"comes late: {type(err).__name__}")
            else:
                self.note(name, request, "comes late")

    def calm_down(self) -> None:
        """From now on nothing goes wrong any more, and nothing is on its way."""
        self._arrive(WHEN_GONE)
        self.is_calm = True

    def _next(self, current: Actor | None) -> Actor | None:
        choices, time = self.choices, self.time
        ready = [one for one in self.actors if one.wakes_at <= time and not one.is_done]
        if not ready:
            waiting = [one for one in self.actors if not one.is_done]
            if not waiting:
                return None
            self.time = min(one.wakes_at for one in waiting)
            ready = [one for one in waiting if one.wakes_at <= self.time]
        if len(ready) == 1:
            return ready[0]
        if current in ready and not choices.happens(self.weather.switch):
            return current
        return ready[choices.of(len(ready))]

    def _bury(self) -> None:
        """It starts again in a second, if it may."""
        actor = self.current
        if actor is not None and actor.owns is None and not actor.is_done:
            actor.wakes_at = self.time + 1.0
            actor.is_done = actor.starts_left <= 0 or actor.process is not None

    def _pause(self, actor: Actor) -> None:
        """All of its process stands still, beyond any lease."""
        process = actor.process or actor
        until = self.time + PAUSES_S[self.choices.of(len(PAUSES_S))]
        for one in self.actors:
            if one is process or one.process is process:
                one.wakes_at = max(one.wakes_at, until)

    def _fault(self, actor: Actor) -> str | None:
        weather, choices = self.weather, self.choices
        verb = actor.pending[0]
        if weather.about:
            fault = self._befallen(weather.about, actor.pending)
            if fault is not None:
                self.faults += 1
                self.note(actor.name, actor.pending, f"meets {fault}")
                return fault
        if self.faults >= weather.faults_at_most or verb in ("sleep", "commit source"):
            return None
        if weather.jump and choices.happens(weather.jump):
            self.time += (1.0, 20.0, 90.0)[choices.of(3)]
        probability = weather.write_fault if verb in WRITES else weather.fault
        if not probability or not choices.happens(probability):
            return None
        self.faults += 1
        fault = FAULTS[choices.of(len(FAULTS))]
        self.note(actor.name, actor.pending, f"meets {fault}")
        return fault

    def _befallen(self, about: About, request: Request) -> str | None:
        verb, choices = request[0], self.choices
        if about == "commits":
            is_met = verb in ("commit", "POST", "DELETE") and choices.happens(0.4)
            return SILENT[choices.of(len(SILENT))] if is_met else None
        if about == "watermarks":
            is_subject = verb in ("commit", "POST", "DELETE") or _is_group_document(request)
            return "pause" if is_subject and choices.happens(0.2) else None
        if about == "throttling":
            if verb == "GET":
                return "pause" if choices.happens(0.1) else None
            return PUT_OFF[choices.of(len(PUT_OFF))] if verb in ("POST", "DELETE") and choices.happens(0.4) else None
        if not _is_ready_marker(request):
            return None
        if verb == "get":
            return "pause" if choices.happens(0.15) else None
        return SLEEPY[choices.of(len(SLEEPY))] if choices.happens(0.4) else None

    def end(self) -> None:
        """Nobody does anything any more."""
        for actor in [*self.actors]:
            actor.is_dead = True
            if actor.owns is not None and actor.owns:
                actor.owns.throw(Killed)
            actor.owns = actor.stages = None
            actor.facts.clear()
        self.actors.clear()  # they know the world: without them it goes when nobody looks at it any more
        self.late.clear()

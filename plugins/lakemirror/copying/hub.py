"""The hub: a small server beside the driver that gives all tasks of a run their turns on one line.

Every task asks it for bytes and requests before it uses them, so the rates hold for all of them together, whoever
works and whoever waits. A task that cannot reach it keeps to an equal share of the rates instead. To hold the sum even
if some reach it and others do not, the hub gives out the shares of those tasks that it has heard of, and the whole only
when it has heard of all that are left.

Who has reached it once asks nobody else: if the line to it breaks, the task calls again, and does nothing meanwhile. So
does a later attempt at a task, whose first one may still be at work. A task has one share, however often it is begun.

Lines of text over TCP. Each side proves that it knows the run's secret; nothing else is answered.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, cast

from lakemirror.copying.pace import LEASE_S, Rates, Timeline
from lakemirror.errors import TransientError

CONNECT_S: Final = 5.0
ANSWER_S: Final = 10.0
REDIAL_S: Final = 1.0
REJOIN_S: Final = 60.0
"""So long a task calls again that has lost the hub, or that needs it."""
LEAST_SHARE: Final = 0.1
"""Of the rates, for attempts whose first one was never heard of, and may be at work with the share of its task."""
MAX_LINE_BYTES: Final = 4096
FIRST, REPEATED = "first", "repeated"
_LOST = (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError)


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where the hub is, the secret that opens it, and the step of the run that whoever calls is at work on."""

    host: str
    port: int
    secret: bytes = field(repr=False)
    step: int = 0


class Ledger:
    """Who has come, what is left, and when the next bytes and requests may go.

    `attempts`: how many at one task may be at work at once.
    """

    def __init__(self, rates: Rates, tasks: int, processes: int, attempts: int, clock: Callable[[], float]) -> None:
        self._rates, self._clock = rates, clock
        self._tasks, self._processes, self._attempts = tasks, processes, attempts
        self._step = 0
        self._heard: set[str] = set()
        self._done: set[str] = set()
        self._here: dict[object, int] = {}
        self._bytes, self._requests = Timeline(), Timeline()
        self.files = self.size_bytes = 0

    def expect(self, step: int, tasks: int) -> None:
        """Another step begins, with so many tasks; what those of the step before say of themselves counts no more."""
        self._step, self._tasks = step, tasks
        self._heard.clear()
        self._done.clear()

    def joined(self, who: object, task: str, step: int, how: str) -> None:
        """By its first attempt, or by one after it; again if it lost the line."""
        self._here[who] = step
        if step == self._step and (how == FIRST or self._attempts == 1):
            self._heard.add(task)

    def left(self, who: object) -> None:
        self._here.pop(who, None)

    def finished(self, who: object, task: str) -> None:
        if self._here.get(who) == self._step and task in self._heard:
            self._done.add(task)

    @property
    def share(self) -> float:
        """The part of the rates that nobody takes who was not heard of."""
        working = max(1, min(self._processes, self._tasks - len(self._done)))
        return min(1.0, max(LEAST_SHARE, len(self._heard - self._done) / working))

    def lease(self, size_bytes: int, requests: int) -> float:
        """Seconds to wait for these bytes and requests."""
        now, share, wait_s = self._clock(), self.share, 0.0
        if self._rates.bytes_per_s is not None:
            wait_s = self._bytes.reserve(size_bytes, self._rates.bytes_per_s * share, now)
        if self._rates.requests_per_s is not None:
            wait_s = max(wait_s, self._requests.reserve(requests, self._rates.requests_per_s * share, now))
        return wait_s

    def give_back(self, size_bytes: int, requests: int) -> None:
        if self._rates.bytes_per_s is not None:
            self._bytes.give_back(size_bytes, self._rates.bytes_per_s)
        if self._rates.requests_per_s is not None:
            self._requests.give_back(requests, self._rates.requests_per_s)


class Hub:
    """`with Hub(…) as address:` serves from a thread of its own until the block ends.

    `place` is where it listens and the name by which it is called; without one there is no hub.
    """

    def __init__(
        self,
        place: tuple[str, str] | None,
        rates: Rates,
        tasks: int,
        processes: int,
        attempts: int = 1,
        *,
        on_progress: Callable[[int, int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._secret = secrets.token_bytes(32)
        self.ledger = Ledger(rates, tasks, processes, attempts, clock)
        self._on_progress = on_progress
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="lakemirror-hub", daemon=True)
        self._ready = threading.Event()
        self._port: int | None = None
        self._address: HubAddress | None = None
        self._stop: asyncio.Event | None = None
        self._talking: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def __enter__(self) -> HubAddress | None:
        """None if there is no place to listen: then everybody keeps to a share."""
        if self._place is None:
            return None
        self._thread.start()
        self._ready.wait(CONNECT_S)
        if self._port is not None:
            self._address = HubAddress(self._place[1], self._port, self._secret)
        return self._address

    def expect(self, tasks: int) -> HubAddress | None:
        """Another step of the run begins, with so many tasks, which call this address."""
        if self._address is None or self._loop is None:
            return None
        self._address = replace(self._address, step=self._address.step + 1)
        self._loop.call_soon_threadsafe(self.ledger.expect, self._address.step, tasks)
        return self._address

    def __exit__(self, *_: object) -> None:
        if self._stop is not None and self._loop is not None and self._port is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._place is not None:
            self._thread.join(CONNECT_S)

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._listen(self._place[0] if self._place else ""))
            finally:
                self._ready.set()

    async def _listen(self, host: str) -> None:
        self._stop = asyncio.Event()
        try:
            server = await asyncio.start_server(self._talk, host, 0, limit=MAX_LINE_BYTES)
        except OSError:
            return
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for writer in self._talking.values():
            writer.transport.abort()
        if self._talking:
            await asyncio.wait(self._talking, timeout=CONNECT_S)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast(asyncio.Task[None], asyncio.current_task())
        self._talking[task] = writer
        try:
            with suppress(*_LOST):
                await _prove(reader, writer, self._secret, is_server=True)
                while line := await reader.readline():
                    answer = self._answer(task, line.decode().rstrip("\n").split("\t"))
                    if answer is not None:
                        writer.write(f"{answer!r}\n".encode())
        finally:
            self.ledger.left(task)
            writer.transport.abort()
            del self._talking[task]

    def _answer(self, who: object, words: list[str]) -> float | None:
        match words:
            case ["join", task, step, how]:
                self.ledger.joined(who, task, _count(step), how)
            case ["lease", size_bytes, requests]:
                return self.ledger.lease(_count(size_bytes), _count(requests))
            case ["back", size_bytes, requests]:
                self.ledger.give_back(_count(size_bytes), _count(requests))
            case ["tell", files, size_bytes]:
                self.ledger.files += _count(files)
                self.ledger.size_bytes += _count(size_bytes)
                if self._on_progress is not None:
                    self._on_progress(self.ledger.files, self.ledger.size_bytes)
            case ["done", task]:
                self.ledger.finished(who, task)
            case _:
                raise ValueError("not a word of ours")
        return None


class HubPace:
    """The pace of a task, asked of the hub in small leases."""

    def __init__(
        self,
        hub: HubAddress,
        line: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        rates: Rates,
        task: str,
        how: str = FIRST,
    ) -> None:
        self._hub, self._rates, self._task, self._how = hub, rates, task, how
        self._reader, self._writer = line
        self._turn = asyncio.Lock()
        self._bytes = self._requests = 0
        self._asked: deque[tuple[int, int]] = deque()  # leases whose answer has not come
        self._is_lost = False

    @classmethod
    async def join(
        cls, hub: HubAddress, rates: Rates, task: str, how: str = FIRST, *, patience_s: float = 0.0
    ) -> HubPace | None:
        """None if it cannot be reached, though it was called again and again for so many seconds."""
        line = await _reach(hub, task, how, patience_s)
        return None if line is None else cls(hub, line, rates, task, how)

    async def take(self, size_bytes: int, requests: int = 1) -> None:
        """Of what has a rate; what has none is not asked for."""
        if self._rates.bytes_per_s is None:
            size_bytes = 0
        if self._rates.requests_per_s is None:
            requests = 0
        if not size_bytes and not requests:
            return  # whoever has the turn may be waiting for his bytes
        async with self._turn:
            if size_bytes > self._bytes or requests > self._requests:
                await self._lease(size_bytes - self._bytes, requests - self._requests)
            self._bytes -= size_bytes
            self._requests -= requests

    async def _lease(self, size_bytes: int, requests: int) -> None:
        """TransientError if the hub is lost and does not come back; from then on nothing more is taken."""
        more_bytes = max(size_bytes, int((self._rates.bytes_per_s or 0) * LEASE_S)) if size_bytes > 0 else 0
        more = max(requests, int((self._rates.requests_per_s or 0) * LEASE_S), 1) if requests > 0 else 0
        clock, until = asyncio.get_running_loop().time, None
        while self._is_lost or (wait_s := await self._ask(more_bytes, more)) is None:
            until = until or clock() + REJOIN_S
            if self._is_lost or not await self._is_back(until - clock()):
                self._is_lost = True
                raise unreachable(self._hub, "it was lost, and with it what keeps to the limits of all tasks together")
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._give_back()
                raise

    async def _ask(self, more_bytes: int, more: int) -> float | None:
        """Seconds to wait for so much more; None if the hub is lost."""
        self._asked.append((more_bytes, more))
        try:
            async with asyncio.timeout(ANSWER_S):
                self._say("lease", more_bytes, more)
                return await self._last_answer()
        except _LOST:
            return None

    async def _is_back(self, patience_s: float) -> bool:
        """On another line, in place of the one that broke."""
        self._writer.transport.abort()
        self._asked.clear()
        line = None if patience_s <= 0 else await _reach(self._hub, self._task, self._how, patience_s)
        if line is not None:
            self._reader, self._writer = line
        return line is not None

    async def _last_answer(self) -> float:
        """Seconds until all that was asked for may go; one who asked before may not have waited for his answer."""
        wait_s = 0.0
        while self._asked:
            wait_s = float(await self._reader.readuntil())
            more_bytes, more = self._asked.popleft()
            self._bytes += more_bytes
            self._requests += more
        return wait_s

    def _give_back(self) -> None:
        """All that was leased and not used; if the hub is lost, it is lost."""
        asked_bytes, asked = (sum(one[at] for one in self._asked) for at in (0, 1))
        back_bytes, back = max(0, self._bytes) + asked_bytes, max(0, self._requests) + asked
        with suppress(*_LOST):
            self._say("back", back_bytes, back)
        self._bytes = self._requests = 0

    def tell(self, files: int, size_bytes: int) -> None:
        with suppress(*_LOST):
            self._say("tell", files, size_bytes)

    async def leave(self, *, is_done: bool = False) -> None:
        with suppress(*_LOST):
            if not self._is_lost:
                if self._rates.is_limited:
                    self._give_back()
                if is_done:
                    self._say("done", self._task)
                async with asyncio.timeout(CONNECT_S):
                    await self._writer.drain()
        self._is_lost = True
        self._writer.close()

    def _say(self, *words: object) -> None:
        _say(self._writer, *words)


def _say(writer: asyncio.StreamWriter, *words: object) -> None:
    _write(writer, ("\t".join(map(str, words)) + "\n").encode())


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """An error of `_LOST` if the other side has hung up: asyncio would say nothing, and uvloop something else."""
    if writer.transport.is_closing():
        raise ConnectionResetError("the other side has hung up")
    try:
        writer.write(data)
    except RuntimeError as err:
        raise ConnectionResetError("the other side has hung up") from err


def unreachable(hub: HubAddress, why: str) -> TransientError:
    return TransientError(
        "copy", f"{hub.host}:{hub.port}", why, "run again; see to it that executors reach the ports of Spark's driver"
    )


async def _reach(
    hub: HubAddress, task: str, how: str, patience_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A line on which the task has said who it is; None if nobody answered for so long, who knows the secret."""
    clock = asyncio.get_running_loop().time
    until = clock() + patience_s
    while True:
        try:
            return await _dial(hub, task, how)
        except _LOST:
            if clock() >= until:
                return None
        await asyncio.sleep(REDIAL_S)


async def _dial(hub: HubAddress, task: str, how: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(hub.host, hub.port, limit=MAX_LINE_BYTES)
    try:
        await _prove(reader, writer, hub.secret, is_server=False)
        _say(writer, "join", task, hub.step, how)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _prove(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, *, is_server: bool) -> None:
    """Both sides send a number and sign the other's; ValueError if the other one cannot."""
    own, other = (b"server", b"client") if is_server else (b"client", b"server")
    number = secrets.token_bytes(16)
    _write(writer, number)
    theirs = await asyncio.wait_for(reader.readexactly(16), CONNECT_S)
    _write(writer, hmac.digest(secret, own + theirs, "sha256"))
    answer = await asyncio.wait_for(reader.readexactly(32), CONNECT_S)
    if not hmac.compare_digest(answer, hmac.digest(secret, other + number, "sha256")):
        raise ValueError("it does not know the secret of this run")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("not a number")
    return int(text)

"""kill -9 of `lakemirror sync` before and after each write to real servers: the mirror is old or new, and a run ends.

The process is killed by the proxy through which it speaks to the mirror's store and catalog: just before the server
hears of a request, or when the server has done what it was asked and before anybody is told. After each kill, and after
the run that comes next, all that is ready is whole, and as it was when it appeared.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import yaml
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from dev.services import Services
from dev.services.cleaning import clean, remove_below
from tests.e2e.processes import until
from tests.faults.rules import Kill, Rule
from tests.faults.scene import NAME, TABLE, FaultyLake, Row, faulty_lake
from tests.faults.standing import Standing, check_same

pytestmark = [pytest.mark.integration, pytest.mark.waits, pytest.mark.timeout(600)]
LEASE_S = 3  # what a killed run held is free again after that
WRITES = ("PUT", "POST", "DELETE")
SIDES = ("mirror store", "mirror catalog")
START = multiprocessing.get_context("forkserver")
# what decides who works, what is ready and what readers see; other objects are the same whoever writes them again
DECISIVE = re.compile(r"/_control/lease\.json|/_ready/v\d+\.ready\.json|/v1/namespaces")


@dataclass(frozen=True)
class Write:
    """One request of a run: its server, its method, and which of that method it is there."""

    side: str
    method: str
    nth: int
    target: str

    @property
    def is_decisive(self) -> bool:
        return self.method == "DELETE" or DECISIVE.search(self.target) is not None


def sync(config: str, log: str) -> None:
    """What `bin/lakemirror --json sync` does, in a process that has imported it already."""
    from lakemirror.cli.__main__ import main

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["lakemirror", "--config", config, "--json", "sync", NAME]
    os._exit(main())


class Killing:
    """Runs `sync` in processes of its own; at most one at a time."""

    def __init__(self, lake: FaultyLake) -> None:
        self.lake = lake
        self.log = lake.folder / "sync.log"
        document = yaml.safe_load(lake.config.read_text())
        document["defaults"] |= {"lease_seconds": LEASE_S, "clock_skew_seconds": 0}
        self.config = lake.folder / "killed.yaml"
        self.config.write_text(yaml.safe_dump(document))
        self._process: ForkServerProcess | None = None
        self.standing = self._nothing()

    def _nothing(self) -> Standing:
        services = self.lake.services
        return Standing(services.mirror_store, f"{services.mirror_location}/{TABLE.folder}")

    def run(self) -> int:
        self._process = START.Process(target=sync, args=(str(self.config), str(self.log)), daemon=True)
        self._process.start()
        self._process.join(90)
        code = self._process.exitcode
        if code is None:
            self.kill()
        assert code is not None, f"sync does not end:\n{self.log.read_text()[-3000:]}"
        return code

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)

    def writes(self) -> list[Write]:
        """Every write of a run that nothing happens to."""
        for side in SIDES:
            self.lake.proxies[side].requests.clear()
        self.lake.append()
        assert self.run() == 0, self.log.read_text()[-3000:]
        found = []
        for side in SIDES:
            seen: Counter[str] = Counter()
            for method, target in self.lake.proxies[side].requests:
                if method in WRITES and not target.endswith("/oauth/tokens"):
                    found.append(Write(side, method, seen[method], target))
                    seen[method] += 1
        return found

    def survives(self, write: Write, *, is_after: bool) -> None:
        old = self.mirrored()
        self.lake.append()
        rule = Rule(Kill(self.kill, is_after), write.method, r"^(?!.*/oauth/tokens)", skip=write.nth)
        self.lake.proxies[write.side].rules.append(rule)
        assert self.run() == -signal.SIGKILL, self.log.read_text()[-3000:]
        assert rule.met == 1
        self.lake.proxies[write.side].rules.clear()
        assert self.mirrored() in (old, self.lake.rows)
        self.look()
        until(lambda: self.run() == 0, f"it does not come to an end: {self.log}", timeout_s=60)
        assert self.mirrored() == self.lake.rows
        self.look()

    def look(self) -> None:
        """At the head first: what it needs was there before it."""
        try:
            shown = self.lake.mirror.load_table(NAME).metadata_location
        except NoSuchTableError:
            shown = None
        self.standing.look(shown)

    def check_same_without_kills(self) -> None:
        """One run from nothing to the same state of the source, which nothing happens to."""
        disturbed = self.standing
        self.forget_the_mirror()
        assert self.run() == 0, self.log.read_text()[-3000:]
        self.look()
        check_same(disturbed, self.standing)

    def mirrored(self) -> list[Row] | None:
        """What a reader of the mirror sees; None: there is no such table."""
        try:
            return self.lake.mirrored()
        except NoSuchTableError:
            return None

    def forget_the_mirror(self) -> None:
        """As if nothing had ever been mirrored; but the store's abilities are known."""
        with suppress(NoSuchTableError):
            self.lake.mirror.drop_table(NAME)
        with suppress(NoSuchNamespaceError):
            self.lake.mirror.drop_namespace("shop")
        home = self.lake.services.mirror_location.split("/", 3)[3]
        for folder in ("shop", "_tables"):
            remove_below(self.lake.services.mirror_store, f"{home}/{folder}/")
        self.standing = self._nothing()


@pytest.fixture
def killing(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Killing]:
    clean(services)
    for name, value in services.environment().items():
        monkeypatch.setenv(name, value)
    START.set_forkserver_preload(["lakemirror.cli.__main__", "lakemirror.usecases.stages"])
    with faulty_lake(services, tmp_path) as lake:
        lake.append()
        yield Killing(lake)


def test_every_write(killing: Killing) -> None:
    """Of a table that has a version."""
    assert killing.run() == 0
    writes = killing.writes()
    print(f"{len(writes)} writes: {Counter((one.side, one.method) for one in writes)}")
    assert len(writes) > 10
    assert any(one.is_decisive for one in writes)
    for write, is_after in itertools.product(writes, (False, True)):
        killing.survives(write, is_after=is_after)
    killing.check_same_without_kills()


def test_the_writes_that_decide_on_the_first_version(killing: Killing) -> None:
    """The lease that is created, the first marker, the namespace and the table that the catalog does not have yet."""
    assert killing.run() == 0
    killing.forget_the_mirror()
    decisive = {one.target: one for one in reversed(killing.writes()) if one.is_decisive}.values()  # each once
    print("\n".join(f"{one.method} {one.target}" for one in decisive))
    assert {"register", "namespaces"} <= {one.target.rsplit("/", 1)[-1] for one in decisive}
    for write, is_after in itertools.product(decisive, (False, True)):
        killing.forget_the_mirror()
        killing.survives(write, is_after=is_after)
    killing.check_same_without_kills()

"""Who keeps to which rate: a task has one share, however often Spark begins it, and whoever hears of the hub."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakemirror.copying import hub as hubs
from lakemirror.copying import ports as copy_ports
from lakemirror.copying.hub import Hub, HubAddress, HubPace
from lakemirror.copying.model import CopySettings
from lakemirror.copying.pace import Rates
from lakemirror.copying.ports import CopyPorts, opened
from lakemirror.errors import TransientError
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.wires.local import memory_wire
from tests.unit.copying.conftest import Slept, run

NOWHERE = HubAddress("127.0.0.1", 1, b"s")
RATES = Rates(bytes_per_s=1000.0, requests_per_s=100.0)
TASKS, TWINS = 4, 2


class Ports:
    """Of one of four tasks; time passes when it calls the hub again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = Slept()
        monkeypatch.setattr(hubs, "REDIAL_S", 0.01)

    def of(self, hub: HubAddress | None, attempts: int, rates: Rates = RATES, deadline_s: float = 0.05) -> CopyPorts:
        buckets = MemoryBuckets()
        return CopyPorts(
            lambda: memory_wire(buckets),
            lambda: memory_wire(buckets),
            CopySettings(object_deadline_s=deadline_s),
            rates,
            TASKS,
            attempts,
            hub,
            clock=self.time.clock,
        )


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    return Ports(monkeypatch)


def share_of(ports: CopyPorts, *, is_repeated: bool) -> float:
    """Of the rate of bytes, that the task takes without asking anybody."""

    async def work() -> float:
        async with opened(ports, "t", is_repeated=is_repeated) as made:
            rates: Rates = made.pace._rates  # type: ignore[attr-defined]
            assert not isinstance(made.pace, HubPace)
            assert rates.bytes_per_s is not None
            return rates.bytes_per_s / 1000.0

    return run(work())


@pytest.mark.parametrize("is_repeated", [False, True])
def test_without_a_hub_the_attempts_at_a_task_share_its_share(ports: Ports, is_repeated: bool) -> None:
    assert share_of(ports.of(None, 1), is_repeated=is_repeated) == 1 / TASKS
    assert share_of(ports.of(None, TWINS), is_repeated=is_repeated) == 1 / TASKS / TWINS


def test_a_first_attempt_that_does_not_reach_the_hub_has_the_share_of_its_task(ports: Ports) -> None:
    assert share_of(ports.of(NOWHERE, TWINS), is_repeated=False) == 1 / TASKS


@pytest.mark.parametrize("attempts", [1, TWINS])
def test_an_attempt_after_it_does_not_copy_unseen(ports: Ports, attempts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may be at work with the share of the task, or the hub may have given it away when it was lost."""
    monkeypatch.setattr(copy_ports, "REJOIN_S", 0.05)
    with pytest.raises(TransientError, match="beside its first attempt") as caught:
        share_of(ports.of(NOWHERE, attempts), is_repeated=True)
    assert "127.0.0.1:1" in str(caught.value)


def test_it_waits_no_longer_than_the_copy_may_take(ports: Ports) -> None:
    late = ports.of(NOWHERE, TWINS, deadline_s=3600.0)
    late = replace(late, settings=replace(late.settings, deadline_at=1000.0), now=lambda: 1000.0)
    with pytest.raises(TransientError, match="beside its first attempt"):
        share_of(late, is_repeated=True)


def test_a_twin_that_reaches_the_hub_works_by_it(ports: Ports) -> None:
    with Hub(("127.0.0.1", "127.0.0.1"), RATES, TASKS, TASKS, TWINS) as address:
        assert address is not None

        async def work() -> bool:
            async with opened(ports.of(address, TWINS, deadline_s=10.0), "t", is_repeated=True) as made:
                return isinstance(made.pace, HubPace)

        assert run(work())


def test_without_limits_nobody_waits_for_a_hub(ports: Ports) -> None:
    async def work() -> None:
        async with opened(ports.of(NOWHERE, TWINS, Rates()), "t", is_repeated=True) as made:
            await made.pace.take(10**9)

    run(work())

"""What every fault on the wire must leave: a mirror that is old or new, a run that ends in time, nothing half."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import rules
from tests.faults.rules import Rule
from tests.faults.scene import FaultyLake

BOUND_S = 120.0
WRITES = (  # all that a run writes besides data, in the order of a run
    r"/_control/lease\.json",
    r"/_plan/[^/]*/copy-",
    r"/_plan/[^/]*/plan\.json",
    r"/_ledger/[^/]*/copy-",
    r"/metadata/[^/]*-m\d+\.avro",
    r"/metadata/snap-[^/]*\.avro",
    r"/metadata/[^/]*\.metadata\.json",
    r"/_ledger/index/",
    r"/_inprogress/v[^/]*\.json",
    r"/_ready/v[^/]*\.json",
)


def survives(
    lake: FaultyLake,
    server: str,
    faults: list[Rule],
    *,
    append: Callable[[FaultyLake], None] = FaultyLake.append,
    config: Path | None = None,
    must_end_well: bool = False,
    moves: bool = False,
) -> str:
    """A run among faults, then one without: old or new, in bounded time; then new, with nothing left over.

    `moves`: the source has another head by then, for which there is another plan.
    """
    proxy = lake.proxies[server]
    old = list(lake.rows)
    append(lake)
    proxy.requests.clear()
    proxy.rules += faults
    start = time.monotonic()
    outcome = lake.run(config)
    spent = time.monotonic() - start
    assert all(rule.met > 0 for rule in faults), f"not every fault was met among {proxy.requests}"
    assert lake.mirrored() in (old, lake.rows)
    assert spent < BOUND_S
    if must_end_well:
        assert outcome == "ok"
    proxy.rules.clear()
    if moves:
        lake.append()
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows
    assert lake.unfinished_uploads() == 0
    return outcome


def sends_damaged_writes_again(lake: FaultyLake) -> None:
    """A bit turns in one write of each kind; three manifests are new, and of those one is looked at by L0."""

    def append(lake: FaultyLake) -> None:
        for _ in range(3):
            lake.append(20)

    flips = [Rule(rules.FlipRequest(40), "PUT", target) for target in WRITES]
    config = lake.write("unlooked.yaml", knobs={"k_min": 1, "k_max": 1})
    proxy = lake.proxies["mirror store"]
    proxy.answers.clear()
    survives(lake, "mirror store", flips, append=append, config=config, must_end_well=True)
    assert [status for _, status in proxy.answers] == ["400"] * len(flips)

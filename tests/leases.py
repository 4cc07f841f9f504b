"""What a hub let go over some time, and what it would have at another rate: so it is known how near the limit is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakemirror.copying.pace import SLACK_S


@dataclass(frozen=True, slots=True)
class Lease:
    """Bytes or requests, by when they were asked for and how long they had to wait."""

    asked_at: float
    wait_s: float
    units: float

    @property
    def goes_at(self) -> float:
        return self.asked_at + self.wait_s


def span_s(leases: Sequence[Lease]) -> float:
    return leases[-1].goes_at - leases[0].goes_at


def last_goes_at(leases: Sequence[Lease], rate: float) -> float:
    """When the last would go if the line had this rate, they came as they did, and the first went as it did.

    So a limit is held from below, too, by a machine that cannot use it: nobody waits for what nobody asks for.
    """
    free_at = leases[0].goes_at
    for lease in leases[1:]:
        free_at = max(free_at, lease.asked_at - SLACK_S) + lease.units / rate
    return max(free_at, leases[-1].asked_at)

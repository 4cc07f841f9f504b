"""How runs of one table are kept from working at the same time."""

from __future__ import annotations

from lakemirror.config.quantities import Seconds
from lakemirror.config.section import Section, knob


class FenceKnobs(Section, defer_build=True):
    """How runs of one table are kept from working at the same time; no safety rests on it."""

    fence: bool = knob(
        True,
        "Take a lease (`_control/lease.json`) before working on a change, so that two runs do not do the same work "
        "and garbage collection keeps away from the plan in flight. `false`: they may; still only one publishes.",
        requirement="T29 §3.3",
    )
    lease_seconds: Seconds = knob(
        300,
        "How long a lease lasts without renewal, and so how long another installation waits for a run that died. A "
        "run at work renews it three times as often; it must also outlast the wait of a Spark task for its slot.",
        requirement="T29 §3.3",
        unit="seconds",
        ge=3,
        le=86400,
    )
    clock_skew_seconds: Seconds = knob(
        10,
        "By how much the clocks of two installations may differ: a lease is taken over only that much after its end.",
        requirement="T29 §3.3",
        unit="seconds",
        ge=0,
        le=86400,
    )

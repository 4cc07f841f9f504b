"""When files that nothing needs any more may be deleted from the mirror."""

from __future__ import annotations

from datetime import timedelta

from lakemirror.config.quantities import Bytes, Count, Duration
from lakemirror.config.section import Section, knob


class GcKnobs(Section):
    """When files that nothing needs any more may be deleted from the mirror."""

    sot_gc_grace: Duration = knob(
        timedelta(days=1),
        "How long the source's maintenance waits before it lists an unreferenced file for deletion (T_sot_gc_grace).",
        requirement="M8 §16.2",
        unit="duration",
        takes_effect="planned",
    )
    cloud_gc_grace: Duration = knob(
        timedelta(days=7),
        "How long a listed file stays in the mirror (T_cloud_gc_grace). Mode A: at least 24h. Modes B and C: at least "
        "7d, and in B no shorter than `history_retention`.",
        requirement="M8 §16.2, §16.5",
        unit="duration",
        takes_effect="planned",
    )
    delete_history: bool = knob(
        False,
        "Whether files that only history needs may be deleted from the mirror.",
        requirement="M8 §16.5",
        takes_effect="planned",
    )
    trash: bool = knob(
        False,
        "Copy a file to `_trash/<day>/` before it is deleted; costs one copy of everything deleted.",
        requirement="M8 §16.4",
        takes_effect="planned",
    )
    approval_bytes: Bytes = knob(
        10**12,
        "A batch that would delete more than this waits for the approval of two persons.",
        requirement="M8 §16.4",
        unit="bytes",
        takes_effect="planned",
        ge=0,
    )
    approval_objects: Count = knob(
        100_000,
        "A batch that would delete more objects than this waits for the approval of two persons.",
        requirement="M8 §16.4",
        unit="objects",
        takes_effect="planned",
        ge=0,
    )

    @property
    def total_grace(self) -> timedelta:
        """From the moment nothing needs a file to the earliest moment it leaves the mirror (T_total_grace)."""
        return self.sot_gc_grace + self.cloud_gc_grace

"""Which versions of the source the mirror takes, and what it does when the source goes back or starts anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from lakemirror.config.quantities import Bytes, Count, Duration, Seconds
from lakemirror.config.section import Section, knob


class HistoryKnobs(Section, defer_build=True):
    """Which versions of the source the mirror takes, and what it does when the source goes back or starts anew."""

    mode: Literal["A", "B", "C"] = knob(
        "A",
        "A always takes the newest version and may skip others; B fills in all of them; C keeps day and week ends. "
        "Only A is in this version; B and C are refused.",
        requirement="M9 §17.1",
    )
    history_versions: Count | None = knob(
        1000,
        "The mirror's metadata keeps at most so many earlier versions besides branches and tags, the newest ones; "
        "null: as many as the source still has. What is left out is told.",
        requirement="M9, T26",
        unit="versions",
        ge=0,
    )
    history_age: Duration | None = knob(
        None,
        "Earlier versions that are older than this, counted back from the source's last commit, go from the mirror's "
        "metadata; null: no limit.",
        requirement="M9, T26",
        unit="duration",
    )
    history_bytes: Bytes | None = knob(
        None,
        "The mirror's metadata file stays below this size, with the logs that a REST server adds, by letting its "
        "oldest versions go; null: what the mirror's catalog takes (BLMS 1 MB or rest.max-metadata-bytes, Glue 20 MB, "
        "others without limit).",
        requirement="M7, T26",
        unit="bytes",
        ge=1,
    )
    history_retention: Duration | None = knob(
        None,
        "Mode B: how far back readers of the mirror may travel; null: as far as the source lets them.",
        requirement="M8 §16.5, M9",
        unit="duration",
        takes_effect="planned",
    )
    hist_catchup: Duration = knob(
        timedelta(days=7),
        "Mode B: how long the source keeps skipped versions so that they can be filled in (T_hist_catchup).",
        requirement="M9 §17.1",
        unit="duration",
        takes_effect="planned",
    )
    lag_threshold_seconds: Seconds = knob(
        900,
        "Modes B and C skip to the newest version when the mirror is further behind than this.",
        requirement="M9 §6.3, M17 §11",
        unit="seconds",
        takes_effect="planned",
        ge=1,
    )
    pending_objects_threshold: Count = knob(
        100_000,
        "Modes B and C skip to the newest version when more objects than this wait to be copied.",
        requirement="M9 §6.3",
        unit="objects",
        takes_effect="planned",
        ge=1,
    )
    on_source_rollback: Literal["follow", "stop"] = knob(
        "follow",
        "The source was rolled back to an older snapshot, whether or not it was written to since: the mirror goes "
        "back too, or stops and says so until this says follow. A table that was replaced (CREATE OR REPLACE … AS) "
        "is no rollback; one that has no snapshot any more is. Where expiry has left nothing by which it can be told, "
        "the mirror goes on.",
        requirement="T21",
    )
    on_source_recreated: Literal["follow", "stop"] = knob(
        "follow",
        "The source table was dropped and made anew under its name: the mirror starts a new epoch, or stops and "
        "says so.",
        requirement="T22",
    )

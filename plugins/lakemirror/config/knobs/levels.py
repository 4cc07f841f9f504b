"""When a table counts as behind: the alert, and the thresholds of the levels green, yellow, orange and red."""

from __future__ import annotations

from lakemirror.config.quantities import Fraction, Seconds
from lakemirror.config.section import Section, knob


class LevelKnobs(Section, defer_build=True):
    """When a table counts as behind: the alert, and the thresholds of the levels green, yellow, orange and red."""

    mirror_lag_alert_seconds: Seconds = knob(
        900,
        "Alert when the mirror is further behind than this.",
        requirement="M13, M17 §11",
        unit="seconds",
        takes_effect="planned",
        ge=1,
    )
    level_yellow_lag_seconds: Seconds = knob(
        300,
        "Green below this lag, yellow from it on.",
        requirement="M11 §18.2",
        unit="seconds",
        takes_effect="planned",
        ge=1,
    )
    level_orange_lag_seconds: Seconds = knob(
        900,
        "Orange above this lag.",
        requirement="M11 §18.2",
        unit="seconds",
        takes_effect="planned",
        ge=1,
    )
    level_red_lag_seconds: Seconds = knob(
        3600,
        "Red above this lag.",
        requirement="M11 §18.2",
        unit="seconds",
        takes_effect="planned",
        ge=1,
    )
    level_green_error_rate: Fraction = knob(
        0.001,
        "Green needs a smaller share of failed requests than this.",
        requirement="M11 §18.2",
        unit="fraction",
        takes_effect="planned",
        gt=0,
        le=1,
    )
    level_yellow_throughput_drop: Fraction = knob(
        0.5,
        "Yellow when throughput falls by this share of its usual value.",
        requirement="M11 §18.2",
        unit="fraction",
        takes_effect="planned",
        gt=0,
        le=1,
    )
    level_orange_error_seconds: Seconds = knob(
        300,
        "Orange when errors last longer than this.",
        requirement="M11 §18.2",
        unit="seconds",
        takes_effect="planned",
        ge=1,
    )
    critical: bool = knob(
        False,
        "Mirrored even at level red, and exempt from the gate for writers.",
        requirement="M11 §18.2, §18.3",
        takes_effect="planned",
    )

"""Schedules are checked by us before Airflow sees them; its own cron library is the judge of what we accept."""

from __future__ import annotations

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from lakemirror.config.cron import PRESETS, check_cron

_FIELDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


@pytest.mark.parametrize(
    "text",
    [
        "*/5 * * * *",
        "0 3 * * 1-5",
        "0,30 * 1 jan MON",
        "5-55/10 0-23 * * *",
        "0 0 1 1-12/3 sun",
        "1/7 * * * *",
        *PRESETS,
    ],
)
def test_schedules_are_accepted(text: str) -> None:
    assert check_cron(text) == text


def test_spaces_are_tidied() -> None:
    assert check_cron("  */5  *\t* * * ") == "*/5 * * * *"


_PRESETS = "@hourly, @daily, @midnight, @weekly, @monthly, @quarterly, @yearly, @annually"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", f"five cron fields or one of {_PRESETS}"),
        ("* * * *", f"five cron fields or one of {_PRESETS}"),
        ("0 * * * * *", f"five cron fields or one of {_PRESETS}"),
        ("@often", f"five cron fields or one of {_PRESETS}"),
        ("60 * * * *", "a schedule with minute in 0–59"),
        ("*/0 * * * *", "a schedule with minute in 0–59"),
        ("9-5 * * * *", "a schedule with minute in 0–59"),
        ("1, * * * *", "a schedule with minute in 0–59"),
        ("x * * * *", "a schedule with minute in 0–59"),
        ("* 24 * * *", "a schedule with hour in 0–23"),
        ("* * 0 * *", "a schedule with day of month in 1–31"),
        ("* * L * *", "a schedule with day of month in 1–31"),
        ("* * * 13 *", "a schedule with month in 1–12"),
        ("* * * mon *", "a schedule with month in 1–12"),
        ("* * * * 8", "a schedule with day of week in 0–7"),
        ("* * * * jan", "a schedule with day of week in 0–7"),
    ],
)
def test_other_schedules_are_refused(text: str, wanted: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        check_cron(text)
    assert (caught.value.context or {})["wanted"] == wanted


@st.composite
def _schedules(draw: st.DrawFn) -> str:
    fields = []
    for low, high in _FIELDS:
        number = st.integers(low - 1, high + 1).map(str)
        step = st.integers(0, high + 1).map(lambda value: f"/{value}")
        base = st.one_of(st.just("*"), number, st.tuples(number, number).map("-".join))
        part = st.tuples(base, st.one_of(st.just(""), step)).map("".join)
        fields.append(draw(st.lists(part, min_size=1, max_size=2).map(",".join)))
    return " ".join(fields)


@given(_schedules())
def test_what_is_accepted_is_accepted_by_airflow(text: str) -> None:
    try:
        accepted = check_cron(text)
    except PydanticCustomError:
        return
    assert croniter.is_valid(accepted)

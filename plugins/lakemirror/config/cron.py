"""Checks a schedule before Airflow sees it: five cron fields or one of Airflow's presets.

Checked by hand because the configuration is read where Airflow and its cron library are not (the CLI, Spark drivers)
and must stay cheap. Airflow accepts everything that is accepted here; rarer forms (`L`, `W`, `#`, seconds) are refused.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from lakemirror.config.quantities import refuse

PRESETS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@quarterly", "@yearly", "@annually")

_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6}
_MONTHS |= {"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _WEEKDAYS),
)
_PART = re.compile(r"(?:\*|(\w{1,3})(?:-(\w{1,3}))?)(?:/(\d{1,3}))?", re.ASCII)
_WANTED = f"five cron fields or one of {', '.join(PRESETS)}"


def check_cron(text: str) -> str:
    if text in PRESETS:
        return text
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise refuse(_WANTED)
    for field, (label, low, high, names) in zip(fields, _FIELDS, strict=True):
        if not all(_is_part(part, low, high, names) for part in field.split(",")):
            raise refuse(f"a schedule with {label} in {low}–{high}", 'write it like "*/5 * * * *"')
    return " ".join(fields)


def _is_part(part: str, low: int, high: int, names: dict[str, int]) -> bool:
    match = _PART.fullmatch(part)
    if match is None:
        return False
    first, last, step = match.groups()
    numbers = [names.get(word.lower(), int(word) if word.isdecimal() else -1) for word in (first, last) if word]
    if not all(low <= number <= high for number in numbers):
        return False
    if len(numbers) == 2 and numbers[0] > numbers[1]:
        return False
    return step is None or 1 <= int(step) <= high


Cron = Annotated[str, AfterValidator(check_cron)]

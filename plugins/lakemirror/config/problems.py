"""What is wrong with a configuration, as data: where, what, and what to do about it.

Checks produce `Finding`s, which name a key; the loader turns them into `Problem`s, which name a file and a line. A
finding carries the refused value apart from its text, so that one place decides whether it may be shown: what came from
the environment never is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

KeyPath = tuple[str | int, ...]

SECRET_MASK = "***"
_SHOWN_CHARACTERS = 60


class Missing(Enum):
    """Tells "there is no value" from the value null."""

    VALUE = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing a person must change in the file."""

    where: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text

    def as_json(self) -> dict[str, str]:
        return {"where": self.where, "message": self.message, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem before anybody has looked up its line; `line` is given where no key can name it.

    `about` names further keys it depends on: when one of those is wrong itself, this finding says nothing new.
    """

    path: KeyPath
    message: str
    hint: str = ""
    got: object = Missing.VALUE
    line: int | None = None
    about: tuple[KeyPath, ...] = ()

    def at(self, file: str, line: int | None, *, is_secret: bool) -> Problem:
        message = self.message
        if self.got is not Missing.VALUE:
            message = f"{message}, got {SECRET_MASK if is_secret else describe(self.got)}"
        return Problem(file if line is None else f"{file}:{line}", message, self.hint)


def dotted(path: KeyPath) -> str:
    """`("tables", 3, "gc", "trash")` as people write it: `tables[3].gc.trash`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def describe(value: object) -> str:
    """A refused value, short and on one line, in the words of YAML."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def nearest(name: str, known: Iterable[str]) -> tuple[str, bool]:
    """The known name most like this one, and whether it is so like it that a slip of the finger explains it."""
    by_folded = {candidate.casefold(): candidate for candidate in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    if close:
        return by_folded[close[0]], True
    any_of_them = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.0)
    return by_folded[any_of_them[0]], False


def listing(words: Iterable[object]) -> str:
    """`A, B or C`."""
    *head, last = [str(word) for word in words]
    return f"{', '.join(head)} or {last}" if head else last

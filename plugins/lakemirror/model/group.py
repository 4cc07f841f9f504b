"""The watermark of a group: the time up to which every commit on every table of the group is visible in the mirror.

Each table has an entry: which version the mirror shows, and through which moment that covers its source. The watermark
is the least of them, and there is none while a table has no entry. It goes back only where it must (a table joined the
group, a mirror was put back to an older version or snapshot, or dropped), and then the document tells when, from where
and why.

Configurations may differ in which tables they name, so nobody's entry goes away because another one does not know it:
a table leaves a group only when somebody says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.model import bounded_json

FORMAT = 1
MAX_BYTES = 1 << 24
KEPT_MOVES = 20
_MAX_VALUES = 1 << 20
_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Reached:
    """The mirror shows `version` of a table, and with it every commit of its source through `through`.

    `is_older`: it may be of an older state than what was shown before, because somebody asked for that snapshot, or
    because the source had left it again when another run looked. That is not written down: it decides whether the entry
    may go back, and nothing else.
    """

    version: int
    through: datetime
    is_older: bool = field(default=False, compare=False)

    def after(self, earlier: Reached | None) -> Reached:
        """Of the same or a newer version nothing is forgotten, unless it may be older; of an older one everything."""
        if earlier is None or self.version < earlier.version or self.through >= earlier.through:
            return self
        if self.is_older and self.version > earlier.version:
            return self
        return replace(self, through=earlier.through)

    def is_below(self, earlier: Reached) -> bool:
        """Whether it takes anything back."""
        return self.version < earlier.version or self.after(earlier).through < earlier.through


@dataclass(frozen=True, slots=True)
class MoveBack:
    """The watermark was `was` and became `now`, because of this table."""

    at: datetime
    was: datetime
    now: datetime | None
    table: str


@dataclass(frozen=True, slots=True)
class GroupWatermark:
    """What `_groups/<name>.json` says."""

    group: str
    tables: Mapping[str, Reached | None] = field(default_factory=dict)  # every member; None: nothing is visible yet
    moves_back: tuple[MoveBack, ...] = ()
    coming: Mapping[str, int] = field(default_factory=dict)  # versions that somebody is about to show

    @property
    def watermark(self) -> datetime | None:
        reached = [one.through for one in self.tables.values() if one is not None]
        return min(reached) if reached and len(reached) == len(self.tables) else None

    @property
    def slowest(self) -> str | None:
        """The table that holds the watermark where it is."""
        if not self.tables:
            return None
        return min(self.tables, key=lambda name: (_order(self.tables[name]), name))

    def advanced(self, members: Iterable[str], table: str, reached: Reached, now: datetime) -> GroupWatermark:
        """With these members beside those that it has, of which `table` has reached this."""
        joined = {name: self.tables.get(name) for name in {*self.tables, *members, table}}
        made = self._with({**joined, table: reached.after(joined[table])}, now, table)
        return made._awaiting(table, None) if reached.version >= self.coming.get(table, 0) else made

    def joined(self, members: Iterable[str], now: datetime) -> GroupWatermark:
        """With these members beside those that it has; of new ones nothing is visible yet."""
        new = sorted({*members} - self.tables.keys())
        return self._with({**self.tables, **dict.fromkeys(new)}, now, new[0]) if new else self

    def announced(self, table: str, version: int) -> GroupWatermark:
        """Somebody is about to show this version: nobody may say more of the one before, whenever he has seen it."""
        known = self.tables.get(table)
        if known is not None and version <= known.version:
            return self
        return self._awaiting(table, max(version, self.coming.get(table, 0)))

    def lowered(self, table: str, coming: Reached, now: datetime) -> GroupWatermark:
        """What this version covers less than the one that is shown is taken back."""
        known = self.tables.get(table)
        if known is None or coming.version <= known.version or not coming.is_below(known):
            return self
        return self._with({**self.tables, table: Reached(known.version, coming.through)}, now, table)

    def _awaiting(self, table: str, version: int | None) -> GroupWatermark:
        others = {name: one for name, one in self.coming.items() if name != table}
        return replace(self, coming=others if version is None else dict(sorted({**others, table: version}.items())))

    def without_view_of(self, table: str, now: datetime) -> GroupWatermark:
        """The mirror shows nothing of this member any more."""
        shown = self._with({**self.tables, table: None}, now, table) if self.tables.get(table) is not None else self
        return shown._awaiting(table, None)

    def forgotten(self, table: str, now: datetime) -> GroupWatermark:
        """The table is no member any more: the watermark may go on without it."""
        made = self._with({name: one for name, one in self.tables.items() if name != table}, now, table)
        return made._awaiting(table, None)

    def _with(self, tables: Mapping[str, Reached | None], now: datetime, table: str) -> GroupWatermark:
        """A move back is written down."""
        made = replace(self, tables=dict(sorted(tables.items())))
        was = self.watermark
        if was is None or (made.watermark is not None and made.watermark >= was):
            return made
        move = MoveBack(now, was, made.watermark, made.slowest or table)
        return replace(made, moves_back=(*self.moves_back, move)[-KEPT_MOVES:])

    def to_bytes(self) -> bytes:
        document = {
            "format": FORMAT,
            "group": self.group,
            "watermark": _text(self.watermark),
            "tables": {
                name: None if one is None else {"version": one.version, "through": _text(one.through)}
                for name, one in sorted(self.tables.items())
            },
            "moves_back": [
                {"at": _text(move.at), "was": _text(move.was), "now": _text(move.now), "table": move.table}
                for move in self.moves_back
            ],
            "coming": dict(self.coming),
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> GroupWatermark:
        """PermanentError for what is no such document, UnsupportedError for one of another format.

        Deleting it takes the moves back with it; entries come back as tables follow.
        """
        try:
            document = bounded_json.object_of(data, max_values=_MAX_VALUES)
            if type(document["format"]) is not int or document["format"] != FORMAT:
                raise UnsupportedError(
                    "read watermark",
                    uri,
                    f"it is of format {repr(document['format'])[:100]}, and this version reads format {FORMAT}",
                    "upgrade Lakemirror on this side; until then this group's watermark is left as it is",
                )
            tables = {_name(name): _reached(one) for name, one in document["tables"].items()}
            moves = tuple(
                MoveBack(_time(move["at"]), _time(move["was"]), _or_none(move["now"]), _name(move["table"]))
                for move in document["moves_back"]
            )
            coming = {_name(name): _version(one) for name, one in document.get("coming", {}).items()}
            return cls(_name(document["group"]), tables, moves, coming)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as err:
            raise PermanentError(
                "read watermark",
                uri,
                f"not a watermark ({err!r})",
                "see who wrote it; delete it, and it is made anew as tables follow",
            ) from err


def _order(reached: Reached | None) -> datetime:
    return datetime.min.replace(tzinfo=UTC) if reached is None else reached.through


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _reached(document: Any) -> Reached | None:
    if document is None:
        return None
    return Reached(_version(document["version"]), _time(document["through"]))


def _version(number: Any) -> int:
    if type(number) is not int or not 0 < number < 1 << 62:
        raise ValueError(f"version is {repr(number)[:100]}")
    return number


def _name(text: Any) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_TEXT:
        raise ValueError(f"{repr(text)[:100]} is no name")
    return text


def _or_none(text: Any) -> datetime | None:
    return None if text is None else _time(text)


def _time(text: Any) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time has no zone")
    return moment.astimezone(UTC)

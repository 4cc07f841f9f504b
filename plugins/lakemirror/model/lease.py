"""The lease of a table: who works on it, under which plan, and until when. Its token rises with every
taking, for as long as nobody deletes the object.

It saves two runs the same work and tells garbage collection which plan is in flight. No safety rests on it: what may be
published is decided by the chain of ready markers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lakemirror.errors import PermanentError
from lakemirror.model import bounded_json

FORMAT = 1
MAX_BYTES = 1 << 16
MAX_TOKEN = 1 << 62
_MAX_VALUES = 100
_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Lease:
    """What `_control/lease.json` says.

    `owner` is a run: its later tasks go on with what an earlier one held. `holder` is the one process of it that took
    the lease under this token. `writes` counts, so that no two writes have the same bytes: on S3 equal bytes have equal
    e_tags, and a writer who has seen an old e_tag must never match a new one.
    """

    token: int
    owner: str
    expires_at: datetime
    plan_id: str | None = None
    holder: str = ""
    writes: int = 1
    is_released: bool = False

    def is_live(self, now: datetime, skew: timedelta) -> bool:
        """Whether its owner may still be at work, whichever of the two clocks is wrong by up to `skew`."""
        return not self.is_released and now < self.expires_at + skew

    def renewed(self, expires_at: datetime) -> Lease:
        return replace(self, expires_at=expires_at, writes=self.writes + 1)

    def released(self, now: datetime) -> Lease:
        return replace(self, expires_at=now, writes=self.writes + 1, is_released=True)

    def to_bytes(self) -> bytes:
        document = {
            "format": FORMAT,
            "token": self.token,
            "owner": self.owner,
            "holder": self.holder,
            "expires_at": self.expires_at.astimezone(UTC).isoformat(),
            "plan_id": self.plan_id,
            "writes": self.writes,
            "released": self.is_released,
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Lease:
        """PermanentError for what is no lease. It may be deleted: tokens go on from those that markers name."""
        hint = "see who wrote it; delete it, and the next run makes a new one"
        try:
            document = bounded_json.object_of(data, max_values=_MAX_VALUES)
            if document["format"] != FORMAT:
                hint = "upgrade this side, or switch the fence off (fence: false)"
                raise ValueError(f"format {repr(document['format'])[:100]}, this version reads {FORMAT}")
            return cls(
                token=_count(document, "token"),
                owner=_text(document, "owner"),
                expires_at=_time(document["expires_at"]),
                plan_id=None if document["plan_id"] is None else _text(document, "plan_id"),
                holder=_text(document, "holder"),
                writes=_count(document, "writes"),
                is_released=_flag(document, "released"),
            )
        except (ValueError, KeyError, TypeError, OverflowError) as err:
            raise PermanentError("read lease", uri, f"not a lease ({err!r})", hint) from err


def _count(document: dict[str, Any], name: str) -> int:
    value = document[name]
    if type(value) is not int or not 0 < value < MAX_TOKEN:
        raise ValueError(f"{name} is {repr(value)[:100]}")
    return value


def _text(document: dict[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"{name} is {repr(value)[:100]}")
    return value


def _flag(document: dict[str, Any], name: str) -> bool:
    value = document[name]
    if type(value) is not bool:
        raise ValueError(f"{name} is {repr(value)[:100]}")
    return value


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("expires_at has no time zone")
    return moment.astimezone(UTC)

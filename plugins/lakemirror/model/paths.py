"""Where a source path goes in the mirror: the longest known prefix, cut at a `/`, or a refusal.

Nothing is guessed: a path under no known root, or one that could climb out of its root or pose as a control object of
the mirror, is an error that names the path and the roots. So is a relative path: format versions 1 to 3 have none.
Spellings of one place (`s3`, `s3a`, `s3n`; `file:///x`, `file:/x`, `/x`) are the same place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.model.layout import CONTROL_FOLDERS

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/")
_ALIASES = {"s3a": "s3", "s3n": "s3"}
_SLASHES = re.compile("/{2,}")


def canonical(uri: str) -> str:
    """One spelling for every spelling of the same place; relative paths stay relative."""
    found = _SCHEME.match(uri)
    if found is None:
        return f"file://{uri}" if uri.startswith("/") else uri
    scheme = found.group(1).lower()
    rest = uri[found.end() - 1 :]
    if scheme == "file":
        return f"file:///{rest.lstrip('/')}"
    return f"{_ALIASES.get(scheme, scheme)}:{rest}"


def is_relative(uri: str) -> bool:
    return _SCHEME.match(uri) is None and not uri.startswith("/")


def is_below(uri: str, root: str) -> bool:
    """True if `uri` lies inside `root`, by whole path segments and without climbing out of it."""
    inside, outside = canonical(uri), _folder(root)
    return inside.startswith(outside) and ".." not in inside[len(outside) :].split("/")


@lru_cache(maxsize=64)
def _folder(root: str) -> str:
    return canonical(root).rstrip("/") + "/"


@dataclass(frozen=True, slots=True)
class PrefixMap:
    """Source roots and their places in the mirror, the longest first.

    `private` are further places of the source: no file of the table may lie there, and no text of the mirror's metadata
    may name them.
    """

    rules: tuple[tuple[str, str], ...]
    private: tuple[str, ...] = ()

    @classmethod
    def of(cls, rules: Mapping[str, str], private: Iterable[str] = ()) -> PrefixMap:
        known = {canonical(source).rstrip("/"): target.rstrip("/") for source, target in rules.items()}
        ordered = sorted(known.items(), key=lambda rule: (-len(rule[0]), rule[0]))
        return cls(tuple(ordered), tuple(sorted({canonical(place).rstrip("/") for place in private})))

    def find(self, path: str) -> str | None:
        """The mirror's path, or None if no root holds it."""
        place = canonical(path)
        for source, target in self.rules:
            if place == source:
                return target
            if place.startswith(source + "/"):
                rest = place[len(source) + 1 :]
                segments = rest.split("/")
                if ".." in segments or "." in segments:
                    raise PermanentError(
                        "map path", path, "the path climbs by . or ..", "the source's metadata is broken"
                    )
                if segments[0] in CONTROL_FOLDERS:
                    raise PermanentError(
                        "map path",
                        path,
                        f"{segments[0]} is a folder of the mirror's own",
                        "move the file on the source",
                    )
                return f"{target}/{rest}"
        return None

    def map(self, path: str) -> str:
        """The mirror's path; fails closed for a path under an unknown root, or under none."""
        if is_relative(path):
            raise UnsupportedError(
                "map path",
                path or "an empty path",
                "the path is relative (want a full URI)",
                "format versions 1 to 3 have no relative paths: repair the table's metadata on the source",
            )
        mapped = self.find(path)
        if mapped is None:
            roots = ", ".join(source for source, _ in self.rules)
            raise PermanentError(
                "map path",
                path,
                f"the file lies under no known root (known: {roots})",
                "add its root to source.roots in the configuration",
            )
        return mapped

    def first_change(self, before: PrefixMap) -> str | None:
        """How this map contradicts an earlier one, in words: a place that goes elsewhere, or a target given to another.

        Maps by prefix can differ only at a prefix of one of them, so looking at those is looking at every path. Roots
        that were added or taken away are no contradiction.
        """
        for place, _ in (*before.rules, *self.rules):
            now, then = self.find(place), before.find(place)
            if then is not None and now not in (then, None):
                return f"{place} goes to {now} now, and went to {then} before"
        owners = {target: place for place, target in before.rules}
        for place, target in self.rules:
            if owners.get(target, place) != place:
                return f"{place} goes to {target} now, and {owners[target]} went there before"
        return None

    def mentions_source(self, text: str) -> bool:
        """True if a free text (a property value, say) names a root of the source, or anything in its bucket."""
        if "/" not in text and "%2" not in text:
            return False
        pattern = _mention((*(source for source, _ in self.rules), *self.private))
        plain = _SLASHES.sub("/", unquote(text))
        return pattern.search(text) is not None or pattern.search(plain) is not None

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps([self.rules, self.private]).encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def _mention(places: tuple[str, ...]) -> re.Pattern[str]:
    spellings = {spelling for place in places for spelling in _spellings(place)}
    named = "|".join(sorted(spellings))
    return re.compile(rf"(?:{named})(?![\w-]|\.\w)", re.IGNORECASE)  # not a longer name: wh is no part of wh2


def _spellings(place: str) -> Iterable[str]:
    """Patterns for what a text may call a place: without a scheme on files, by any alias and its bucket elsewhere.

    A path of files is whole from its root on: /mnt/lake is not /lake.
    """
    if place.startswith("file:///"):
        path = place[len("file://") :]
        return tuple(
            rf"(?:(?<![\w/.~-])|(?<=file:)|(?<=file:/)|(?<=file://)){re.escape(one)}" for one in (path, quote(path))
        )
    scheme, _, rest = place.partition("://")
    bucket = rest.partition("/")[0]
    aliases = (scheme, *(alias for alias, known in _ALIASES.items() if known == scheme))
    return tuple(rf"{re.escape(alias)}:/{{1,3}}{re.escape(bucket)}" for alias in aliases)

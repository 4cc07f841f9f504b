"""Makes the paths of a configuration absolute, and tells whether one location lies inside another.

Relative to the file: a plain path, and the path of `sqlite:///…`. A plain path becomes `file:///…`. Names stay as they
are written otherwise (nothing is percent-encoded), so that keys of objects stay what they are.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic_core import PydanticCustomError

from lakemirror.config.problems import Finding, KeyPath, dotted
from lakemirror.config.quantities import refuse

STORES = ("file", "gs", "memory", "s3", "s3a", "s3n")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?)://(/?)([^?]*)(\?.*)?", re.DOTALL)
_DRIVER = "postgresql+psycopg2"  # without it SQLAlchemy looks for another one, which production does not have
# Catalogs whose `warehouse` is a name that the server understands, not a place.
_NAMED_WAREHOUSE = ("rest", "blms")


def make_absolute(data: dict[str, Any], base: str, skip: set[KeyPath]) -> list[Finding]:
    """Replaces every location and SQLite path in `data`; what cannot be one is reported and stays."""
    findings = []
    for path, parent, key, is_database in _places(data):
        text = parent.get(key)
        if path in skip or not isinstance(text, str) or not text:
            continue
        try:
            parent[key] = absolute_database(text, base) if is_database else absolute_location(text, base)
        except PydanticCustomError as err:
            context = err.context or {}
            findings.append(
                Finding(path, f"`{dotted(path)}`: want {context['wanted']}", str(context["hint"]), got=text)
            )
    return findings


def _places(data: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any], str, bool]]:
    for side in ("source", "mirror"):
        section = data.get(side)
        if not isinstance(section, dict):
            continue
        catalog = section.get("catalog")
        if isinstance(catalog, dict):
            for key, make in absolute_places(str(catalog.get("type"))):
                yield (side, "catalog", key), catalog, key, make is absolute_database
        roots = section.get("roots")
        for index, root in enumerate(roots if isinstance(roots, list) else ()):
            if isinstance(root, dict):
                yield (side, "roots", index, "from"), root, "from", False
        yield (side, "location"), section, "location", False
    if isinstance(data.get("state"), dict):
        yield ("state", "uri"), data["state"], "uri", True


def absolute_location(text: str, base: str) -> str:
    """`file:///abs`, or `<store>://<bucket>/<key>` without `..` and without a slash at the end."""
    match = _SCHEME.fullmatch(text)
    if match is None:
        if text.startswith("~"):
            raise refuse("an absolute path or one relative to the file", "write ${HOME} for `~`")
        return f"file://{os.path.normpath(os.path.join(base, text))}"
    scheme, slashes, rest = match.group(1).lower(), match.group(2), match.group(3)
    if scheme == "file":
        if not rest.startswith("/"):
            raise refuse("a file location like file:///absolute/path", "for a relative path leave `file:` out")
        return f"file://{posixpath.normpath('/' + rest.lstrip('/'))}"
    bucket, _, key = rest.partition("/")
    if scheme not in STORES or not slashes or not bucket:
        raise refuse("a location like s3://bucket/path, gs://bucket/path, file:///path or a plain path")
    key = key.rstrip("/")
    if key and any(part in ("", ".", "..") for part in key.split("/")):
        raise refuse("a location without empty parts, `.` and `..`")
    return f"{scheme}://{bucket}/{key}" if key else f"{scheme}://{bucket}"


def absolute_database(text: str, base: str) -> str:
    """A database or catalog address; the file of a SQLite one becomes absolute, PostgreSQL gets the driver we ship."""
    match = _SQLITE.fullmatch(text)
    if match is None:
        scheme, separator, rest = text.partition("://")
        if not separator:
            raise refuse("an address with a scheme", "a SQLite file is written sqlite:///path")
        return f"{_DRIVER}://{rest}" if scheme == "postgresql" else text
    scheme, slash, file, query = match.groups()
    if not slash or file in ("", ":memory:") or file.startswith("file:"):
        raise refuse(
            "a SQLite file like sqlite:///relative.db or sqlite:////absolute.db", "memory is gone with the process"
        )
    return f"{scheme}:///{os.path.normpath(os.path.join(base, file))}{query or ''}"


def absolute_places(catalog_type: str) -> tuple[tuple[str, Callable[[str, str], str]], ...]:
    """The properties of such a catalog that are places, and what makes each absolute."""
    uri = ("uri", absolute_database)
    return (uri,) if catalog_type in _NAMED_WAREHOUSE else (uri, ("warehouse", absolute_location))


def is_relative(text: str) -> bool:
    """Whether it depends on a folder what a location, or the address of a database, means."""
    match = _SQLITE.fullmatch(text)
    path = match.group(3) if match else text
    return not os.path.isabs(path) and (match is not None or _SCHEME.fullmatch(text) is None)


def is_within(inner: str, outer: str) -> bool:
    """Whether two absolute locations are the same place or `inner` lies below `outer`; symbolic links are followed."""
    return any(
        one == other or one.startswith(f"{other.rstrip('/')}/")
        for one, other in zip(_spellings(inner), _spellings(outer), strict=True)
    )


def _spellings(location: str) -> tuple[str, str]:
    scheme, _, rest = location.partition("://")
    if scheme == "file":
        return f"file://{rest}", f"file://{os.path.realpath(rest)}"
    canonical = f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"
    return canonical, canonical

"""An Airflow connection as a value, and how one is written in the environment.

The library knows no Airflow: whoever runs it says how an id becomes a `Connection`. Without Airflow (the command line,
a Spark driver) that is the environment variable `AIRFLOW_CONN_<ID>`, in the two forms that Airflow reads, JSON and URI.
A connection is secret as a whole: neither its repr nor an error about it shows more than its id, its type, and names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from lakemirror.errors import UsageError

_OP = "read connection"
_TEXT_FIELDS = ("conn_type", "host", "schema", "login", "password")
_FIELDS = frozenset({*_TEXT_FIELDS, "port", "extra", "description"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*", re.ASCII)
_WHOLE_EXTRA = "__extra__"
_PORT = re.compile(r"[0-9]{1,5}")
_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True, repr=False)
class Connection:
    """What Airflow knows of a service; what is not set is empty. `extra` is the text of a JSON object."""

    conn_id: str
    conn_type: str = ""
    host: str = ""
    port: int | None = None
    schema: str = ""
    login: str = ""
    password: str = ""
    extra: str = ""

    @classmethod
    def of(cls, conn_id: str, fields: Mapping[str, object]) -> Connection:
        """From values that nobody has checked; UsageError if one is not what Airflow would keep there."""
        unknown = sorted(set(fields) - _FIELDS)
        if unknown:
            raise _refused(conn_id, f"unknown field `{unknown[0]}`", f"the fields are {', '.join(sorted(_FIELDS))}")
        text = {name: _text(conn_id, name, fields.get(name)) for name in _TEXT_FIELDS}
        text["conn_type"] = _normal_type(text["conn_type"])
        port, extra = _port(conn_id, fields.get("port")), fields.get("extra")
        return cls(conn_id, port=port, extra=_text(conn_id, "extra", _as_text(extra)), **text)

    def __repr__(self) -> str:
        return f"Connection({self.conn_id!r})"

    def as_json(self) -> str:
        """The form that `AIRFLOW_CONN_<ID>` holds; reading it gives an equal connection."""
        fields = {name: getattr(self, name) for name in (*_TEXT_FIELDS, "port", "extra")}
        return json.dumps({name: value for name, value in fields.items() if value})


ResolveConnection = Callable[[str], Connection]


def variable_of(conn_id: str) -> str:
    """The environment variable that holds a connection, by Airflow's rule."""
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def environment_connection(conn_id: str, env: Mapping[str, str] | None = None) -> Connection:
    """The connection in `AIRFLOW_CONN_<ID>`; UsageError if that is not set or cannot be read."""
    text = (os.environ if env is None else env).get(variable_of(conn_id), "").strip()
    if not text:
        hint = f"export {variable_of(conn_id)}, in Airflow's JSON or URI form"
        raise UsageError(_OP, conn_id, "there is no such connection: its environment variable is not set", hint)
    return Connection.of(conn_id, _from_json(conn_id, text) if text.startswith("{") else _from_uri(conn_id, text))


def _from_json(conn_id: str, text: str) -> dict[str, object]:
    found = parse_object(text)
    if found is None:
        raise _refused(conn_id, f"{variable_of(conn_id)} is not a JSON object", "check its quotes and commas")
    return found


def _from_uri(conn_id: str, text: str) -> dict[str, object]:
    """A type as its scheme, `extra` as its query; a host with a scheme of its own is `type://scheme://host`."""
    conn_type, found, rest = text.partition("://")
    before, slashes, after = rest.partition("://")
    scheme, rest = (before, after) if slashes else ("", rest)
    parts = _split(rest)
    if not found or parts is None or not all(map(_SCHEME.fullmatch, (conn_type, scheme or conn_type))):
        hint = "percent-encode what is special in its parts, or write JSON"
        raise _refused(conn_id, f"{variable_of(conn_id)} is neither JSON nor a connection URI", hint)
    host = _host(parts)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": conn_type,
        "host": f"{scheme}://{host}" if scheme and host else host,
        "port": parts.port,
        "schema": unquote(parts.path[1:]),
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "extra": query.get(_WHOLE_EXTRA, query or None),
    }


def _split(rest: str) -> SplitResult | None:
    try:
        parts = urlsplit(f"//{rest}")
        _ = parts.port  # says no only when it is asked
    except ValueError:
        return None
    return None if "://" in rest or parts.fragment else parts


def _host(parts: SplitResult) -> str:
    """Python makes a host's name lower case; one that is a path keeps its own."""
    host = unquote(parts.hostname or "")
    return unquote(parts.netloc.rpartition("@")[2].partition(":")[0]) if "/" in host else host


def parse_object(text: str) -> dict[str, object] | None:
    """The JSON object in this text; None if it is anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # the error would hold the text
        return None
    return found if isinstance(found, dict) else None


def _as_text(extra: object) -> object:
    return json.dumps(extra) if isinstance(extra, dict) and extra else extra or None


def _text(conn_id: str, name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _refused(conn_id, f"`{name}` is not text", "quote it")
    return value


def _port(conn_id: str, value: Any) -> int | None:
    if value in (None, "", 0):
        return None
    is_number = isinstance(value, int) or (isinstance(value, str) and _PORT.fullmatch(value))
    if isinstance(value, bool) or not is_number or not 0 < int(value) <= _LARGEST_PORT:
        raise _refused(conn_id, "`port` is not a port", f"want a number up to {_LARGEST_PORT}")
    return int(value)


def _normal_type(conn_type: str) -> str:
    """Airflow's own spelling: `postgresql://` makes a connection of type postgres."""
    return "postgres" if conn_type == "postgresql" else conn_type.replace("-", "_")


def _refused(conn_id: str, message: str, hint: str) -> UsageError:
    return UsageError(_OP, conn_id, message, hint)

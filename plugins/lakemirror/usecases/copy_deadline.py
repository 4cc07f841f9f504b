"""By when all copying of one run must be done: one moment for its plans, its stages and their retries.

In the Spark lane each of these is a process of its own. So the first one writes the moment down in the table's folder,
with the name of the run, and the others keep to it. Another run has a time of its own, and writes that over it.
"""

from __future__ import annotations

import json
from typing import Any

from lakemirror.errors import PermanentError
from lakemirror.replicate import control
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite

_MAX_BYTES = 1 << 20
_RECORD: dict[str, control.Check] = {"run": control.is_text, "until": control.is_seconds}


def shared_deadline(store: ObjectStore, uri: str, run: str, now: float, seconds: float) -> float:
    """In seconds of the epoch; never later than `seconds` from now, whatever is written down."""
    latest, kept = now + seconds, _kept(store, uri)
    if kept is not None and kept["run"] == run:
        return min(latest, float(kept["until"]))
    store.put(uri, json.dumps({"run": run, "until": latest}).encode(), Overwrite())
    return latest


def _kept(store: ObjectStore, uri: str) -> dict[str, Any] | None:
    """None also of what nobody here wrote: it bounds time, and nothing else hangs on it."""
    try:
        data = store.get(uri, max_bytes=_MAX_BYTES).data
    except ObjectNotFound:
        return None
    try:
        return control.parse(data, uri, _RECORD)
    except PermanentError:
        return None

"""Finds out what a store can do, by doing it: tiny objects under `<location>/_probe/`, removed at the end.

Servers that speak S3 differ in what they keep of it, and answer 200 to what they ignore. So every ability is tried
with a request that must fail, or whose effect is looked at. A network failure is an error, never a finding, and so is a
race whose winner nobody heard of; a refusal is one, once a plain write has shown that we may write here.

`abilities_of` keeps what was found in `<location>/_probe/<endpoint>.json`: the next run reads that and probes nothing.
Whoever changes the server deletes that object.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from lakemirror.errors import PermanentError
from lakemirror.storage.abilities import LOCAL, Abilities, abilities_from
from lakemirror.storage.clients import storage_properties
from lakemirror.storage.keys import check_prefix
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectNotFound, Overwrite
from lakemirror.storage.probe_keys import spoiled_characters
from lakemirror.storage.probing import Probe, dialect_of
from lakemirror.storage.streaming import run

_FORMAT: Final = 4
_MAX_RECORD_BYTES: Final = 64 * 1024
LOOK_THEN_WRITE: Final = "look_then_write"


def utc_now() -> datetime:
    return datetime.now(UTC)


def abilities_of(
    properties: Mapping[str, str],
    location: str,
    *,
    now: Callable[[], datetime],
    weaker_create: str | None = None,
    elsewhere: Callable[[], str | None] = lambda: None,
) -> Abilities:
    """What the store of this location can do: known of files and memory, recorded there, or probed now.

    PermanentError where a create cannot be relied on, unless `weaker_create` is `look_then_write`. `elsewhere`, asked
    by a probe alone, is the URI of an object that copies would come from, in another bucket of the same endpoint;
    without one nothing is known of such copies, and none are made.
    """
    address = check_prefix(location, "probe")
    if address.kind in ("file", "memory"):
        return LOCAL
    store = ObstoreStore(properties)
    endpoint = properties.get("s3.endpoint" if address.kind == "s3" else "gcs.service.host") or "the cloud's own"
    record = f"{location.rstrip('/')}/_probe/{hashlib.blake2s(endpoint.encode(), digest_size=8).hexdigest()}.json"
    found = _recorded(store, record)
    if found is None:
        found = probe(properties, location, elsewhere())
        document = {
            "format": _FORMAT,
            "endpoint": _shown(endpoint),
            "probed_at": now().isoformat(),
            "abilities": found.as_json(),
        }
        store.put(record, json.dumps(document, indent=1).encode(), Overwrite())
    if not found.conditional_create and weaker_create != LOOK_THEN_WRITE:
        raise PermanentError(
            "probe",
            location,
            "this store does not keep `create only if nothing is there`: two writers could both win",
            f"use another store, or accept that by mirror.weaker_create: {LOOK_THEN_WRITE}",
        )
    return found


class ProbedAbilities:
    """`abilities_of` when they are first asked for, by the first write; kept then, and pickled with what was found."""

    def __init__(
        self,
        properties: Mapping[str, str],
        location: str,
        weaker_create: str | None = None,
        now: Callable[[], datetime] = utc_now,
        elsewhere: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`elsewhere` is asked if the store must be probed: for an object of the other side, if it is in this store."""
        self._properties = storage_properties(properties)
        self._location = location
        self._weaker_create = weaker_create
        self._now = now
        self._elsewhere = elsewhere
        self._found: Abilities | None = None
        self._lock = threading.Lock()

    def __call__(self) -> Abilities:
        with self._lock:
            if self._found is None:
                self._found = abilities_of(
                    self._properties,
                    self._location,
                    now=self._now,
                    weaker_create=self._weaker_create,
                    elsewhere=self._elsewhere,
                )
            return self._found

    def __reduce__(self) -> tuple[object, ...]:
        """Without `elsewhere`: where nothing was found yet, another process does not know the other side."""
        made = (self._properties, self._location, self._weaker_create, self._now)
        return type(self), made, {"_found": self._found}

    def __repr__(self) -> str:
        return f"ProbedAbilities({self._location!r})"


def probe(properties: Mapping[str, str], location: str, elsewhere: str | None = None) -> Abilities:
    """Try everything once, about a hundred small requests; nothing is recorded."""
    folder = f"{location.rstrip('/')}/_probe/{secrets.token_hex(8)}"
    store = ObstoreStore(properties)

    async def work() -> Abilities:
        dialect = dialect_of(properties, location)
        try:
            return await Probe(dialect, folder, elsewhere).run()
        finally:
            await dialect.close()

    try:
        found = run(work())
        return replace(found, spoiled=spoiled_characters(store, f"{folder}/keys"))
    finally:
        store.delete([info.uri for info in store.list(folder)])


def _recorded(store: ObstoreStore, record: str) -> Abilities | None:
    """None if there is none, or one of another version: then everything is tried again."""
    try:
        document = json.loads(store.get(record, max_bytes=_MAX_RECORD_BYTES).data)
    except ObjectNotFound:
        return None
    except ValueError as err:
        hint = "delete it, and the store is probed again"
        raise PermanentError("probe", record, "the record of what this store can do is damaged", hint) from err
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return None
    abilities = document.get("abilities")
    return abilities_from(abilities) if isinstance(abilities, dict) else None


def _shown(endpoint: str) -> str:
    """Without what may stand before an @."""
    return endpoint.rpartition("@")[2]

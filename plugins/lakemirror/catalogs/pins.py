"""Pins: tags on the source that keep the snapshots of a run, and with them all their files, from being expired.

They are the only commits that are ever made on the source, and only where a knob asks for them. pyiceberg makes them,
with the rights of the source's catalog and, where that is a mere pointer, of its store. A pin that nobody drops dies
with the source's own expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lakemirror.config.sections import CatalogConfig
from lakemirror.errors import TransientError
from lakemirror.formats.iceberg.metadata_json import PIN_PREFIX
from lakemirror.model.table import TableRef
from lakemirror.storage.amazon_errors import keep_words_out_of_logs

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_TRIES: Final = 5


class SourcePins:
    """The pins of all tables of one source."""

    def __init__(self, config: CatalogConfig) -> None:
        self._config = config
        self._catalog: Catalog | None = None

    def change(
        self, table: TableRef, wanted: Mapping[str, int], *, drops: Callable[[str], bool], seconds: int, now_ms: int
    ) -> bool:
        """Let there be these pins, by name, and none that `drops` says yes to; whether the source had to be changed.

        A snapshot that is gone gets none. A new one lives for `seconds` from now, unless it is dropped; one that is
        found is given as much again once half of that is over, so that who looks again soon finds the source as it was.
        TransientError if the source does not take it.
        """
        from pyiceberg.exceptions import CommitFailedException

        try:
            for _ in range(_TRIES):
                try:
                    return self._change(self._load(table), wanted, drops, seconds * 1000, now_ms)
                except CommitFailedException:
                    continue  # somebody else has committed
        except Exception as err:  # catalogs and stores of many kinds, each with errors of its own, and their secrets
            raise _refused(table, f"the source does not take the tag ({type(err).__name__})") from err
        raise _refused(table, f"others commit at the same time, {_TRIES} times in a row")

    def _change(
        self, table: Table, wanted: Mapping[str, int], drops: Callable[[str], bool], life_ms: int, now_ms: int
    ) -> bool:
        """By one commit. The source counts the age of a tag from its snapshot's time, not from its own."""
        there = {name: ref for name, ref in table.metadata.refs.items() if name.startswith(PIN_PREFIX)}
        made_at = {one.snapshot_id: one.timestamp_ms for one in table.metadata.snapshots}
        manage, count = table.manage_snapshots(), 0
        for name in sorted(there):
            if name not in wanted and drops(name):
                manage, count = manage.remove_tag(name), count + 1
        for name, snapshot_id in wanted.items():
            if snapshot_id not in made_at:
                continue
            age_ms = max(0, now_ms - made_at[snapshot_id])
            ref = there.get(name)
            is_fresh = ref is not None and (ref.max_ref_age_ms is None or ref.max_ref_age_ms >= age_ms + life_ms // 2)
            if ref is None or ref.snapshot_id != snapshot_id or not is_fresh:
                manage, count = manage.create_tag(snapshot_id, name, max_ref_age_ms=age_ms + life_ms), count + 1
        if count:
            manage.commit()
        return count > 0

    def _load(self, table: TableRef) -> Table:
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            keep_words_out_of_logs()
            properties: dict[str, Any] = {**self._config.properties, "type": self._config.type}
            if "glue.max-retries" in properties:
                properties["glue.max-retries"] = int(properties["glue.max-retries"])  # botocore wants a number
            self._catalog = load_catalog(self._config.name, **properties)
        return self._catalog.load_table((*table.namespace, table.name))


def _refused(table: TableRef, why: str) -> TransientError:
    hint = "let it commit on the source, or set source_pin_seconds: null to go without"
    return TransientError("pin", str(table), why, hint)

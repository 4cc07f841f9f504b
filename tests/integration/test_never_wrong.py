"""What a reader of the mirror must never see, and what a run must never do, though every single step succeeded."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from lakemirror.errors import PermanentError, VerificationError
from lakemirror.storage.port import CREATE, Condition, ObjectStore, Written
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore, SimulatedCrash
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.iceberg_files import data_files, delete_positions
from tests.integration.looking import check_whole
from tests.lake import ORDERS, Lake, path_of, rows
from tests.stores import Recorder

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("pattern", ["metadata/snap-*.avro", "metadata/*-m0.avro", "data/*-deletes.parquet"])
def test_a_rewritten_object_that_was_altered_is_never_published(lake: Lake, pattern: str) -> None:
    """Same length, other bytes: only its checksum tells."""
    orders = lake.create()
    orders.append(rows(3))
    delete_positions(orders, [(data_files(orders)[0], 1)])

    def altering(side: str, store: ObjectStore) -> ObjectStore:
        return _Altering(store, pattern) if side == "mirror" else store

    with pytest.raises(VerificationError, match="its crc32c is wrong"):
        lake.app(wrap_store=altering).mirror(ORDERS, full_verify=True)
    assert lake.ready() == []


class _Altering(ForwardingStore):
    """Flips a bit of each object that is put under a matching key, after it was written."""

    def __init__(self, inner: ObjectStore, pattern: str) -> None:
        super().__init__(inner)
        self._pattern = pattern

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        written = super().put(uri, body, condition)
        path = path_of(uri)
        if path.match(self._pattern):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
        return written


def test_as_of_a_time_between_two_versions_no_older_snapshot_is_shown(lake: Lake) -> None:
    """A skipped snapshot was the head at that time: the mirror must not answer with the one before it."""
    orders = lake.create()
    orders.append(rows(1))
    lake.sync()
    orders.append(rows(1, 1))
    orders.append(rows(1, 2))
    skipped = orders.refresh().metadata.snapshots[1]
    lake.sync()
    mirror = lake.mirror_table()
    assert len(mirror.metadata.snapshots) == 2
    assert orders.snapshot_as_of_timestamp(skipped.timestamp_ms) == skipped
    assert mirror.snapshot_as_of_timestamp(skipped.timestamp_ms) is None
    assert lake.mirror_rows() == lake.source_rows()


def test_a_source_in_its_own_mirror_is_refused(lake: Lake) -> None:
    lake.source.create_namespace_if_not_exists("shop")
    place = f"file://{lake.mirror_folder}/shop/orders"
    table = lake.source.create_table("shop.orders", rows(1).schema, location=place)
    table.append(rows(1))
    with pytest.raises(PermanentError, match="lies in its own mirror"):
        lake.mirror()
    assert lake.ready() == []


def test_a_comment_that_holds_a_source_path_is_left_out(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(1))
    with orders.update_schema() as schema:
        schema.add_column("note", StringType(), doc=f"see {orders.location()}/x")
        schema.add_column("loud", StringType(), doc=f"see {orders.location().upper()}/x")
    orders.append(rows(1).append_column("note", pa.array(["x"])))  # a manifest with the comments in its header
    assert lake.sync().left_out == tuple(
        f"comment of column {name}: it holds a source path" for name in ("note", "loud")
    )
    check_whole(lake)
    assert lake.mirror_rows() == lake.source_rows()


def test_what_a_try_without_a_ledger_left_is_not_sent_again(lake: Lake) -> None:
    """Killed before the first ledger part: the next run looks at each key and sends no body."""
    lake.create().append(rows(3))
    faults = {"mirror": [Fault("put", Action.KILL, uri_contains="/part-")], "source": []}
    dying = lake.app(wrap_store=lambda side, store: FaultyStore(store, faults[side]))
    with pytest.raises(SimulatedCrash):
        dying.mirror(ORDERS)
    recorder = Recorder()
    again = lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
    assert (again.copied_files, again.skipped_files) == (0, 1)
    assert [uri for uri in recorder.uris("mirror", "put") if "/data/" in uri] == []


def test_a_property_that_names_another_place_of_the_source_is_left_out(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(1))
    with orders.transaction() as change:
        change.set_properties({"twin": f"{lake.warehouse}/shop/twin", "owner": "ada"})
    assert lake.sync().left_out == ("property twin: it holds a source path",)
    assert lake.mirror_table().properties["owner"] == "ada"
    check_whole(lake)

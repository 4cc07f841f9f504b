"""L0 looks at what was written, by ledger and store; whatever is missing or altered stops the version."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakemirror.errors import TransientError, VerificationError
from lakemirror.model.layout import TableLayout
from lakemirror.replicate import assemble as assembling
from lakemirror.replicate import change as changes
from lakemirror.replicate import plan as planning
from lakemirror.replicate import segments
from lakemirror.replicate.ledger import LEDGER, Ledgers, ledger_folder
from lakemirror.replicate.stage import LocalEngine
from lakemirror.replicate.verify import Sampling, verify_l0
from lakemirror.storage.port import CHUNK_BYTES, ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.iceberg_files import data_files, delete_positions
from tests.lake import ORDERS, Lake, rows

SAMPLING = Sampling(p=0.02, k_min=100, k_max=2000, concurrency=4)


@pytest.mark.parametrize(
    ("total", "want"), [(0, 0), (1, 1), (99, 99), (100, 100), (5_000, 100), (50_000, 1_000), (1_000_000, 2_000)]
)
def test_sample_size(total: int, want: int) -> None:
    assert SAMPLING.count(total) == want
    assert dataclasses.replace(SAMPLING, full=True).count(total) == total


class Written:
    """A version with data and position deletes, written but not yet published."""

    def __init__(self, folder: Path) -> None:
        lake = Lake(folder, defaults={"small_change_files": 0})
        orders = lake.create(partitioned_by=["city"])
        orders.append(rows(3))
        orders.append(rows(3, 3, "Chur"))
        delete_positions(orders, [(data_files(orders)[0], 1)])
        app, engine = lake.app(), LocalEngine(2)
        self.store = app.mirror_store
        self.layout = TableLayout.of(app.config.mirror.location, ORDERS)
        detected = app.detect(ORDERS)
        uri = detected.plan_uri
        assert uri is not None
        app.plan_diff(ORDERS, uri, str(detected.source_name), engine)
        app.copy_objects(ORDERS, uri, engine)
        app.rewrite_metadata(ORDERS, uri, engine)
        loaded = planning.load(self.store, uri)
        assert loaded is not None
        self.plan = loaded
        self.change = changes.load(self.store, uri)
        self.assembled = assembling.load(self.store, uri)

    @property
    def ledger_uri(self) -> str:
        return self.layout.ledger(self.change.plan_id)

    def verify(self, sampling: Sampling = SAMPLING, ledgers: Ledgers | None = None) -> int:
        return verify_l0(self.store, self.change, self.plan, self.assembled, self.ledger_uri, sampling, ledgers)

    def find(self, below: str, ends: str, *, without: str = "\0") -> str:
        found = [info.uri for info in self.store.list(f"{self.layout.root}/{below}")]
        return next(uri for uri in found if uri.endswith(ends) and without not in uri)

    def victims(self) -> dict[str, str]:
        return {
            "data": self.find("data", ".parquet", without="deletes"),
            "deletes": self.find("data", "deletes.parquet"),
            "manifest": self.find("metadata", "-m0.avro"),
            "list": next(info.uri for info in self.store.list(f"{self.layout.root}/metadata") if "/snap-" in info.uri),
            "metadata": self.assembled.metadata_uri,
            "index": self.assembled.index_uri,
        }


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_a_whole_version_passes(written: Written) -> None:
    files, manifests, lists, metadata, index = 3, 3, 1, 1, 1
    assert written.verify() == files + manifests + lists + metadata + index
    assert written.verify(dataclasses.replace(SAMPLING, full=True)) == 9


def test_ledgers_that_are_known_are_not_listed_but_read(written: Written) -> None:
    folders = {part.uri: ledger_folder(written.ledger_uri, part.uri) for part in written.plan.segments}
    known = {uri: [info.uri for info in written.store.list(folder)] for uri, folder in folders.items()}
    written.store = counted = CountingStore(written.store)
    assert written.verify(ledgers=known) == 9
    assert not counted.counts["list"]
    written.store.delete([known[written.plan.of("copy")[0].uri][0]])
    with pytest.raises(TransientError, match="it was written but is gone"):
        written.verify(ledgers=known)


def test_a_ledger_that_lacks_a_file_is_named_also_if_it_is_known(written: Written) -> None:
    (segment,) = written.plan.of("copy")
    (part,) = (info.uri for info in written.store.list(ledger_folder(written.ledger_uri, segment.uri)))
    less = segments.write(
        written.store, written.ledger_uri, "less", segments.read(written.store, part, LEDGER).slice(1)
    )
    with pytest.raises(VerificationError, match="does not hold all files") as caught:
        written.verify(ledgers={segment.uri: [less]})
    assert caught.value.subject == segment.uri


class TwoAtOnce(ForwardingStore):
    """Gives a manifest list only while another one is asked for."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._both = threading.Barrier(2, timeout=10)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        if "/snap-" in uri:
            self._both.wait()
        return super().stream(uri, chunk_bytes=chunk_bytes)


def test_lists_are_read_side_by_side(written: Written) -> None:
    """There is one for each snapshot with a ref: a thousand tags must not be a thousand answers to wait for."""
    written.store = TwoAtOnce(written.store)
    written.assembled = dataclasses.replace(written.assembled, lists=written.assembled.lists * 2)
    assert written.verify() == 10


@pytest.mark.parametrize("what", ["data", "deletes", "manifest", "list", "metadata", "index"])
def test_what_is_gone_is_named(written: Written, what: str) -> None:
    uri = written.victims()[what]
    written.store.delete([uri])
    with pytest.raises(VerificationError) as caught:
        written.verify()
    assert (caught.value.subject, caught.value.exit_code) == (uri, 4)


@pytest.mark.parametrize("what", ["data", "deletes", "manifest", "metadata", "index"])
def test_what_has_another_size_is_named(written: Written, what: str) -> None:
    uri = written.victims()[what]
    written.store.put(uri, written.store.get(uri).data + b"!", Overwrite())
    with pytest.raises(VerificationError) as caught:
        written.verify()
    assert caught.value.subject == uri


@pytest.mark.parametrize("what", ["data", "metadata", "index"])
def test_what_has_other_bytes_is_named(written: Written, what: str) -> None:
    uri = written.victims()[what]
    data = written.store.get(uri).data
    written.store.put(uri, data[:-1] + bytes([data[-1] ^ 1]), Overwrite())
    with pytest.raises(VerificationError) as caught:
        written.verify()
    assert caught.value.subject == uri


def test_bytes_beyond_the_budget_are_not_read_unless_in_full(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.replicate.verify.CRC_BUDGET_BYTES", 0)
    uri = written.victims()["data"]
    data = written.store.get(uri).data
    written.store.put(uri, data[:-1] + bytes([data[-1] ^ 1]), Overwrite())
    written.verify()
    with pytest.raises(VerificationError, match="its crc32c is wrong"):
        written.verify(dataclasses.replace(SAMPLING, full=True))


def test_a_ledger_with_holes_is_a_stop(written: Written) -> None:
    ledger = written.find("_ledger", ".parquet", without="/index/")
    written.store.delete([ledger])
    with pytest.raises(VerificationError, match="the ledger does not hold all files"):
        written.verify()


def test_a_file_without_a_sum_is_looked_at_for_its_size(written: Written) -> None:
    """Its store has copied it by itself, and told none: there is nothing to compare its bytes with."""
    uri = written.victims()["data"]
    for info in list(written.store.list(f"{written.layout.root}/_ledger")):
        if "/part-" in info.uri:
            table = segments.read(written.store, info.uri, LEDGER)
            written.store.put(info.uri, segments.encode(_without_sums(table)), Overwrite())
    data = written.store.get(uri).data
    written.store.put(uri, data[:-1] + bytes([data[-1] ^ 1]), Overwrite())
    written.verify(dataclasses.replace(SAMPLING, full=True))
    written.store.put(uri, data[:-1], Overwrite())
    with pytest.raises(VerificationError, match="its size is wrong"):
        written.verify()


def _without_sums(table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index("crc32c")
    return table.set_column(position, "crc32c", pa.nulls(table.num_rows, pa.uint32()))

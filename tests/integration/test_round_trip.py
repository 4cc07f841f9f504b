"""From a source commit to rows in the mirror: what pyiceberg reads there is what it reads on the source."""

from __future__ import annotations

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

from tests.iceberg_files import (
    EQUALITY_DELETES,
    EXISTING,
    commit,
    data_files,
    delete_positions,
    entry,
    manifest_file,
    manifests_of,
    write,
)
from tests.integration.looking import check_whole, look
from tests.lake import ORDERS, Lake, path_of, rows
from tests.stores import Recorder

pytestmark = pytest.mark.integration


def same(lake: Lake) -> None:
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


def test_append_overwrite_and_delete_in_rounds(lake: Lake) -> None:
    orders = lake.create(partitioned_by=["city"])
    same(lake)
    for number, city in enumerate(("Bern", "Chur", "ü ,+%=")):
        orders.refresh().append(rows(5, 5 * number, city))
        same(lake)
    orders.refresh().delete("id < 3")
    same(lake)
    orders.refresh().overwrite(rows(2, 100), "city = 'Chur'")
    same(lake)
    orders.refresh().delete("id >= 0")
    same(lake)
    assert lake.mirror_rows() == []
    assert lake.ready()[-1] == "v7.ready.json"


def test_evolved_schemas_and_specs_keep_their_ids(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    same(lake)
    with orders.refresh().update_schema() as schema:
        schema.add_column("note", StringType())
        schema.rename_column("city", "town")
    with orders.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "id_bucket")
    same(lake)
    import pyarrow as pa

    orders.refresh().append(pa.table({"id": [50], "town": ["Olten"], "note": ["hi"]}))
    with orders.update_schema() as schema:
        schema.delete_column("note")
        schema.add_column("note", LongType())
    same(lake)
    source, mirror = orders.refresh().metadata, lake.mirror_table().metadata
    assert (mirror.schemas, mirror.current_schema_id) == (source.schemas, source.current_schema_id)
    assert (mirror.partition_specs, mirror.default_spec_id) == (source.partition_specs, source.default_spec_id)
    assert mirror.last_column_id == source.last_column_id


def test_tags_and_branches_come_along_with_their_files(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    first = orders.current_snapshot()
    assert first is not None
    orders.manage_snapshots().create_tag(first.snapshot_id, "v1").create_branch(first.snapshot_id, "audit").commit()
    orders.delete("id < 2")
    orders.append(rows(3, 10))
    same(lake)
    assert lake.mirror_rows(snapshot_id=first.snapshot_id) == lake.source_rows(snapshot_id=first.snapshot_id)
    assert set(look(lake).metadata["refs"]) == {"main", "v1", "audit"}
    orders.refresh().manage_snapshots().remove_tag("v1").commit()
    same(lake)
    assert set(look(lake).metadata["refs"]) == {"main", "audit"}


def test_history_holds_the_versions_that_were_mirrored_and_can_be_travelled(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    same(lake)
    orders.refresh().append(rows(3, 3))
    skipped = orders.current_snapshot()
    orders.append(rows(3, 6))
    same(lake)
    assert skipped is not None
    source = [one.snapshot_id for one in orders.refresh().metadata.snapshots]
    mirror = [one["snapshot-id"] for one in look(lake).metadata["snapshots"]]
    assert mirror == [one for one in source if one != skipped.snapshot_id]
    for snapshot_id in mirror:
        assert lake.mirror_rows(snapshot_id=snapshot_id) == lake.source_rows(snapshot_id=snapshot_id)


def test_position_deletes(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(5))
    orders.append(rows(5, 5))
    one, other = data_files(orders)
    delete_positions(orders, [(one, 0), (one, 3), (other, 4)], row_group_rows=2)
    same(lake)
    assert len(lake.mirror_rows()) == 7
    delete_positions(orders.refresh(), [(one, 1)], referenced_data_file=one)
    same(lake)
    assert len(lake.mirror_rows()) == 6
    deletes = [file for file in look(lake).files().values() if file["content"] == 1]
    assert [file["referenced_data_file"] for file in deletes if file["referenced_data_file"]] == [
        one.replace(str(lake.warehouse), str(lake.mirror_folder))
    ]


def test_position_deletes_that_are_carried_over_are_not_written_again(lake: Lake) -> None:
    """A later manifest names an old delete file as existing: the mirror's own size and bounds go on."""
    orders = lake.create()
    orders.append(rows(5))
    (one,) = data_files(orders)
    path = delete_positions(orders, [(one, 0)])
    same(lake)
    before = lake.mirror_objects(below="shop/orders/data")
    size = path_of(path).stat().st_size
    data = [one for one in manifests_of(orders.refresh()) if one.content == 0]
    carried = entry(path, status=EXISTING, content=1, size=size, snapshot_id=5_000_002)
    merged = manifest_file(orders, [carried], 77, deletes=True)
    commit(orders, 77, [*data, merged])
    result = lake.sync()
    assert (result.rewritten.delete_files, result.copied_files) == (0, 0)
    assert lake.mirror_objects(below="shop/orders/data") == before
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


def test_equality_deletes_are_copied_as_they_are(lake: Lake) -> None:
    """pyiceberg cannot read them; the file and its entry must arrive unchanged."""
    orders = lake.create()
    orders.append(rows(5))
    path = write(f"{orders.location()}/data/eq.parquet", b"any bytes")
    added = entry(path, content=EQUALITY_DELETES, size=9, snapshot_id=77, equality_ids=[1])
    commit(orders, 77, [*manifests_of(orders), manifest_file(orders, [added], 77, deletes=True)])
    lake.sync()
    seen = check_whole(lake)
    mirrored = path.replace(str(lake.warehouse), str(lake.mirror_folder))
    assert path_of(mirrored).read_bytes() == b"any bytes"
    assert seen.files()[mirrored]["equality_ids"] == [1]


def test_v1_manifests_of_a_table_that_was_upgraded(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(5))
    (path,) = data_files(orders)
    size = path_of(path).stat().st_size
    old = manifest_file(orders, [entry(path, size=size, snapshot_id=77, record_count=5)], 77, version=1)
    commit(orders, 77, [old])
    same(lake)


def test_a_table_without_a_snapshot_then_with_one(lake: Lake) -> None:
    orders = lake.create()
    result = lake.sync()
    assert (result.version, result.snapshot_id, result.copied_files) == (1, None, 0)
    assert lake.mirror_rows() == []
    assert lake.mirror().lane == "none"
    orders.append(rows(2))
    same(lake)


def test_gzip_metadata(lake: Lake) -> None:
    import gzip

    orders = lake.create()
    orders.append(rows(3))
    path = path_of(orders.metadata_location)
    path.write_bytes(gzip.compress(path.read_bytes()))
    lake.sync()
    assert len(lake.mirror_rows()) == 3


def test_a_snapshot_without_a_parent_does_not_lower_the_sequence_number(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    orders.append(rows(3, 3))
    same(lake)
    commit(orders.refresh(), 77, manifests_of(orders)[:1], parent=None)
    same(lake)
    assert look(lake).metadata["last-sequence-number"] == 3


def test_statistics_files_come_along(lake: Lake) -> None:
    from pyiceberg.table.statistics import StatisticsFile

    orders = lake.create()
    orders.append(rows(3))
    snapshot = orders.current_snapshot()
    assert snapshot is not None
    path = write(f"{orders.location()}/metadata/stats ü.puffin", b"PFA1 any bytes")
    stats = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot.snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": 14,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
    )
    with orders.update_statistics() as update:
        update.set_statistics(stats)
    assert lake.sync().copied_files == 2
    seen = check_whole(lake)
    assert seen.metadata["statistics"][0]["statistics-path"] == path.replace(
        str(lake.warehouse), str(lake.mirror_folder)
    )
    assert lake.mirror().lane == "none"
    orders.refresh().append(rows(1, 50))
    assert lake.sync().copied_files == 1
    check_whole(lake)


def test_nested_namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    from lakemirror.model.table import TableRef

    nested = TableRef.parse("eu.north.orders")
    lake = Lake(tmp_path_factory.mktemp("lake"), tables=[{"name": "eu.north.orders"}])
    lake.create(nested).append(rows(3))
    lake.sync(nested)
    assert lake.mirror_rows(nested) == lake.source_rows(nested)
    assert (lake.mirror_folder / "eu.north" / "orders" / "_ready" / "v1.ready.json").exists()


def test_deleted_entries_stay_in_their_manifest_and_their_files_are_never_opened(lake: Lake) -> None:
    """The source may have expired them long ago; data and position deletes alike."""
    orders = lake.create()
    orders.append(rows(3))
    (live,) = data_files(orders)
    home = f"{orders.location()}/data"
    size = path_of(live).stat().st_size
    gone = [
        entry(f"{home}/gone.parquet", status=2, snapshot_id=77),
        entry(live, size=size, snapshot_id=77, record_count=3),
    ]
    gone_deletes = entry(f"{home}/gone-deletes.parquet", status=2, content=1, snapshot_id=77)
    manifests = [manifest_file(orders, gone, 77), manifest_file(orders, [gone_deletes], 77, deletes=True)]
    commit(orders, 77, manifests)
    same(lake)
    mirror = f"file://{lake.mirror_folder}/shop/orders/data"
    assert set(look(lake).files(deleted=True)) == {f"{mirror}/gone.parquet", f"{mirror}/gone-deletes.parquet"}


def test_an_entry_of_an_expired_snapshot_is_mirrored(lake: Lake) -> None:
    """After rewriting manifests and expiring snapshots an entry keeps an id that no snapshot has any more."""
    orders = lake.create()
    orders.append(rows(3))
    (path,) = data_files(orders)
    size = path_of(path).stat().st_size
    old = entry(path, status=EXISTING, size=size, snapshot_id=123456, record_count=3)
    commit(orders, 77, [manifest_file(orders, [old], 77)], parent=None)
    same(lake)


def test_the_mirror_never_cleans_up_by_itself(lake: Lake) -> None:
    lake.create(properties={"gc.enabled": "true", "write.metadata.delete-after-commit.enabled": "true"}).append(rows(1))
    lake.sync()
    properties = look(lake).metadata["properties"]
    assert properties["gc.enabled"] == properties["write.metadata.delete-after-commit.enabled"] == "false"


def test_full_verification_reads_every_byte(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without it what the run wrote is looked at by HEAD; with it the file, its manifest and the list are read."""
    lake = Lake(tmp_path_factory.mktemp("lake"), defaults={"p": 0, "k_min": 0})
    lake.create().append(rows(3))
    recorder = Recorder()
    app = lake.app(wrap_store=recorder.wrap)
    app.mirror(ORDERS)
    assert recorder.uris("mirror", "stream") == []
    assert "snap-" in {path_of(uri).name[:5] for uri in recorder.uris("mirror", "head")}
    lake.source.load_table(str(ORDERS)).append(rows(3, 3))
    app.mirror(ORDERS, full_verify=True)
    read = [path_of(uri) for uri in recorder.uris("mirror", "stream")]
    assert [one.parent.name for one in read] == ["data", "metadata", "metadata"]

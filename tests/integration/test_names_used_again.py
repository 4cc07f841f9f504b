"""Files of a table never change in place. Where one did, nothing stale is shown as if it were new."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from lakemirror.errors import PermanentError
from tests.iceberg_files import EXISTING, commit, entry, manifest_file, write
from tests.integration.looking import check_whole, look
from tests.lake import ORDERS, SCHEMA, Lake, path_of, rows, uri

pytestmark = pytest.mark.integration


def parquet(data: pa.Table) -> bytes:
    out = io.BytesIO()
    fields = [field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(SCHEMA, start=1)]
    pq.write_table(data.cast(pa.schema(fields)), out)
    return out.getvalue()


def write_files(table: Table, **files: pa.Table) -> dict[str, int]:
    """Put data files under these names, as Hive does; gives their sizes."""
    folder = path_of(table.location()) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(parquet(data))
    return {name: (folder / name).stat().st_size for name in files}


def add(table: Table, snapshot_id: int, added: dict[str, int], carried: dict[str, int] | None = None) -> None:
    """One manifest with these files and their sizes, and nothing else, is the table."""
    place = f"{table.location()}/data"
    entries = [entry(f"{place}/{name}", size=size, snapshot_id=snapshot_id) for name, size in added.items()]
    entries += [entry(f"{place}/{name}", size=size, status=EXISTING) for name, size in (carried or {}).items()]
    commit(table, snapshot_id, [manifest_file(table, entries, snapshot_id)])


def test_a_file_that_was_overwritten_in_place_is_a_stop_by_name(lake: Lake) -> None:
    orders = lake.create()
    sizes = write_files(orders, a=rows(3), b=rows(3, 3))
    add(orders, 11, sizes)
    lake.sync()
    want, head = lake.mirror_rows(), lake.mirror_head()
    new = write_files(orders, a=rows(40))
    assert new["a"] != sizes["a"]
    add(orders, 12, new, {"b": sizes["b"]})
    for _ in range(2):
        with pytest.raises(PermanentError, match="another size") as caught:
            lake.mirror()
        assert caught.value.subject == f"{orders.location()}/data/a"
        assert f"want {sizes['a']} bytes, got {new['a']}" in caught.value.message
    lake.follow()
    assert (lake.mirror_rows(), lake.mirror_head(), lake.ready()) == (want, head, ["v1.ready.json"])
    add(orders, 13, write_files(orders, a2=rows(40)), {"b": sizes["b"]})  # the way out that the error names
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


def set_statistics(table: Table, path: str, size: int) -> None:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    found = {"snapshot-id": snapshot.snapshot_id, "statistics-path": path, "file-size-in-bytes": size}
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile.model_validate({**found, "file-footer-size-in-bytes": 1, "blob-metadata": []})
        )


def test_statistics_that_were_overwritten_in_place_are_a_stop_by_name(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    path = write(f"{orders.location()}/metadata/s.puffin", b"PFA1 old bytes")
    set_statistics(orders, path, 14)
    lake.sync()
    head = lake.mirror_head()
    orders.refresh().append(rows(3, 3))
    set_statistics(orders, write(path, b"PFA1 other bytes"), 16)
    with pytest.raises(PermanentError, match=r"another size \(want 14 bytes, got 16\)") as caught:
        lake.mirror()
    assert caught.value.subject == path
    lake.follow()
    assert lake.mirror_head() == head


def test_a_recreated_table_whose_files_have_the_old_names(lake: Lake) -> None:
    """The new table's files lie in a folder of their own: neither taken for the old ones nor stopped by them."""
    place = uri(lake.warehouse / "shop" / "hive")
    for number in range(3):
        orders = lake.create(location=place)
        add(orders, 11, write_files(orders, a=rows(3 + number), b=rows(3, 30 + number)))
        assert lake.sync().version == 2 * number + 1
        assert lake.mirror_rows() == lake.source_rows()
        add(orders, 12, write_files(orders, c=rows(1, 90)), {"a": path_of(f"{place}/data/a").stat().st_size})
        assert lake.sync().copied_files == 1
        assert lake.mirror_rows() == lake.source_rows()
        check_whole(lake)
        folders = {path.rpartition("/data/")[0] for path in look(lake).files()}
        assert len(folders) == 1
        assert lake.mirror_table().location() == uri(lake.mirror_folder / ORDERS.folder)
        assert any("_maps" in folder for folder in folders) == (number > 0)
        lake.source.drop_table(str(ORDERS))

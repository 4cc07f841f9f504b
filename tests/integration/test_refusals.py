"""What this version cannot mirror exactly is refused by name, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError, PermanentError, UnsupportedError
from lakemirror.replicate.stage import LocalEngine
from tests.iceberg_files import POSITION_DELETES, commit, entry, manifest_file, manifests_of
from tests.lake import ORDERS, Lake, path_of, rows

pytestmark = pytest.mark.integration
Edit = Callable[[dict[str, Any]], None]


def edit_metadata(lake: Lake, edit: Edit) -> None:
    path = path_of(lake.source.load_table(str(ORDERS)).metadata_location)
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def refused(lake: Lake, error: type[LakemirrorError], says: str) -> None:
    before, head = lake.mirror_objects(), lake.mirror_head()
    for ask in (lake.mirror, lambda: lake.app().plan(ORDERS), lambda: lake.app().detect(ORDERS)):
        with pytest.raises(error, match=says) as caught:
            ask()
        assert caught.value.hint
    assert (lake.mirror_objects(), lake.mirror_head()) == (before, head)


def statistics_of(metadata: dict[str, Any], path: str) -> dict[str, Any]:
    sizes = {"file-size-in-bytes": 9, "file-footer-size-in-bytes": 4}
    return {"snapshot-id": metadata["current-snapshot-id"], "statistics-path": path, **sizes, "blob-metadata": []}


EDITS: dict[str, Edit] = {
    "format version 0 is not supported": lambda m: m.update({"format-version": 0}),
    "format version 4 is not supported": lambda m: m.update({"format-version": 4}),
    "the table is encrypted": lambda m: m["properties"].update({"encryption.key-id": "k"}),
    "has no manifest list": lambda m: m["snapshots"][-1].pop("manifest-list"),
    "metadata/snap.avro: the path is relative": lambda m: m["snapshots"][-1].update(
        {"manifest-list": "metadata/snap.avro"}
    ),
    "x.stats: the path is relative": lambda m: m.update({"statistics": [statistics_of(m, "x.stats")]}),
}


@pytest.mark.parametrize("says", EDITS)
@pytest.mark.parametrize("mirrored_before", [False, True])
def test_tables_of_unsupported_kinds(lake: Lake, says: str, mirrored_before: bool) -> None:
    orders = lake.create()
    orders.append(rows(3))
    if mirrored_before:
        lake.sync()
    orders.refresh().append(rows(3, 3))
    edit_metadata(lake, EDITS[says])
    refused(lake, UnsupportedError, says)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"path": "data/x"}, "^map path data/x: the path is relative"),
        ({"path": "data/x", "content": POSITION_DELETES}, "^map path data/x: the path is relative"),
        ({"key_metadata": b"k"}, "is encrypted"),
        ({"content": POSITION_DELETES, "file_format": "LANCE"}, "position deletes in LANCE are not supported"),
    ],
)
def test_files_of_unsupported_kinds(lake: Lake, fields: dict[str, Any], says: str) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    added = entry(**{"path": f"{orders.refresh().location()}/data/x", "snapshot_id": 77, **fields})
    made = manifest_file(orders, [added], 77, deletes="content" in fields)
    commit(orders, 77, [*manifests_of(orders), made])
    before = lake.mirror_objects()
    detected = lake.app().detect(ORDERS)
    names = str(detected.plan_uri), str(detected.source_name)
    for run in (lake.mirror, lambda: lake.app().plan_diff(ORDERS, *names, LocalEngine(1))):
        with pytest.raises(UnsupportedError, match=says):
            run()
        assert lake.mirror_objects() == before


def test_a_relative_path_of_a_manifest(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    made = manifest_file(orders, [entry(f"{orders.location()}/data/x", snapshot_id=77)], 77)
    made[0] = made.manifest_path.removeprefix(f"{orders.location()}/")
    commit(orders, 77, [*manifests_of(orders), made])
    refused(lake, UnsupportedError, r"^map path metadata/.*: the path is relative")


def test_an_avro_codec_of_tomorrow(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    made = manifest_file(orders, [entry(f"{orders.location()}/data/x", snapshot_id=77)], 77, codec="xz")
    commit(orders, 77, [made])
    with pytest.raises(UnsupportedError, match="codec 'xz' is not supported"):
        lake.mirror()
    assert lake.mirror_objects() == {}


def test_a_view_in_the_place_of_a_table(lake: Lake) -> None:
    lake.create().append(rows(3))
    edit_metadata(lake, lambda m: m.update({"view-uuid": m.pop("table-uuid")}))
    refused(lake, PermanentError, "not Iceberg table metadata")

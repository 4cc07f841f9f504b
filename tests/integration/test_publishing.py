"""What makes a version the mirror's newest: everything before its pointer, checked, and a marker that binds it all."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import timedelta
from typing import Any

import pytest

from lakemirror.app import utc_now
from lakemirror.errors import LostRaceError, VerificationError
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.replicate import pipeline
from lakemirror.replicate.fence import Fence
from lakemirror.replicate.stage import LocalEngine
from tests.iceberg_files import data_files, delete_positions
from tests.lake import ORDERS, Lake, path_of, rows, uri
from tests.stores import Recorder

pytestmark = pytest.mark.integration


def documents(lake: Lake) -> list[dict[str, Any]]:
    folder = lake.mirror_folder / "shop/orders/_ready"
    return [json.loads((folder / name).read_text()) for name in lake.ready()]


def test_markers_are_a_chain(lake: Lake) -> None:
    orders = lake.create()
    for number in range(3):
        orders.refresh().append(rows(2, 10 * number))
        lake.mirror()
    told = documents(lake)
    assert [(one["version"], one["parent"]) for one in told] == [("v1", None), ("v2", "v1"), ("v3", "v2")]
    assert [one["parent_checksum"] for one in told] == [None, told[0]["checksum"], told[1]["checksum"]]


def test_a_marker_says_what_the_version_is(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    orders.append(rows(3, 3))
    delete_positions(orders, [(data_files(orders)[0], 1)])
    result = lake.mirror()
    (told,) = documents(lake)
    snapshot = orders.refresh().current_snapshot()
    assert snapshot is not None
    sizes = [path_of(one).stat().st_size for one in data_files(orders)]
    deletes = list(path_of(orders.location()).rglob("*-deletes.parquet"))
    assert (told["table"], told["epoch"], told["kind"]) == ("shop.orders", str(orders.metadata.table_uuid), "head")
    assert (told["snapshot_id"], told["sequence_number"]) == (str(snapshot.snapshot_id), 3)
    assert told["source_metadata_location"] == orders.metadata_location
    assert (told["files"], told["bytes"]) == (3, sum(sizes) + sum(path.stat().st_size for path in deletes))
    assert told["manifest_count"] == 3
    metadata = path_of(told["metadata_uri"])
    assert hashlib.sha256(metadata.read_bytes()).hexdigest() == told["metadata_sha256"]
    assert json.loads(metadata.read_text())["snapshots"][0]["manifest-list"] == told["manifest_list_uri"]
    assert hashlib.sha256(path_of(told["index_uri"]).read_bytes()).hexdigest() == told["index_sha256"]
    assert Marker.from_bytes(json.dumps(told).encode(), "x").checksum == told["checksum"]
    assert result.marker == f"file://{lake.mirror_folder}/shop/orders/_ready/v1.ready.json"


def test_data_before_pointers(lake: Lake) -> None:
    """Nothing is written that names what is not there yet; the ready marker is the last but for tidying up."""
    orders = lake.create()
    orders.append(rows(3))
    delete_positions(orders, [(data_files(orders)[0], 1)])
    recorder = Recorder()
    lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
    writes = [(verb, uri.split("shop/orders/")[-1]) for side, verb, uri in recorder.calls if verb in ("put", "delete")]

    def kind(uri: str) -> str | None:
        folder, _, name = uri.partition("/")
        match folder:
            case "data":
                return "file"
            case "metadata":
                return "list" if name.startswith("snap-") else "manifest" if name.endswith(".avro") else "metadata"
            case "_ready" | "_inprogress":
                return folder
            case _:
                return None

    order = [kind(uri) for verb, uri in writes if verb == "put" and kind(uri)]
    assert order == ["file", "file", "manifest", "manifest", "list", "metadata", "_inprogress", "_ready"]
    assert writes[-3:] == [
        ("put", "_ready/v1.ready.json"),
        ("delete", "_inprogress/v1.marker.json"),
        ("put", "_control/lease.json"),
    ]


def test_nothing_is_published_by_a_run_that_was_shut_out_while_it_verified(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is young, and was looked at right before: what counts is whose it is when the marker is put."""
    lake.create().append(rows(3))
    app, verify = lake.app(), pipeline.verify_l0
    layout = TableLayout.of(uri(lake.mirror_folder), ORDERS)

    def shut_out(*arguments: Any) -> int:
        later = utc_now() + timedelta(days=1)
        Fence(app.mirror_store, layout, "somebody else", lambda: later, ttl_s=60, skew_s=0).acquire()
        return verify(*arguments)

    monkeypatch.setattr(pipeline, "verify_l0", shut_out)
    with pytest.raises(LostRaceError, match="somebody else took it over") as caught:
        app.mirror(ORDERS)
    assert (caught.value.exit_code, lake.ready()) == (5, [])


@pytest.mark.parametrize("loss", ["data", "deletes", "manifest"])
def test_a_version_that_is_not_whole_is_not_published(tmp_path_factory: pytest.TempPathFactory, loss: str) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"), defaults={"small_change_files": 0})
    orders = lake.create()
    orders.append(rows(3))
    delete_positions(orders, [(data_files(orders)[0], 1)])
    engine, app = LocalEngine(2), lake.app()
    detected = app.detect(ORDERS)
    uri = detected.plan_uri
    assert uri is not None
    app.plan_diff(ORDERS, uri, str(detected.source_name), engine)
    app.copy_objects(ORDERS, uri, engine)
    app.rewrite_metadata(ORDERS, uri, engine)
    found = [*(lake.mirror_folder / "shop/orders").rglob("*.parquet"), *lake.mirror_folder.rglob("*-m0.avro")]
    by_kind = {
        "deletes": [path for path in found if path.name.endswith("-deletes.parquet")],
        "data": [path for path in found if "/data/" in str(path) and "deletes" not in path.name],
        "manifest": [path for path in found if path.suffix == ".avro"],
    }
    by_kind[loss][0].unlink()
    with pytest.raises(VerificationError, match="it is not in the mirror") as caught:
        app.publish(ORDERS, uri)
    assert (caught.value.exit_code, lake.ready()) == (4, [])
    staged = [path.name for path in (lake.mirror_folder / "shop/orders/_inprogress").iterdir()]
    assert staged == ["v1.marker.json"], "it is staged before it is verified"
    lake.follow()
    assert lake.mirror_head() is None
    if "delete " in caught.value.hint:  # what the hint says is a way out
        shutil.rmtree(path_of(caught.value.hint.split()[1]))
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()

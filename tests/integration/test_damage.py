"""A damaged or vanishing source: a clear error, nothing ready, the mirror's head where it was, and a way out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest
from pyiceberg.table import Table

from lakemirror.errors import LakemirrorError, PermanentError, SourceVanishedError, TransientError
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.port import Blob, ObjectStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.usecases import mirror as mirroring
from tests.avro_bytes import container, header_of, header_size, records
from tests.iceberg_files import commit, data_files, delete_positions, entry, manifest_file, manifests_of
from tests.integration.looking import check_whole
from tests.lake import ORDERS, Lake, path_of, rows

pytestmark = pytest.mark.integration


class Scene:
    """A table mirrored at one commit, with a second commit (data and position deletes) waiting on the source."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.orders: Table = lake.create()
        self.orders.append(rows(3))
        lake.sync()
        self.want, self.head = lake.mirror_rows(), lake.mirror_head()
        before = {one.manifest_path for one in manifests_of(self.orders.refresh())}
        old_files = data_files(self.orders)
        self.orders.append(rows(3, 3))
        (self.data,) = [path_of(path) for path in data_files(self.orders) if path not in old_files]
        self.deletes = path_of(delete_positions(self.orders, [(f"file://{self.data}", 1)]))
        new = [one for one in manifests_of(self.orders.refresh()) if one.manifest_path not in before]
        self.manifest = path_of(next(one.manifest_path for one in new if one.content == 0))
        self.delete_manifest = path_of(next(one.manifest_path for one in new if one.content == 1))
        snapshot = self.orders.current_snapshot()
        assert snapshot is not None
        self.list = path_of(snapshot.manifest_list)
        self.metadata = path_of(self.orders.metadata_location)

    def merge_first_manifest(self) -> None:
        """Carry the mirrored data file over into a new manifest: what the old one held must be known."""
        orders = self.orders
        path = next(path for path in data_files(orders) if path_of(path) != self.data)
        kept = [
            one for one in manifests_of(orders) if path_of(one.manifest_path) in (self.manifest, self.delete_manifest)
        ]
        carried = entry(path, status=0, size=path_of(path).stat().st_size, snapshot_id=1, record_count=3)
        commit(orders, 66, [*kept, manifest_file(orders, [carried], 66)])

    def fails(
        self, error: type[LakemirrorError], says: str | None = None, *, is_readable: bool = True
    ) -> LakemirrorError:
        with pytest.raises(error, match=says) as caught:
            self.lake.mirror()
        self.unharmed(is_readable=is_readable)
        assert caught.value.hint
        return caught.value

    def unharmed(self, *, is_readable: bool = True) -> None:
        self.lake.follow()
        assert self.lake.ready() == ["v1.ready.json"]
        assert self.lake.mirror_head() == self.head
        assert not is_readable or self.lake.mirror_rows() == self.want

    def recovers(self) -> None:
        self.lake.sync()
        assert self.lake.mirror_rows() == self.lake.source_rows()


@pytest.fixture
def scene(lake: Lake) -> Scene:
    return Scene(lake)


FILES = ["metadata", "list", "manifest", "delete_manifest", "deletes", "data"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_vanished_is_transient_and_comes_right_when_it_is_back(scene: Scene, name: str) -> None:
    path: Path = getattr(scene, name)
    data = path.read_bytes()
    path.unlink()
    error = scene.fails(SourceVanishedError)
    assert (error.kind, error.subject) == ("transient", f"file://{path}")
    path.write_bytes(data)
    scene.recovers()


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_in_half(scene: Scene, name: str) -> None:
    path: Path = getattr(scene, name)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    error = scene.fails(PermanentError)
    assert error.subject == f"file://{path}"
    path.write_bytes(data)
    scene.recovers()


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_garbage(scene: Scene, name: str) -> None:
    path: Path = getattr(scene, name)
    data = path.read_bytes()
    path.write_bytes(b"\x00garbage" * 3)
    scene.fails(PermanentError)
    path.write_bytes(data)
    scene.recovers()


@pytest.mark.parametrize("name", ["list", "manifest", "delete_manifest"])
def test_avro_cut_after_its_header_is_not_an_empty_table(scene: Scene, name: str) -> None:
    path: Path = getattr(scene, name)
    data = path.read_bytes()
    path.write_bytes(data[: header_size(data)])
    if name == "list":  # only the summary can tell
        text = scene.metadata.read_text()
        assert '"total-data-files"' in text
        summary = '"total-files-size":"0"'
        scene.metadata.write_text(text.replace(summary, f'{summary},"total-data-files":"2"'))
    scene.fails(PermanentError, "cut|empty")
    path.write_bytes(data)
    scene.recovers()


@pytest.mark.parametrize("name", ["manifest", "delete_manifest"])
def test_a_manifest_whose_end_is_missing_and_whose_list_says_so_too(scene: Scene, name: str) -> None:
    """Its length fits: only the counts of its list tell that live files are missing."""
    path: Path = getattr(scene, name)
    data, whole = path.read_bytes(), scene.list.read_bytes()
    cut = data[: header_size(data)]
    path.write_bytes(cut)
    lengths = {f"file://{path}": len(cut)}
    scene.list.write_bytes(in_blocks(whole, lengths=lengths))
    error = scene.fails(PermanentError, r"fewer entries than its manifest list says \(want 1, got 0\)")
    assert error.subject == f"file://{path}"
    path.write_bytes(data)
    scene.list.write_bytes(whole)
    scene.recovers()


def test_a_data_file_of_another_size_than_its_manifest_says(scene: Scene) -> None:
    data = scene.data.read_bytes()
    scene.data.write_bytes(data + b"more")
    error = scene.fails(PermanentError, rf"want {len(data)}, got {len(data) + 4}")
    assert error.subject == f"file://{scene.data}"
    scene.data.write_bytes(data)
    scene.recovers()


def test_a_manifest_that_names_a_file_that_never_was(scene: Scene) -> None:
    """Only the source can repair that; until then every run says the same and the mirror stays."""
    orders = scene.orders
    path = f"{orders.location()}/data/never.parquet"
    commit(orders, 77, [*manifests_of(orders), manifest_file(orders, [entry(path, snapshot_id=77)], 77)])
    for _ in range(2):
        assert scene.fails(SourceVanishedError).subject == path
    orders.manage_snapshots().rollback_to_snapshot(orders.metadata.snapshots[-2].snapshot_id).commit()
    scene.recovers()


@pytest.mark.parametrize("max_replans", [0, 3])
@pytest.mark.parametrize("stage", ["plan", "copy", "rewrite", "publish"])
def test_the_source_expires_files_between_the_stages(lake: Lake, stage: str, max_replans: int) -> None:
    """A compaction removes what the plan named: the same run plans anew from the new head, if it may."""
    scene = Scene(small_jobs(lake, max_replans))
    engine, detected = LocalEngine(2), lake.app().detect(ORDERS)
    uri = str(detected.plan_uri)
    steps: dict[str, Callable[[str], Any]] = {
        "plan": lambda uri: lake.app().plan_diff(ORDERS, uri, str(detected.source_name), engine),
        "copy": lambda uri: lake.app().copy_objects(ORDERS, uri, engine),
        "rewrite": lambda uri: lake.app().rewrite_metadata(ORDERS, uri, engine),
        "publish": lambda uri: lake.app().publish(ORDERS, uri),
    }
    for name, step in steps.items():
        if name == stage:
            compact_and_expire(scene)
            if max_replans == 0 and stage != "publish":
                with pytest.raises(SourceVanishedError):
                    step(uri)
                scene.unharmed()
                break
        result = step(uri)
        if name != "publish":
            assert (result.plan_uri != uri) == (name == stage)
            uri = result.plan_uri
    if max_replans == 0 or stage == "publish":  # what publish needs is in the mirror
        scene.recovers()
    lake.follow()
    assert len(lake.mirror_rows()) == 9


def in_blocks(data: bytes, count: int | None = None, *, lengths: Mapping[str, int] | None = None) -> bytes:
    """The same manifest list with each record in a block of its own; the first `count` of them.

    `lengths` are what it shall say of some manifests.
    """
    header = header_of(data)
    schema, codec = json.loads(header.pop("avro.schema")), header.pop("avro.codec")
    kept = records(data)[:count]
    for one in kept:
        one["manifest_length"] = (lengths or {}).get(one["manifest_path"], one["manifest_length"])
    return container(schema, [[one] for one in kept], codec=codec, meta=header)


SPOILED = {
    "garbage": lambda data: b"this was a manifest list",
    "nothing": lambda data: b"",
    "header only": lambda data: data[: header_size(data)],
    "one block missing": lambda data: in_blocks(data, -1),
    "a block too many": lambda data: data + data[header_size(data) :],
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_list_that_is_damaged_after_it_was_planned_from(lake: Lake, how: str) -> None:
    """Cut between two blocks it is whole as Avro: nothing but what was seen before tells that manifests are missing."""
    scene = Scene(small_jobs(lake, 3))
    whole = in_blocks(scene.list.read_bytes())
    scene.list.write_bytes(whole)
    engine, detected = LocalEngine(2), lake.app().detect(ORDERS)
    uri = str(detected.plan_uri)
    lake.app().plan_diff(ORDERS, uri, str(detected.source_name), engine)
    lake.app().copy_objects(ORDERS, uri, engine)
    scene.list.write_bytes(SPOILED[how](whole))
    with pytest.raises(TransientError, match="not what was planned from") as caught:
        lake.app().rewrite_metadata(ORDERS, uri, engine)
    assert caught.value.subject == f"file://{scene.list}"
    with pytest.raises(PermanentError, match="not assembled"):
        lake.app().publish(ORDERS, uri)
    scene.unharmed()
    scene.list.write_bytes(whole)
    lake.app().rewrite_metadata(ORDERS, uri, engine)
    lake.app().publish(ORDERS, uri)
    lake.follow()
    assert lake.mirror_rows() == lake.source_rows()


def test_a_plan_from_a_list_that_was_read_wrongly_is_not_taken_up(lake: Lake) -> None:
    """A try read a list without its last block, planned and died: the next one reads it whole, and plans anew."""
    scene = Scene(small_jobs(lake, 3))
    whole = in_blocks(scene.list.read_bytes())
    scene.list.write_bytes(in_blocks(whole, -1))
    detected = lake.app().detect(ORDERS)
    lake.app().plan_diff(ORDERS, str(detected.plan_uri), str(detected.source_name), LocalEngine(2))
    scene.list.write_bytes(whole)
    scene.recovers()


def test_metadata_that_is_overwritten_after_it_was_planned_from(lake: Lake) -> None:
    scene = Scene(small_jobs(lake, 3))
    engine, detected = LocalEngine(2), lake.app().detect(ORDERS)
    uri = str(detected.plan_uri)
    lake.app().plan_diff(ORDERS, uri, str(detected.source_name), engine)
    lake.app().copy_objects(ORDERS, uri, engine)
    whole = scene.metadata.read_text()
    scene.metadata.write_text(json.dumps({**json.loads(whole), "properties": {"new": "1"}}))
    with pytest.raises(TransientError, match="not what was planned from") as caught:
        lake.app().rewrite_metadata(ORDERS, uri, engine)
    assert caught.value.subject == f"file://{scene.metadata}"
    scene.unharmed()
    scene.metadata.write_text(whole)
    scene.recovers()


def test_the_source_expires_files_while_a_small_change_is_copied(lake: Lake) -> None:
    """In the task lane the run plans anew in the middle, and publishes the new head; its time goes on to run."""
    text = lake.config_path.read_text().replace("defaults: {}", "defaults: {copy_deadline_seconds: 600}")
    lake.config_path.write_text(text)
    scene = Scene(lake)
    copied: list[str] = []

    def expiring(side: str, store: ObjectStore) -> ObjectStore:
        return ExpiringStore(store, scene, copied) if side == "source" else store

    with patch.object(mirroring, "copy_objects", wraps=mirroring.copy_objects) as copying:
        result = lake.app(wrap_store=expiring).mirror(ORDERS)
    assert (result.lane, result.copied_files) == ("task", 1)
    first, anew = (call.args[1].copying.settings.deadline_at for call in copying.call_args_list)
    assert first == anew is not None
    lake.follow()
    assert len(lake.mirror_rows()) == 9


def test_a_head_that_names_what_is_gone_is_not_planned_again(scene: Scene) -> None:
    scene.data.unlink()
    error = scene.fails(SourceVanishedError)
    assert error.__notes__ == ["the source's head names it still: no new plan could do without it"]


class ExpiringStore(ForwardingStore):
    """The source is compacted and expired the moment before its first data file is read."""

    def __init__(self, inner: ObjectStore, scene: Scene, copied: list[str]) -> None:
        super().__init__(inner)
        self._scene, self._copied = scene, copied

    def get(self, uri: str, **options: Any) -> Blob:
        if "/data/" in uri and not self._copied:
            self._copied.append(uri)
            compact_and_expire(self._scene)
        return super().get(uri, **options)


def small_jobs(lake: Lake, max_replans: int) -> Lake:
    knobs = f"defaults: {{small_change_files: 0, max_replans: {max_replans}}}"
    lake.config_path.write_text(lake.config_path.read_text().replace("defaults: {}", knobs))
    return lake


def compact_and_expire(scene: Scene) -> None:
    before = {one.manifest_path for one in manifests_of(scene.orders)}
    scene.orders.append(rows(9, 100))
    new = [one for one in manifests_of(scene.orders) if one.manifest_path not in before]
    commit(scene.orders, 88, new)
    gone = [scene.data, scene.deletes, scene.manifest, scene.delete_manifest, scene.list]
    for path in {*gone, *map(path_of, before), scene.metadata}:
        path.unlink()


SECTIONS = ["statistics", "partition-statistics"]


def name_statistics(scene: Scene, section: str, data: bytes) -> Path:
    """The source's head names a statistics file, which is there."""
    path = scene.metadata.parent / "some.stats"
    path.write_bytes(data)
    document = json.loads(scene.metadata.read_text())
    one = {"snapshot-id": document["current-snapshot-id"], "statistics-path": f"file://{path}"}
    one |= {"file-size-in-bytes": len(data), "file-footer-size-in-bytes": 1, "blob-metadata": []}
    document[section] = [one]
    scene.metadata.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("section", SECTIONS)
def test_statistics_that_are_gone_are_left_out_and_told(scene: Scene, section: str) -> None:
    """Engines read a table without them. They come along as soon as they are there again."""
    path = name_statistics(scene, section, b"PFA1")
    path.unlink()
    told = f"statistics whose file is gone at the source: file://{path}"
    assert scene.lake.sync().left_out == (told,)
    assert scene.lake.mirror_rows() == scene.lake.source_rows()
    assert check_whole(scene.lake).metadata[section] == []
    assert scene.lake.mirror().lane == "none"
    scene.orders.refresh().append(rows(1, 50))
    assert scene.lake.sync().left_out == (told,)
    path.write_bytes(b"PFA1")
    scene.orders.refresh().append(rows(1, 60))
    assert scene.lake.sync().left_out == ()
    assert len(check_whole(scene.lake).metadata[section]) == 1


@pytest.mark.parametrize("is_staged", [False, True])
def test_statistics_that_vanish_once_they_are_planned(lake: Lake, *, is_staged: bool) -> None:
    scene = Scene(small_jobs(lake, 3) if is_staged else lake)
    path = name_statistics(scene, "statistics", b"PFA1")
    if is_staged:
        engine, detected = LocalEngine(2), lake.app().detect(ORDERS)
        plan = lake.app().plan_diff(ORDERS, str(detected.plan_uri), str(detected.source_name), engine)
        path.unlink()
        uri = lake.app().copy_objects(ORDERS, str(plan.plan_uri), engine).plan_uri
        lake.app().rewrite_metadata(ORDERS, uri, engine)
        result = lake.app().publish(ORDERS, uri)
    else:
        with patch.object(mirroring, "copy_objects", wraps=mirroring.copy_objects) as copying:
            copying.side_effect = lambda *more: path.unlink(missing_ok=True) or DEFAULT
            result = lake.app().mirror(ORDERS)
    assert result.left_out == (f"statistics whose file is gone at the source: file://{path}",)
    lake.follow()
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


def test_statistics_of_another_size_are_a_stop(scene: Scene) -> None:
    path = name_statistics(scene, "statistics", b"PFA1")
    path.write_bytes(b"PFA1 more")
    assert scene.fails(PermanentError, "its size is not").subject == f"file://{path}"


def test_the_catalog_points_at_nothing(scene: Scene) -> None:
    import sqlite3

    with sqlite3.connect(scene.lake.folder / "source.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = 'file:///nowhere/x.metadata.json'")
    assert scene.fails(SourceVanishedError).subject == "file:///nowhere/x.metadata.json"


def test_a_ref_that_names_a_missing_snapshot(scene: Scene) -> None:
    text = scene.metadata.read_text()
    scene.metadata.write_text(text.replace('"refs":{', '"refs":{"lost":{"snapshot-id":5,"type":"tag"},'))
    scene.fails(PermanentError, r"refs name missing snapshots \[5\]")


@pytest.mark.parametrize("what", ["index", "removed manifest"])
def test_the_mirrors_own_files_are_damaged(scene: Scene, what: str) -> None:
    """What the next step builds on is checked too; it never falls back to a guess."""
    if what == "index":
        (path,) = (scene.lake.mirror_folder / "shop/orders/_ledger/index").glob("*.parquet")
    else:
        (path,) = (scene.lake.mirror_folder / "shop/orders/metadata").glob("*-m0.avro")
        scene.merge_first_manifest()
    data = path.read_bytes()
    for broken in (data[:-20], b"garbage"):
        path.write_bytes(broken)
        assert scene.fails(PermanentError, is_readable=False).subject == f"file://{path}"
    path.unlink()
    assert scene.fails(PermanentError, is_readable=False).subject == f"file://{path}"
    path.write_bytes(data)
    scene.recovers()

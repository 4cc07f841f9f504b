"""The application: which tables it speaks of, what needs a source, and how its calls go together."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lakemirror import bridge
from lakemirror.app import App, config_path
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.errors import PermanentError, UsageError, VerificationError
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from tests.lake import ORDERS, Lake, rows
from tests.stores import Recorder

PATTERN = {"match": "shop.*", "exclude": ["shop.tmp*"]}


def refs(*names: str) -> tuple[TableRef, ...]:
    return tuple(TableRef.parse(name) for name in names)


def test_config_path_as_given_then_environment_then_the_projects_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMIRROR_CONFIG", "/etc/lake.yaml")
    assert (config_path("x.yaml"), config_path()) == ("x.yaml", "/etc/lake.yaml")
    monkeypatch.delenv("LAKEMIRROR_CONFIG")
    assert config_path().endswith("include/config/lakemirror.yaml")


def test_named_tables_in_the_order_given(tmp_path: Path) -> None:
    app = Lake(tmp_path, tables=[{"name": "b.t"}, {"name": "a.t"}]).app()
    assert app.tables(["b.t", "a.t"]) == refs("b.t", "a.t")
    assert app.tables() == app.tables(all=True) == refs("a.t", "b.t")
    for wrong in ("c.t", "t", "a.t.x"):
        with pytest.raises(UsageError):
            app.tables(["a.t", wrong])


def test_patterns_ask_the_source_catalog(tmp_path: Path) -> None:
    lake = Lake(tmp_path, tables=[PATTERN, {"name": "crm.people"}])
    for name in ("shop.orders", "shop.tmp_1", "other.t"):
        lake.create(TableRef.parse(name))
    app = lake.app()
    assert app.tables() == refs("crm.people", "shop.orders")
    assert app.tables(["shop.not_there_yet"]) == refs("shop.not_there_yet")
    with pytest.raises(UsageError, match="no entry of"):
        app.tables(["shop.tmp_1"])


def test_a_followers_patterns_find_tables_that_were_never_followed(tmp_path: Path) -> None:
    """The first follow registers a table: the catalog cannot tell of it, the bucket can."""
    lake = Lake(tmp_path, tables=[PATTERN])
    lake.create().append(rows(1))
    nested = TableRef.parse("shop.eu.orders")
    lake.create(nested).append(rows(1))
    assert lake.follower().tables() == ()
    lake.mirror()
    lake.mirror(nested)
    assert lake.follower().tables() == refs("shop.eu.orders", "shop.orders")
    lake.follow()
    assert lake.follower().tables() == refs("shop.eu.orders", "shop.orders")


def test_what_needs_a_source_says_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    app = lake.follower()
    for ask in (lambda: app.mirror(ORDERS), lambda: app.plan(ORDERS), lambda: app.detect(ORDERS)):
        with pytest.raises(UsageError, match="the configuration has no source"):
            ask()


def test_a_table_the_source_never_had(tmp_path: Path) -> None:
    app = Lake(tmp_path).app()
    with pytest.raises(PermanentError, match="the source catalog has no such table"):
        app.mirror(ORDERS)


def test_plan_writes_nothing_and_tells_what_mirror_does(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    orders = lake.create(partitioned_by=["city"])
    orders.append(rows(3))
    orders.append(rows(3, 3, "Chur"))
    plan = lake.app().plan(ORDERS)
    assert not lake.mirror_folder.exists()
    snapshot = orders.current_snapshot()
    assert snapshot is not None
    size = int(str(snapshot.summary["total-files-size"])) if snapshot.summary else 0
    assert plan.as_json() == {
        "table": "shop.orders",
        "ok": True,
        "from_version": None,
        "to_snapshot_id": str(snapshot.snapshot_id),
        "files": 2,
        "bytes": size,
        "manifest_lists_read": 1,
        "manifests_read": 2,
        "manifests_reused": 0,
        "lane": "task",
    }
    result = lake.mirror()
    assert (result.copied_files, result.copied_bytes) == (2, size)
    assert lake.app().plan(ORDERS).as_json() == {
        **plan.as_json(),
        "from_version": 1,
        "files": 0,
        "bytes": 0,
        "manifest_lists_read": 0,
        "manifests_read": 0,
        "lane": "none",
    }


def test_mirror_goes_on_from_what_detect_found(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    orders = lake.create()
    orders.append(rows(3))
    app = lake.app()
    detected = app.detect(ORDERS)
    assert (detected.lane, detected.version, detected.files_at_most) == ("task", 1, 1)
    assert lake.mirror_objects() == {}
    orders.append(rows(3, 3))
    assert app.mirror(ORDERS, detected=detected).snapshot_id == detected.snapshot_id
    assert app.detect(ORDERS).version == 2


def test_detect_of_an_unchanged_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    app = lake.app()
    detected = app.detect(ORDERS)
    assert (detected.lane, detected.version, detected.plan_uri) == ("none", 1, None)
    result = app.mirror(ORDERS, detected=detected)
    assert (result.lane, result.version, result.copied_files) == ("none", 1, 0)


@pytest.mark.parametrize("change", ["task", "spark"])
def test_the_lane_follows_the_knob(tmp_path: Path, change: str) -> None:
    lake = Lake(tmp_path, defaults={"small_change_files": 1 if change == "task" else 0})
    lake.create().append(rows(3))
    app = lake.app()
    assert app.detect(ORDERS).lane == change
    assert app.mirror(ORDERS, engine=LocalEngine(1)).lane == change


def test_progress_tells_each_stage_from_its_beginning_file_by_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path, defaults={"max_concurrency": 1})
    orders = lake.create()
    for start in (0, 3):
        orders.append(rows(3, start))
    told: list[tuple[str, int, int, int, int]] = []
    result = lake.mirror(progress=lambda *step: told.append(step))
    (half,) = {volume for stage, done, _, volume, _ in told if (stage, done) == ("copy", 1)}
    volume = result.copied_bytes
    assert told == [
        *(("plan", done, 2, 0, 0) for done in range(3)),
        *(("copy", done, 2, copied, volume) for done, copied in enumerate((0, half, volume))),
        *(("rewrite", done, 2, 0, 0) for done in range(3)),
    ]
    assert 0 < half < result.copied_bytes


def test_progress_counts_what_an_earlier_try_copied(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    for path in (lake.mirror_folder / ORDERS.folder).glob("_ready/*"):
        path.unlink()
    told: list[tuple[str, int, int, int, int]] = []
    result = lake.mirror(progress=lambda *step: told.append(step))
    assert (result.copied_files, result.skipped_files) == (0, 1)
    assert [step[:3] for step in told if step[0] == "copy"] == [("copy", 0, 1), ("copy", 1, 1)]


def test_newest_ready_version(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    assert lake.app().newest_ready_version(ORDERS) is None
    lake.mirror()
    assert lake.follower().newest_ready_version(ORDERS) == 1


def test_closing_without_spark_is_nothing(tmp_path: Path) -> None:
    with Lake(tmp_path).app() as app:
        assert isinstance(app, App)


def test_stages_one_by_one_in_processes_that_share_the_bucket_only(tmp_path: Path) -> None:
    lake = Lake(tmp_path, defaults={"small_change_files": 0})
    lake.create().append(rows(3))
    engine = LocalEngine(2)
    detected = lake.app().detect(ORDERS)
    uri = detected.plan_uri
    assert uri is not None
    plan = lake.app().plan_diff(ORDERS, uri, str(detected.source_name), engine)
    copied = lake.app().copy_objects(ORDERS, uri, engine)
    rewritten = lake.app().rewrite_metadata(ORDERS, uri, engine)
    result = lake.app().publish(ORDERS, uri)
    assert (plan.files, copied.files, rewritten.rewritten.manifests) == (1, 1, 1)
    assert (result.version, result.lane, result.copied_files, result.copied_bytes) == (1, "spark", 1, copied.bytes)
    assert result.as_json()["requests"]["source"]["get"] > 0
    lake.follow()
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("stage", ["copy_objects", "rewrite_metadata", "publish"])
def test_a_stage_before_its_time_says_what_is_missing(tmp_path: Path, stage: str) -> None:
    lake = Lake(tmp_path, defaults={"small_change_files": 0})
    lake.create().append(rows(3))
    app = lake.app()
    detected = app.detect(ORDERS)
    uri = detected.plan_uri
    assert uri is not None
    with pytest.raises(PermanentError, match="run plan_diff first"):
        getattr(app, stage)(ORDERS, uri, *([] if stage == "publish" else [LocalEngine(1)]))
    app.plan_diff(ORDERS, uri, str(detected.source_name), LocalEngine(1))
    app.copy_objects(ORDERS, uri, LocalEngine(1))
    with pytest.raises(PermanentError, match="run rewrite_metadata first"):
        app.publish(ORDERS, uri)
    assert lake.ready() == []


def test_names_that_cannot_be_folders_are_refused_by_name(tmp_path: Path) -> None:
    lake = Lake(tmp_path, tables=[PATTERN])
    for table in (ORDERS, TableRef(("shop",), "_tmp"), TableRef(("shop",), "_b"), TableRef(("other",), "_x")):
        lake.create(table)
    app = lake.app()
    assert app.tables(all=True) == (ORDERS,)
    refused = app.refused_tables()
    assert list(refused) == ["shop._b", "shop._tmp"]
    assert refused["shop._tmp"].kind == "usage"
    assert "'_tmp' cannot be a folder of the mirror" in str(refused["shop._tmp"])
    assert "exclude" in refused["shop._tmp"].hint


def test_groups_are_joined_by_one_listing_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that was dropped at the source joins no group, though the bucket knows its name."""
    lake = Lake(tmp_path, tables=[{"match": f"{name}.*", "group": name} for name in ("shop", "crm", "gone")])
    for name in ("shop.orders", "shop.items", "crm.people"):
        lake.create(TableRef.parse(name))
    dropped = TableRef.parse("gone.t")
    lake.create(dropped).append(rows(1))
    lake.mirror(dropped)
    lake.source.drop_table("gone.t")
    (lake.mirror_folder / "_groups/gone.json").unlink()
    listed: list[SqlCatalog] = []
    tables = SqlCatalog.tables

    def seen(catalog: SqlCatalog) -> tuple[TableRef, ...]:
        listed.append(catalog)
        return tables(catalog)

    monkeypatch.setattr(SqlCatalog, "tables", seen)
    app = lake.app()
    app.join_groups()
    assert len(listed) == 1
    found = {path.stem: [*json.loads(path.read_text())["tables"]] for path in lake.mirror_folder.glob("_groups/*.json")}
    assert found == {"shop": ["shop.items", "shop.orders"], "crm": ["crm.people"]}


def test_without_patterns_nothing_is_asked_and_nothing_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.source.close()
    (tmp_path / "source.db").unlink()
    assert (lake.app().tables(), lake.app().refused_tables()) == ((ORDERS,), {})


def test_a_dropped_source_table_stays_among_those_that_a_pattern_matches(tmp_path: Path) -> None:
    lake = Lake(tmp_path, tables=[PATTERN])
    lake.create().append(rows(1))
    lake.sync()
    lake.source.drop_table(str(ORDERS))
    lake.create(TableRef.parse("shop.items"))
    app = lake.app()
    assert app.tables(all=True) == refs("shop.items", "shop.orders")
    assert app.status(ORDERS).source_state == "dropped"


BROKEN = b"not a database" * 100


def test_a_broken_state_database_fails_neither_follow_nor_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    (tmp_path / "state.db").write_bytes(BROKEN)
    result = lake.follow()
    assert (result.version, result.committed, result.first_seen) == (1, True, False)
    status = lake.app().status(ORDERS)
    assert (status.mirror_version, status.visible_at, status.is_behind) == (1, None, False)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert all("shop.orders" in line and "state database" in line for line in warnings)


def test_what_a_run_committed_but_could_not_record_is_recorded_by_the_next(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    (tmp_path / "state.db").write_bytes(BROKEN)
    lake.follow()
    (tmp_path / "state.db").unlink()
    retried, again = lake.follow(), lake.follow()
    assert [(one.version, one.committed, one.first_seen) for one in (retried, again)] == [
        (1, False, True),
        (1, False, False),
    ]
    assert lake.app().status(ORDERS).visible_at is not None


def test_a_version_is_not_recorded_as_visible_before_its_group_knows_it(tmp_path: Path) -> None:
    """A try that fails at the group commits nothing; the one that succeeds is the first to have seen the version."""
    lake = Lake(tmp_path, tables=[{"name": str(ORDERS), "group": "shop"}])
    lake.create().append(rows(3))
    lake.mirror()
    watermark = lake.mirror_folder / "_groups" / "shop.json"
    watermark.parent.mkdir()
    watermark.write_bytes(b"broken")
    with pytest.raises(PermanentError, match="not a watermark"):
        lake.follow()
    watermark.unlink()
    retried, again = lake.follow(), lake.follow()
    assert [(one.version, one.committed, one.first_seen) for one in (retried, again)] == [
        (1, True, True),
        (1, False, False),
    ]


def test_a_head_that_was_demoted_too_late_is_told_all_the_same(tmp_path: Path) -> None:
    """Of a follower that was slow: the marker is no longer ready, and what it said is in the record."""
    lake = Lake(tmp_path, tables=[{"name": str(ORDERS), "group": "shop"}])
    lake.create().append(rows(3))
    lake.sync()
    app = lake.app()
    bridge.demote(app.mirror_store, TableLayout.of(f"file://{lake.mirror_folder}", ORDERS), 1, lambda: None)
    assert lake.follow().version == 1
    assert (app.status(ORDERS).mirror_version, app.status(ORDERS).ready) == (1, ())


def test_a_follow_that_records_its_commit_was_the_first_to_see_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    assert not lake.follow().first_seen
    lake.mirror()
    result = lake.follow()
    assert (result.committed, result.first_seen) == (True, True)


@pytest.mark.parametrize("what", ["data", "manifest"])
def test_the_way_out_that_operations_md_names_for_an_altered_object(tmp_path: Path, what: str) -> None:
    lake = Lake(tmp_path, defaults={"small_change_files": 0})
    lake.create().append(rows(3))
    engine = LocalEngine(1)
    detected = lake.app().detect(ORDERS)
    uri = detected.plan_uri
    assert uri is not None
    lake.app().plan_diff(ORDERS, uri, str(detected.source_name), engine)
    lake.app().copy_objects(ORDERS, uri, engine)
    lake.app().rewrite_metadata(ORDERS, uri, engine)
    folder = lake.mirror_folder / ORDERS.folder
    pattern = "data/**/*.parquet" if what == "data" else "metadata/*-m0.avro"
    (altered,) = folder.glob(pattern)
    whole = altered.read_bytes()
    altered.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(VerificationError, match="its crc32c is wrong"):
        lake.app().publish(ORDERS, uri)
    altered.unlink()
    shutil.rmtree(folder / "_ledger" / uri.rsplit("/", 1)[-1])
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()


def test_an_unchanged_table_costs_no_lease(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    recorder = Recorder()
    assert lake.app(wrap_store=recorder.wrap).mirror(ORDERS).lane == "none"
    assert [(verb, uri.split("shop/orders/")[-1]) for side, verb, uri in recorder.calls] == [
        ("list", "_ready/"),
        ("get", "_ready/v1.ready.json"),
    ]


def test_a_dry_plan_takes_no_lease(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    assert lake.app().plan(ORDERS).files == 1
    assert not lake.mirror_folder.exists()

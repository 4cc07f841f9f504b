"""What every source catalog does: the head in one call, None for what is not there, errors that say what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.model.table import TableRef
from tests.contract.catalog_homes import SOURCES, Home, make_home
from tests.faults.proxy import FaultProxy
from tests.lake import SCHEMA, rows


@pytest.fixture(params=SOURCES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return make_home(request.param, request, tmp_path)


def test_the_head_is_what_the_writer_wrote_last(home: Home) -> None:
    writer = home.writer()
    table = writer.create_table(str(home.table()), SCHEMA)
    catalog = home.source()
    assert catalog.head(home.table()) == table.metadata_location
    assert catalog.head(home.table()) == table.metadata_location
    with table.transaction() as change:
        change.set_properties(color="red")
    assert catalog.head(home.table()) == writer.load_table(str(home.table())).metadata_location
    assert home.source().head(home.table()) == catalog.head(home.table())


@pytest.mark.parametrize("home", ["rest-token", "rest-oauth"], indirect=True)
def test_a_head_that_has_not_moved_is_answered_by_304(home: Home) -> None:
    """By the server itself, for as long as nobody commits."""
    table = home.writer().create_table(str(home.table()), SCHEMA)
    with FaultProxy(home.properties["uri"]) as proxy:
        catalog = home.source(uri=proxy.url)
        for status in (200, 304, 304):
            assert catalog.head(home.table()) == table.metadata_location
            assert proxy.statuses[-1] == status
        with table.transaction() as change:
            change.set_properties(color="red")
        for status in (200, 304):
            assert catalog.head(home.table()) == table.metadata_location
            assert proxy.statuses[-1] == status


def test_what_is_not_there_is_none(home: Home) -> None:
    writer = home.writer()
    writer.create_table(str(home.table()), SCHEMA)
    catalog = home.source()
    for table in (home.table("other"), TableRef(("no_such",), "orders"), TableRef((home.namespace, "inner"), "orders")):
        assert catalog.head(table) is None
    assert catalog.head(home.table()) is not None
    writer.drop_table(str(home.table()))
    assert catalog.head(home.table()) is None
    writer.create_table(str(home.table()), SCHEMA)
    assert catalog.head(home.table()) is not None


def test_all_tables_by_name(home: Home) -> None:
    writer = home.writer()
    names = [home.table(name) for name in ("b", "a", "c_1")]
    if home.has_levels:
        writer.create_namespace((home.namespace, "inner"))
        names.append(TableRef((home.namespace, "inner"), "deep"))
    for table in names:
        writer.create_table((*table.namespace, table.name), SCHEMA)
    found = home.source().tables()
    assert [table for table in found if table.namespace[0] == home.namespace] == sorted(names)
    for table in names:
        assert home.source().head(table) is not None


def test_a_catalog_that_cannot_be_reached_is_transient_and_tells_no_secret(home: Home) -> None:
    home.writer().create_table(str(home.table()), SCHEMA)
    holder = None
    if home.kind == "sqlite":
        holder = sqlite3.connect(home.properties["uri"].removeprefix("sqlite:///"), isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    catalog = home.source(**home.unreachable)
    asks = {str(home.table()): lambda: catalog.head(home.table()), "contract": catalog.tables}
    for subject, ask in asks.items():
        with pytest.raises(TransientError) as caught:
            ask()
        assert caught.value.op
        assert caught.value.subject in (subject, "contract")
        assert caught.value.hint
        assert not any(secret in str(caught.value.as_json()) for secret in home.secrets)
    if holder is not None:
        holder.close()


def test_snapshots_are_pinned_and_let_go(home: Home) -> None:
    """By one commit each, and none where there is nothing to do; tags of others are left alone."""
    table = home.writer().create_table(str(home.table()), SCHEMA)
    for _ in range(2):
        table.append(rows(1))
    old, new = (one.snapshot_id for one in table.metadata.snapshots)
    table.manage_snapshots().create_tag(old, "theirs").create_tag(old, "lakemirror-pin-dead").commit()

    def change(**wanted: int) -> tuple[bool, dict[str, int]]:
        names = {f"lakemirror-pin-{name}": snapshot for name, snapshot in wanted.items()}
        made = home.pins().change(home.table(), names, drops=lambda name: True, seconds=60, now_ms=0)
        refs = home.writer().load_table(str(home.table())).metadata.refs
        return made, {name: ref.snapshot_id for name, ref in refs.items() if name != "main"}

    both = {"theirs": old, "lakemirror-pin-a": old, "lakemirror-pin-b": new}
    assert change(a=old, b=new, gone=1) == (True, both)
    assert change(a=old, b=new) == (False, both)
    assert change() == (True, {"theirs": old})
    assert change() == (False, {"theirs": old})


def test_a_pin_is_renewed_once_half_of_its_time_is_over(home: Home) -> None:
    """Not each time that it is found: a commit is another state of the source, and makes another plan."""
    table = home.writer().create_table(str(home.table()), SCHEMA)
    table.append(rows(1))
    snapshot = table.metadata.snapshots[0]

    def ends_after(seconds: int) -> tuple[bool, int]:
        """Look again so long after the snapshot was made; when the pin ends by then."""
        now_ms = snapshot.timestamp_ms + seconds * 1000
        names = {"lakemirror-pin-a": snapshot.snapshot_id}
        made = home.pins().change(home.table(), names, drops=lambda name: True, seconds=60, now_ms=now_ms)
        age_ms = home.writer().load_table(str(home.table())).metadata.refs["lakemirror-pin-a"].max_ref_age_ms
        return made, (age_ms or 0) // 1000

    assert ends_after(0) == (True, 60)
    assert ends_after(29) == (False, 60)
    assert ends_after(31) == (True, 91)
    assert ends_after(500) == (True, 560), "nobody had expired it yet"


def test_a_pin_that_cannot_be_set_is_transient_and_tells_no_secret(home: Home) -> None:
    with pytest.raises(TransientError, match="source_pin_seconds") as caught:
        home.pins().change(home.table("no_such"), {}, drops=lambda name: True, seconds=60, now_ms=0)
    assert caught.value.subject == str(home.table("no_such"))
    assert not any(secret in str(caught.value.as_json()) for secret in home.secrets)


def test_no_secret_is_shown(home: Home) -> None:
    assert not any(secret in repr(home.source()) for secret in home.secrets)


@pytest.mark.parametrize("home", ["rest-token", "rest-oauth"], indirect=True)
def test_a_wrong_login_is_permanent_and_not_repeated(home: Home) -> None:
    other = {"token": "wrong-token"} if home.kind == "rest-token" else {"credential": "wrong:wrong-secret"}
    with pytest.raises(PermanentError) as caught:
        home.source(**other).head(home.table())
    assert "401" in caught.value.message
    assert caught.value.hint
    assert "wrong-" not in str(caught.value)


@pytest.mark.parametrize("home", ["rest-token"], indirect=True)
def test_an_address_that_is_no_catalog(home: Home) -> None:
    wrong = home.properties["uri"] + "/elsewhere"
    with pytest.raises(LakemirrorError, match="contract"):
        home.source(uri=wrong).head(home.table())


@pytest.mark.parametrize("home", ["hive", "glue"], indirect=True)
def test_a_table_of_another_kind_is_named(home: Home) -> None:
    make_plain_table(home)
    with pytest.raises(PermanentError, match="it is not an Iceberg table"):
        home.source().head(home.table("plain"))
    assert home.table("plain") not in home.source().tables()


def make_plain_table(home: Home) -> None:
    writer = home.writer()
    if home.kind == "glue":
        writer.glue.create_table(DatabaseName=home.namespace, TableInput={"Name": "plain", "Parameters": {}})
        return
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table

    place = StorageDescriptor([], f"{home.location}/plain", "i", "o", serdeInfo=SerDeInfo(serializationLib="s"))
    with writer._client as client:
        client.create_table(Table(dbName=home.namespace, tableName="plain", sd=place, partitionKeys=[], parameters={}))

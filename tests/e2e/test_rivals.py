"""What goes wrong with Iceberg's `rewrite_table_path` goes right here, judged by Spark SQL and DuckDB.

Each docstring says what release 1.11.0 of it was seen to do in the same situation, by
`python -m tests.perf.rivals.observe`; `docs/compared.md` has the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from tests.avro_bytes import header_size
from tests.e2e import situations
from tests.e2e.history import History
from tests.e2e.installation import Installation, objects
from tests.judge import TableOf
from tests.lake import path_of


@dataclass(frozen=True)
class Ours:
    """The mirrors of one source: made in the task, and by the stages that share nothing but the bucket, as on Spark.

    Spark's own engine is tried by the histories of the other files; its tasks run the same stages.
    """

    history: History
    lanes: tuple[Installation, ...]

    def with_roots(self, **roots: str) -> Ours:
        return replace(self, lanes=tuple(replace(one, roots=roots).write() for one in self.lanes))

    def check(self) -> list[TableOf]:
        """Mirror; every ref, every retained snapshot, every size and all metadata must be the source's."""
        history = self.history
        assert [one.sync(history.name).lane for one in self.lanes] == ["task", "spark"]
        mirrors = [one.theirs(history.name) for one in self.lanes]
        roots = {place: f"_roots/{name}" for name, place in self.lanes[0].roots.items()}
        assert history.judge.differences(history.table, *mirrors, roots=roots) == []
        return mirrors

    def count(self) -> set[int]:
        """The numbers of rows that readers of the mirrors find, once all is judged equal."""
        return {self.history.judge.rows(mirror).total() for mirror in self.check()}


@pytest.fixture
def ours(history: History) -> Ours:
    return Ours(history, (history.lanes["task"], replace(history.lanes["spark"], engine=LocalEngine(2))))


def entries(history: History, status: int, content: int) -> list[str]:
    """The paths of the entries of this status in all manifests of the head."""
    rows = history.judge.spark.sql(
        f"SELECT data_file.file_path AS path FROM {history.t}.entries "
        f"WHERE status = {status} AND data_file.content = {content}"
    )
    return [row["path"] for row in rows.collect()]


def test_live_entries_of_expired_snapshots(history: History, ours: Ours) -> None:
    """#14458. Theirs: ends well and leaves the live files out of its list; reading the copy fails, files are gone."""
    situations.live_entries_of_expired_snapshots(history)
    ours.check()


def test_lengths_of_manifests(history: History, ours: Ours) -> None:
    """#13719. Theirs: `manifest_length` is still that of the source's manifest, 32 bytes short of the file."""
    situations.plain_appends(history)
    for table in (history.table, *ours.check()):
        for row in history.judge.spark.sql(f"SELECT path, length FROM {table.sql}.all_manifests").collect():
            assert path_of(row["path"]).stat().st_size == row["length"]


def test_tombstones_of_delete_files(history: History, ours: Ours) -> None:
    """#16662, #17498, #12586. Theirs: fails with NotFoundException at a delete file that only a tombstone names."""
    situations.tombstones_of_delete_files(history)
    gone = entries(history, status=2, content=1)
    assert gone
    assert not any(path_of(path).exists() for path in gone)
    ours.check()


def test_two_roots(history: History, ours: Ours) -> None:
    """#17794. Theirs: fails, because the data path does not start with its one prefix."""
    elsewhere = situations.two_roots(history)
    ours = ours.with_roots(data=elsewhere)
    ours.check()
    for folder in (one.folder(history.name) for one in ours.lanes):
        for part in ("metadata", "_roots/data"):
            assert history.judge.traces(folder / part, str(history.source.folder)) == []


def test_a_list_that_cannot_be_read(history: History, ours: Ours) -> None:
    """Theirs: fails, too, where a list is damaged from the beginning."""
    damaged = situations.a_tag_whose_list_is_damaged(history)
    for one in ours.lanes:
        before = objects(one.mirror.folder)
        with pytest.raises(PermanentError) as raised:
            one.sync(history.name)
        assert raised.value.subject == damaged
        assert objects(one.mirror.folder) == before


def test_a_list_that_fails_midway(history: History, ours: Ours) -> None:
    """Theirs: a list that cannot be read when its turn comes is logged and staged as an empty list: 59 of 60 snapshots
    were empty in the copy, and the procedure ended well. More ways to damage one: `tests/integration/test_damage.py`.
    """
    situations.plain_appends(history)
    (_, staged), table = ours.lanes, TableRef.parse(history.name)
    app, engine = staged.app("this run"), LocalEngine(2)
    detected = app.detect(table)
    plan = str(detected.plan_uri)
    app.plan_diff(table, plan, str(detected.source_name), engine)
    app.copy_objects(table, plan, engine)
    damaged = path_of(history.judge.metadata(history.table)["snapshots"][-1]["manifest-list"])
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: header_size(whole)])
    with pytest.raises(TransientError) as raised:
        app.rewrite_metadata(table, plan, engine)
    assert path_of(raised.value.subject) == damaged
    damaged.write_bytes(whole)
    app.rewrite_metadata(table, plan, engine)
    app.publish(table, plan)
    app.follow(table)
    assert history.judge.differences(history.table, staged.theirs(history.name)) == []


def test_deletes_that_name_their_file(history: History, ours: Ours) -> None:
    """Theirs: `referenced_data_file` stays the source's, so the deletes match nothing: 2 deleted rows come back."""
    situations.deletes_that_name_their_file(history)
    assert ours.count() == {18}


def test_vectors_that_share_a_file(history: History, ours: Ours) -> None:
    """Theirs: fails with AlreadyExistsException, because it writes the Puffin file once for each vector in it."""
    situations.vectors_that_share_a_file(history)
    ours.check()


def test_a_vector_after_a_gap(history: History, ours: Ours) -> None:
    """Theirs: ends well; vectors move up and offsets stay, so reading the copy fails on an invalid bitmap."""
    situations.a_vector_after_a_gap(history)
    assert ours.count() == {17}


def test_compaction_beside_equality_deletes(history: History, ours: Ours) -> None:
    """Theirs: an added entry loses the sequence number that it has of its own, so deletes that are younger than the
    compacted rows no longer apply to them: 3 deleted rows come back.
    """
    situations.compaction_beside_equality_deletes(history)
    assert ours.count() == {17}


def test_a_sibling_of_the_location(history: History, ours: Ours) -> None:
    """Theirs: fails at `t_old`, which begins like its prefix `t`; there is no way to name a second root."""
    sibling = situations.a_sibling_of_the_location(history)
    for one in ours.lanes:
        with pytest.raises(PermanentError, match="lies under no known root"):
            one.sync(history.name)
    ours.with_roots(old=sibling).check()


def test_two_spellings(history: History, ours: Ours) -> None:
    """Theirs: fails; `file:///` is "not under the source prefix" `file:/`."""
    situations.two_spellings(history)
    ours.check()


def test_sizes_of_position_deletes(history: History, ours: Ours) -> None:
    """#12554. Theirs: manifests still have the sizes of the source's delete files; 1,487 bytes claimed, 1,612 there."""
    situations.position_deletes_of_another_size(history)
    ours.check()


def test_a_comma_in_keys(history: History, ours: Ours) -> None:
    """Theirs: lines of its file list have three fields, and nothing tells which comma is the separator."""
    situations.a_comma_in_keys(history)
    ours.check()


def test_a_metadata_log_that_has_rolled_over(history: History, ours: Ours) -> None:
    """Theirs: fails; the version that the copy has is no longer in the metadata log, so only a full run is left."""
    situations.a_log_that_will_roll_over(history)
    ours.check()
    mirrored = situations.metadata_file(history).name
    situations.roll_the_log_over(history)
    log = [entry["metadata-file"] for entry in history.judge.metadata(history.table)["metadata-log"]]
    assert mirrored not in {place.rpartition("/")[2] for place in log}
    ours.check()

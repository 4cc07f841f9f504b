"""Random histories of a table made by hand: a few with a new seed in each run, the end of each judged by DuckDB too.

The same again: `make test T=tests/integration/test_random_histories.py PYTEST_ARGS="--history-seed=123"`. For hours:
`make soak`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.replicate import detect as detecting
from lakemirror.replicate.index import VersionIndex
from tests.duckdb_judge import DuckDbJudge
from tests.histories.machine import EXAMPLES, replay, run
from tests.histories.mirroring import SyntheticHistory
from tests.histories.seeded import HistoryFailed

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDbJudge]:
    judge = DuckDbJudge()
    yield judge
    judge.close()


@pytest.mark.timeout(600)  # a failure is shortened, which takes a while
def test_a_mirror_follows_any_history(duckdb: DuckDbJudge, history_seed: int) -> None:
    """What the other engines cannot read depends on what was drawn: of 20 heads it was 8 at most, in a dozen seeds."""
    read, unjudged = duckdb.read, duckdb.unjudged
    run(lambda history: history.end(duckdb), history_seed)
    print(duckdb.told())
    assert duckdb.unjudged - unjudged <= EXAMPLES * 3 // 5, "heads that no other engine read"
    assert duckdb.read - read >= EXAMPLES // 2, "heads, refs and snapshots that DuckDB compared"


def test_duckdb_finds_fault_at_the_end(duckdb: DuckDbJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that was altered in the mirror, where our own reader is made to look away."""
    history = SyntheticHistory(tmp_path, 2, 0, {})
    history.append(1, 2, 3)
    history.end(duckdb)
    first, second, *_ = sorted((history.lake.mirror_folder / "shop/orders/data").rglob("*.parquet"))
    second.write_bytes(first.read_bytes())
    monkeypatch.setattr(history.comparison, "check", lambda *args: None)
    monkeypatch.setattr(history, "compare_by_pyiceberg", lambda: False)
    with pytest.raises(AssertionError, match="only in source"):
        history.end(duckdb)


def test_duckdb_finds_fault_with_an_earlier_version(
    duckdb: DuckDbJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head has none of the files of the first version; of those one was altered."""
    history = SyntheticHistory(tmp_path, 2, 0, {})
    history.append(0, 2, 0)
    history.sync(0, 0, 1)
    folder = history.lake.mirror_folder / "shop/orders/data"
    first, second, *_ = sorted(folder.rglob("*.parquet"))
    history.replace(0, 1, 0)
    history.end(duckdb)
    second.write_bytes(first.read_bytes())
    monkeypatch.setattr(history.comparison, "check", lambda *args: None)
    with pytest.raises(AssertionError, match="only in source"):
        history.end(duckdb)


def test_a_mirror_that_forgets_tags_is_found_in_a_few_steps(
    duckdb: DuckDbJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = metadata_json._refs

    def forgetful(*args: object) -> metadata_json.Json:
        return {name: ref for name, ref in refs(*args).items() if ref["type"] == "branch"}  # type: ignore[arg-type]

    monkeypatch.setattr(metadata_json, "_refs", forgetful)
    with pytest.raises(HistoryFailed) as caught:
        run(lambda history: history.end(duckdb), 1)
    short = caught.value.short
    assert len(short.steps) <= 4, short
    assert "name_a_snapshot" in {name for name, *_ in short.steps}
    monkeypatch.undo()
    replay(lambda history: history.end(duckdb), short)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_recreated_table_with_the_old_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_mixed: bool
) -> None:
    """What `recreate` does: a mirror that puts both tables into one folder is found."""
    history = SyntheticHistory(tmp_path, 2, 0, {})
    history.append(1, 2, 3)
    history.sync(0, 0, 0)
    history.recreate(0, 4, 0)
    history.append(1, 3, 3)
    if not is_mixed:
        history.sync(0, 0, 0)
        return
    known = detecting._known
    monkeypatch.setattr(detecting, "_known", lambda *args, is_first: known(*args, is_first=True))
    with pytest.raises(PermanentError, match="another object"):
        history.sync(0, 0, 0)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_root_that_was_away_and_comes_back_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> None:
    """What `drop_a_root` does: a mirror that forgets the roots of earlier versions is found."""
    history = SyntheticHistory(tmp_path, 2, 0, {})
    history.append(0, 1, 0)
    history.sync(0, 0, 1)
    history.add_a_root(0, 0, 0)
    history.write_data_elsewhere(0, 1, 0)
    history.append(0, 1, 0)
    history.sync(0, 0, 1)
    history.drop_a_root(0, 1, 0)
    history.source.data_home = None
    history.append(0, 1, 0)
    history.sync(0, 0, 1)
    assert history.away
    history.delete_positions(1, 63, 2)
    if forgets:
        monkeypatch.setattr(VersionIndex, "ever", property(lambda index: index.paths))
        with pytest.raises(AssertionError, match="rows of snapshot"):
            history.sync(0, 0, 1)
    else:
        history.sync(0, 0, 1)
    assert not history.away


@pytest.mark.parametrize("forgets", [False, True])
def test_lists_that_were_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forgets: bool) -> None:
    """What `move_lists` does: a mirror that knows snapshots by their ids alone is found."""
    history = SyntheticHistory(tmp_path, 2, 0, {})
    history.append(0, 1, 0)
    history.sync(0, 0, 1)
    history.move_lists(0, 0, 0)
    if forgets:
        monkeypatch.setattr(VersionIndex, "moved", lambda index, lists: frozenset())
        with pytest.raises(PermanentError, match="this manifest list is not in the bucket"):
            history.sync(0, 0, 1)
    else:
        history.sync(0, 0, 1)

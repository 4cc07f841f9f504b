"""What of the engine can be told without a JVM."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock, create_autospec, patch

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from lakemirror.errors import LakemirrorError, PermanentError, SourceVanishedError, TransientError
from lakemirror.replicate.plan import ENTRY
from lakemirror.spark import engine as engines
from lakemirror.spark import failures
from lakemirror.spark.engine import SparkEngine
from lakemirror.storage.port import ThrottledError


def session_of(cores: int) -> MagicMock:
    session: MagicMock = create_autospec(SparkSession, instance=True)
    session.sparkContext.defaultParallelism = cores
    return session


@pytest.mark.parametrize(("most", "cores", "want"), [(100, 8, 8), (3, 8, 3), (0, 8, 1), (5, 1, 1)])
def test_no_more_tasks_are_made_than_may_work_at_once(most: int, cores: int, want: int) -> None:
    """However many executors come later: there are no more tasks than that."""
    session = session_of(cores)
    engine, processes = SparkEngine(session).narrow(most)
    assert processes == want
    engine._spread(pa.table({"uri": ["x"] * 50}), lambda batches: batches)
    session.sparkContext.parallelize.assert_called_once_with(range(want), want)


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        ({"uri": ["a"] * 50}, 50),
        ({"length": [1] * 5}, 5),
        ({"length": [1] * 50}, 8),
        ({"source_length": [1 << 20] * 1000}, 63),
        ({"source_length": [1 << 30] * 3}, 3),
    ],
)
def test_light_rows_share_a_task(rows: dict[str, list[Any]], want: int) -> None:
    session = session_of(2)
    table = pa.table(rows)
    SparkEngine(session)._spread(table, lambda batches: batches)
    session.sparkContext.parallelize.assert_called_once_with(range(want), want)


@pytest.mark.parametrize("column", ["weight", "length", "source_length"])
def test_tasks_get_rows_of_about_the_same_weight(column: str) -> None:
    """The ranges of large files come first: cut as they stand, the first tasks would have them all."""
    session = session_of(4)
    weights = [512, 512, 512, 512, 512, 512, 8, 8, 8, 8, 8, 8]
    table = pa.table({"uri": [str(number) for number in range(12)], column: weights})
    engine, processes = SparkEngine(session).narrow(4)
    engine._spread(table, lambda batches: batches)
    dealt = session.sparkContext.parallelize.return_value.mapPartitions.call_args.args[0]
    tasks = [[row for batch in dealt(iter([task])) for row in batch.to_pylist()] for task in range(processes)]
    assert sorted(row["uri"] for task in tasks for row in task) == sorted(table["uri"].to_pylist())
    assert sorted(sum(row[column] for row in task) for task in tasks) == [536, 536, 1024, 1024]
    assert all(len(task) > 1 for task in tasks)


BESIDE_KNOWN = pa.schema(
    [*ENTRY, *(pa.field(f"known_{name}", ENTRY.field(name).type) for name in ("size", "lower", "upper"))]
)


def files(*names: str, size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"target": name, "size": size, "kind": "data"} for name in names], ENTRY)


def bundled(batches: list[pa.RecordBatch], parts: int, *, is_new: bool) -> list[tuple[int, engines.Bundle]]:
    """What tasks hand to Spark when the stage gives these batches."""
    return list(engines._Bundled(lambda _: iter(batches), parts, is_new=is_new)(iter(())))


def packed(bundles: list[tuple[int, engines.Bundle]], part: int) -> list[dict[str, Any]]:
    """What becomes of one part, as Spark brings it together; an error that comes back is raised."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()

    answers = engines._Enveloped(engines._Unbundled(pack, ENTRY))(one for one in bundles if one[0] == part)
    return engines._open(answers, BESIDE_KNOWN).to_pylist()


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_new_entries_meet_what_is_known_of_them_whatever_the_number_of_parts(parts: int) -> None:
    """A target that several manifests name comes once; what is known and no longer wanted does not come."""
    names = [f"file:///mirror/{number}" for number in range(40)]
    new = [files(*names[:30], size=3), files(*names[20:40], size=3)]
    old = [files(*names[:10], size=4), files(names[5], "file:///mirror/gone", size=4)]
    bundles = bundled(new, parts, is_new=True) + bundled(old, parts, is_new=False)
    assert {part for part, _ in bundles} == set(range(parts))
    rows = [row for part in range(parts) for row in packed(bundles, part)]
    found = [(row["target"], row["size"], row["known_size"]) for row in rows]
    assert sorted(found) == sorted((name, 3, 4 if name in names[:10] else None) for name in names)


def test_few_bundles_of_many_entries() -> None:
    """Entries come in small batches; what Spark moves is few rows, however many manifests there were."""
    batches = [files(*(f"{number}/{at}" for at in range(10))) for number in range(1000)]
    assert len(bundled(batches, 4, is_new=True)) <= 4 * (10_000 // (4 * engines._BUNDLE_ROWS) + 1)


def test_an_error_that_turns_up_after_the_check_is_raised_not_packed() -> None:
    """Entries that were lost with their executor are read again while they are packed; the source may be gone."""

    def vanishes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield files("a")
        raise SourceVanishedError("read manifest", "s3://b/m", "the manifest is gone", "run again")

    parts = 3
    bundles = list(engines._Bundled(vanishes, parts, is_new=True)(iter(())))
    met = engines._errors(one for one in bundles if one[0] == parts)
    assert [type(failures.revive(text)) for text in met] == [SourceVanishedError]
    for part in range(parts):  # whichever of them asks for the work that was lost
        with pytest.raises(SourceVanishedError, match="the manifest is gone"):
            packed(bundles, part)


@pytest.mark.parametrize("is_first", [True, False])
def test_of_several_tasks_that_failed_the_one_that_needs_a_new_plan_is_told(is_first: bool) -> None:
    met = [
        SourceVanishedError("copy", "s3://b/f", "it is gone", "run again"),
        TransientError("copy", "s3://b/g", "503"),
    ]
    answers = [(None, failures.describe(err)) for err in (met if is_first else reversed(met))]
    with pytest.raises(SourceVanishedError):
        engines._open(answers, pa.schema([]))


@pytest.mark.parametrize(("attempt", "want"), [(None, False), (0, False), (1, True), (3, True)])
def test_a_task_knows_that_it_was_begun_before(attempt: int | None, want: bool) -> None:
    """As the function that travels to it, without the session."""
    context = None if attempt is None else create_autospec(TaskContext, instance=True)
    if context is not None:
        context.attemptNumber.return_value = attempt
    is_repeated = pickle.loads(pickle.dumps(SparkEngine(session_of(1)).is_repeated))
    with patch.object(TaskContext, "get", return_value=context):
        assert is_repeated() is want


def test_the_notes_of_an_error_travel_with_it() -> None:
    err = ThrottledError("copy", "s3://b/g", "503", "run again")
    err.add_note("gave up: this task has used up its copy_retry_budget")
    there = failures.revive(failures.describe(err))
    assert (type(there), str(there), there.notes) == (TransientError, str(err), err.notes)


@pytest.mark.parametrize(
    ("err", "attempts", "is_repeated", "escapes"),
    [
        (TransientError("copy", "s3://b/g", "503"), 2, True, True),
        (ThrottledError("copy", "s3://b/g", "503"), 2, True, True),
        (TransientError("copy", "s3://b/g", "503"), 2, False, False),
        (TransientError("copy", "s3://b/g", "503"), 1, True, False),
        (SourceVanishedError("copy", "s3://b/g", "it is gone"), 2, True, False),
        (PermanentError("copy", "s3://b/g", "other bytes"), 2, True, False),
    ],
)
@pytest.mark.parametrize("is_bundled", [False, True])
def test_a_twin_that_fails_does_not_end_its_first_attempt(
    err: LakemirrorError, attempts: int, is_repeated: bool, escapes: bool, is_bundled: bool
) -> None:
    """Spark would take what it hands back for the result, and end the other one, which may be well."""

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise err

    work = engines._Bundled(failing, 1, attempts, is_new=True) if is_bundled else engines._Enveloped(failing, attempts)
    with patch.object(SparkEngine, "is_repeated", staticmethod(lambda: is_repeated)):
        if escapes:
            with pytest.raises(failures.EscapedError):
                list(work(iter(())))
        else:
            assert list(work(iter(())))


def test_there_are_as_many_parts_as_old_and_new_manifests_together_ask_for() -> None:
    """A part is packed in the memory of one task, what is known included."""
    session = session_of(2)
    session.sparkContext.runJob.return_value = []
    light, heavy = pa.table({"length": [1 << 20]}), pa.table({"length": [1 << 30]})
    parts = []
    for new, old in ((light, heavy), (heavy, light), (light, light)):
        SparkEngine(session).diff(lambda _: iter(()), ENTRY, new, old, lambda _: iter(()), ENTRY)
        parts.append(len(session.sparkContext.runJob.call_args.args[2]))
    assert parts == [33, 33, 1]

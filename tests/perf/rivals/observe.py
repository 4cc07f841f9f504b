"""What `rewrite_table_path` does in the situations of `tests/e2e/situations.py`: run it, do what it says, look.

    python -m tests.perf.rivals.observe [SITUATION…]

As a user would: call the procedure, copy what its file list names, register the metadata file that it names, and let
the judges compare. Prints what was seen; `docs/compared.md` holds the answer.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException

from tests.avro_bytes import records
from tests.e2e import situations
from tests.e2e.history import History, start_history
from tests.judge import Judge, TableOf
from tests.lake import path_of

SITUATIONS: list[Callable[[History], object]] = [
    situations.live_entries_of_expired_snapshots,
    situations.plain_appends,
    situations.tombstones_of_delete_files,
    situations.two_roots,
    situations.a_tag_whose_list_is_damaged,
    situations.deletes_that_name_their_file,
    situations.vectors_that_share_a_file,
    situations.a_vector_after_a_gap,
    situations.compaction_beside_equality_deletes,
    situations.a_sibling_of_the_location,
    situations.two_spellings,
    situations.position_deletes_of_another_size,
    situations.a_comma_in_keys,
    situations.a_log_that_will_roll_over,
]


def observe(judge: Judge, folder: Path, situation: Callable[[History], object]) -> list[str]:
    history = start_history(judge, folder)
    situation(history)
    versions = ""
    if situation is situations.a_log_that_will_roll_over:
        versions = f", start_version => '{situations.metadata_file(history).name}'"
        situations.roll_the_log_over(history)
    source = judge.metadata(history.table)["location"]
    target = f"file:{folder}/a-place-with-a-much-longer-name-than-the-source/warehouse/db/t"
    try:
        (row,) = judge.spark.sql(
            f"CALL {history.source.name}.system.rewrite_table_path(table => '{history.name}', "
            f"source_prefix => '{source}', target_prefix => '{target}', "
            f"staging_location => 'file:{folder}/staging'{versions})"
        ).collect()
    except (PySparkException, Py4JJavaError) as err:
        return [f"the procedure fails: {_first_line(err)}"]
    said = copy_listed(path_of(row["file_list_location"]))
    theirs = judge.open_lake(f"{history.source.name}_theirs", folder / "theirs")
    mirror = TableOf(theirs, history.name)
    try:
        judge.spark.sql(f"CREATE NAMESPACE {theirs.name}.db")
        judge.spark.sql(
            f"CALL {theirs.name}.system.register_table(table => '{history.name}', "
            f"metadata_file => '{target}/metadata/{row['latest_version']}')"
        ).collect()
        said += judge.differences(history.table, mirror)
    except (PySparkException, Py4JJavaError) as err:
        said.append(f"reading the copy fails: {_first_line(err)}")
    try:
        ours, copied = judge.rows(history.table).total(), judge.rows(mirror).total()
        said.append(f"rows: source {ours}, copy {copied}")
    except (PySparkException, Py4JJavaError) as err:
        said.append(f"reading the copy fails: {_first_line(err)}")
    return said


def observe_a_list_that_fails_midway(judge: Judge, folder: Path) -> list[str]:
    """A manifest list that could be read when manifests were looked for, and cannot when it is its turn."""
    history = start_history(judge, folder)
    history.create("id INT, name STRING", location=situations.home(history))
    for _ in range(60):
        history.insert("VALUES (1, 'n')")
    lists = [path_of(one["manifest-list"]) for one in judge.metadata(history.table)["snapshots"]]
    staging, damaged, done = folder / "staging" / "metadata", set[str](), threading.Event()

    def damage_what_is_left() -> None:
        while not done.wait(0.0005):
            staged = {path.name for path in staging.glob("snap-*.avro")} if staging.exists() else set()
            if staged:
                for path in lists:
                    if path.name not in staged and not (staging / path.name).exists():
                        path.write_bytes(b"no list")
                        damaged.add(path.name)
                return

    thread = threading.Thread(target=damage_what_is_left, daemon=True)
    thread.start()
    try:
        said = [f"the procedure ends well, {len(lists)} snapshots"]
        judge.spark.sql(
            f"CALL {history.source.name}.system.rewrite_table_path(table => '{history.name}', "
            f"source_prefix => '{situations.home(history)}', target_prefix => 'file:{folder}/mirror', "
            f"staging_location => 'file:{folder}/staging')"
        ).collect()
    except (PySparkException, Py4JJavaError) as err:
        said = [f"the procedure fails: {_first_line(err)}"]
    finally:
        done.set()
        thread.join()
    empty = [path.name for path in staging.glob("snap-*.avro") if not records(path.read_bytes())]
    return [*said, f"lists that could not be read: {len(damaged)}; staged without a single manifest: {len(empty)}"]


def copy_listed(file_list: Path) -> list[str]:
    """Copy what the file list names; gives what could not be copied, in words."""
    said = []
    for part in sorted([file_list] if file_list.is_file() else file_list.glob("part-*")):
        for line in part.read_text().splitlines():
            fields = line.split(",")
            if len(fields) != 2:
                said.append(f"a line of the file list has {len(fields)} fields: {line[-160:]}")
                continue
            source, target = map(path_of, fields)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.exists():
                shutil.copyfile(source, target)
            else:
                said.append(f"the file list names a file that is not there: {source}")
    return said


def _first_line(err: Exception) -> str:
    """What the error says, and what was the cause of it."""
    lines = [line.strip() for line in str(err).splitlines()]
    told = [line for line in lines if line.startswith(("Caused by:", ": "))] or lines[:1]
    return " | ".join(dict.fromkeys(line[:300] for line in told))


def main(names: list[str]) -> int:
    judge = Judge(Path(tempfile.mkdtemp(prefix="lakemirror-judge-")))
    try:
        for situation in SITUATIONS:
            if names and situation.__name__ not in names:
                continue
            folder = Path(tempfile.mkdtemp(prefix="lakemirror-observe-"))
            print(f"== {situation.__name__}", flush=True)
            for line in observe(judge, folder, situation):
                print(f"   {line}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
        if not names or "a_list_that_fails_midway" in names:
            folder = Path(tempfile.mkdtemp(prefix="lakemirror-observe-"))
            print("== a_list_that_fails_midway", *observe_a_list_that_fails_midway(judge, folder), sep="\n   ")
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        judge.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

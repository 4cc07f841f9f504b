"""Kill -9 any Spark job, or the command line, at any moment and run it again: it finishes, with the same bytes.

The reference is one undisturbed run to the very same mirror location, moved aside before the others start.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from lakemirror.spark.library import build_archive, spark_conf
from tests.e2e.installation import Installation, objects
from tests.e2e.processes import Program, small_jvm, spark_submit, until
from tests.judge import ROOT, Judge, TableOf

pytestmark = pytest.mark.timeout(400)

NAME = "db.t"
TABLE = TableRef.parse(NAME)
INSERTS, PARTITIONS = 8, 6
FILES = INSERTS * PARTITIONS
JOB_TIMEOUT_S = 90
ABOUT_ONE_JOB_S = 8.0
ABOUT_ONE_COMMAND_S = 3.0


@dataclass(frozen=True)
class Scene:
    """A table on the source, and what an undisturbed run makes of it."""

    judge: Judge
    source: TableOf
    installation: Installation
    reference: Path
    scratch: Path

    @property
    def mirror(self) -> Path:
        return self.installation.folder(NAME)

    def clear_mirror(self) -> None:
        shutil.rmtree(self.mirror, ignore_errors=True)

    def check_result(self) -> None:
        """The same bytes as the reference, the same marker but for who wrote it and when; and the judge's word."""
        for part in ("data", "metadata", "_ledger/index"):
            want, got = (_bytes(folder / part) for folder in (self.reference, self.mirror))
            assert want.keys() == got.keys()
            assert [name for name in want if want[name] != got[name]] == []
        markers = [folder / "_ready" / "v1.ready.json" for folder in (self.reference, self.mirror)]
        assert len({json.loads(marker.read_text())["checksum"] for marker in markers}) == 1
        assert objects(self.mirror / "_inprogress") == {}
        self.installation.app().follow(TABLE)
        assert self.judge.differences(self.source, self.installation.theirs(NAME)) == []


@pytest.fixture(scope="module")
def scene(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("kill")
    source = judge.open_lake("onprem_kill", folder / "onprem")
    knobs = {"ledger_flush_files": 2, "bin_files": 8, "max_concurrency": 2, "small_change_files": 0}
    installation = Installation(
        folder / "lakemirror.yaml", source, judge.open_lake("cloud_kill", folder / "cloud"), defaults=knobs
    ).write()
    table = TableOf(source, NAME)
    judge.spark.sql(f"CREATE NAMESPACE {source.name}.db")
    judge.spark.sql(
        f"CREATE TABLE {table.sql} (id BIGINT, text STRING, part INT) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'file')"
    )
    for number in range(INSERTS):
        judge.spark.sql(
            f"INSERT INTO {table.sql} SELECT id, sha2(CAST(id AS STRING), 512), CAST(id % {PARTITIONS} AS INT) "
            f"FROM range({number * 1500}, {number * 1500 + 1500})"
        )
    judge.spark.sql(f"DELETE FROM {table.sql} WHERE id % 100 = 7")
    installation.app().mirror(TABLE, engine=LocalEngine(4))
    shutil.move(installation.folder(NAME), folder / "reference")
    # From here on the source is slow, so that there is a middle to be killed in.
    slow = replace(installation, defaults={**knobs, "peak_bandwidth_bytes_per_s": 150_000}).write()
    return Scene(judge, table, slow, folder / "reference", folder)


@pytest.fixture
def chance() -> random.Random:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # pytest shows it with a failure
    return random.Random(seed)


def signs(mirror: Path) -> dict[str, Callable[[], bool]]:
    """For each stage, whether the first object that it leaves is there."""
    return {
        "plan_diff": lambda: any((mirror / "_plan").rglob("copy-*.parquet")),
        "copy_objects": lambda: any((mirror / "_ledger").rglob("part-*.parquet")),
        "rewrite_metadata": lambda: any(mirror.glob("metadata/*.avro")),
    }


def test_every_spark_stage(scene: Scene, chance: random.Random) -> None:
    """Each is killed as soon as it has begun, one of them again at a random moment; then it may finish."""
    scene.clear_mirror()
    detected = scene.installation.app(owner="run").detect(TABLE)
    assert (detected.lane, detected.plan_uri is None) == ("spark", False)
    plan_uri = str(detected.plan_uri)
    conf = {**small_jvm(), **spark_conf(build_archive(scene.scratch))}
    unlucky = chance.choice(list(signs(scene.mirror)))
    for stage, has_begun in signs(scene.mirror).items():
        result = scene.scratch / f"{stage}.json"
        arguments = ["--config", str(scene.installation.config), "--table", NAME, "--plan-uri", plan_uri]
        if stage == "plan_diff":
            arguments += ["--source-name", str(detected.source_name)]
        command = spark_submit(stage, conf, *arguments, "--owner", "run", "--result-uri", result.as_uri())
        log = scene.scratch / f"{stage}.log"
        with Program(command, log, cwd=scene.scratch) as job:
            until(has_begun, f"{stage} does not begin: {log}", timeout_s=JOB_TIMEOUT_S)
            assert job.kill() == -9
        assert not result.exists()
        left = [_Left.by(scene.mirror)]
        if stage == unlucky:
            with Program(command, log, cwd=scene.scratch) as job:
                _wait_at_most(job, chance.uniform(0, ABOUT_ONE_JOB_S))
            left.append(_Left.by(scene.mirror))
        with Program(command, log, cwd=scene.scratch) as job:
            assert job.wait(JOB_TIMEOUT_S) == 0, job.output()[-3000:]
        answer = json.loads(result.read_text())
        assert answer["ok"]
        for one in left:
            one.check_untouched(scene.mirror)
        if stage == "copy_objects":
            assert 0 < len(left[0].ledger) < FILES, "it was killed in the middle"
            assert (answer["files"], answer["skipped_files"]) == (FILES - len(left[-1].files), len(left[-1].files))
    published = scene.installation.app(owner="run").publish(TABLE, plan_uri)
    assert (published.version, published.lane) == (1, "spark")
    scene.check_result()


def test_the_command_line_in_the_task_lane(scene: Scene, chance: random.Random) -> None:
    """One process does everything; it is killed in each stage in turn, and once at a random moment."""
    scene.clear_mirror()
    knobs = {**scene.installation.defaults, "small_change_files": 10_000, "peak_bandwidth_bytes_per_s": 900_000}
    installation = replace(scene.installation, config=scene.scratch / "task.yaml", defaults=knobs).write()
    command: list[str | Path] = [ROOT / "bin" / "lakemirror", "--config", installation.config, "--json", "mirror", NAME]
    log = scene.scratch / "task.log"
    left = []
    for stage, has_begun in signs(scene.mirror).items():
        with Program(command, log, cwd=scene.scratch) as run:
            until(has_begun, f"{stage} does not begin: {log}", timeout_s=JOB_TIMEOUT_S)
            assert run.kill() == -9
        left.append(_Left.by(scene.mirror))
    assert 0 < len(left[1].ledger) < FILES, "it was killed in the middle"
    with Program(command, log, cwd=scene.scratch) as run:
        _wait_at_most(run, chance.uniform(0, ABOUT_ONE_COMMAND_S))
    left.append(_Left.by(scene.mirror))
    with Program(command, log, cwd=scene.scratch) as run:
        assert run.wait(JOB_TIMEOUT_S) == 0, run.output()
    for one in left:
        one.check_untouched(scene.mirror)
    scene.check_result()


@dataclass(frozen=True)
class _Left:
    """What a killed run left behind: the files of the mirror, and those that its ledger names."""

    files: dict[str, tuple[int, int, int]]
    metadata: dict[str, tuple[int, int, int]]
    segments: dict[str, tuple[int, int, int]]
    ledger: frozenset[str]

    @classmethod
    def by(cls, mirror: Path) -> _Left:
        parts = (mirror / "_ledger").rglob("part-*.parquet")
        named = [target for part in parts for target in pq.read_table(part, columns=["target"])["target"].to_pylist()]
        assert len(named) == len(set(named)), "a file was copied twice"
        segments = {name: facts for name, facts in objects(mirror / "_plan").items() if name.endswith(".parquet")}
        return cls(_data(mirror), objects(mirror / "metadata"), segments, frozenset(named))

    def check_untouched(self, mirror: Path) -> None:
        """Everything that was there whole still is the very same object: nothing was written a second time."""
        now = _Left.by(mirror)
        for before, after in ((self.files, now.files), (self.metadata, now.metadata), (self.segments, now.segments)):
            assert {name: after.get(name) for name in before} == before
        assert self.ledger <= now.ledger


def _data(mirror: Path) -> dict[str, tuple[int, int, int]]:
    """The copied files; delete files are rewritten, not copied, by another stage."""
    return {name: facts for name, facts in objects(mirror / "data").items() if not name.endswith("-deletes.parquet")}


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _wait_at_most(job: Program, seconds: float) -> None:
    """What the job has not done by then it will not do: it is killed when it is left."""
    deadline = time.monotonic() + seconds
    while job.is_running and time.monotonic() < deadline:
        time.sleep(0.02)

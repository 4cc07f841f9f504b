"""The limits of a run hold for all that it does: in the task, and over two Spark executors together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakemirror.spark.library import build_archive, spark_conf
from tests.e2e import cluster as clusters
from tests.e2e.history import History
from tests.e2e.processes import Program, small_jvm, spark_submit
from tests.leases import Lease, last_goes_at, span_s
from tests.perf.limits import FARTHEST, FILE_BYTES, NEAREST, arrived, planned, write

TASK_BYTES_PER_S = 30_000
FILES = 128
BYTES_PER_S, REQUESTS_PER_S = 8_000_000, 32  # of bytes less would make one task of it
LEAST_S = 6.0  # over so long half a second that is caught up is less than a tenth
JOB_S = 150


def test_the_task_keeps_to_its_line(history: History) -> None:
    """Eight files: without the limit they would take a second."""
    history.create("id BIGINT, note STRING, part INT", partitioned_by="part")
    history.insert("SELECT id, repeat(uuid(), 4), CAST(id % 8 AS INT) FROM range(0, 8000)")
    installation = history.lanes["task"]
    limits = {"peak_bandwidth_bytes_per_s": TASK_BYTES_PER_S, "rate_limit": 1.0, "bin_files": 1}
    replace(installation, defaults={**installation.defaults, **limits}).write()
    result = installation.sync(history.name)
    assert (result.lane, result.copied_files) == ("task", 8)
    assert result.copied_bytes > 2 * TASK_BYTES_PER_S
    assert result.seconds["copy"] >= result.copied_bytes / TASK_BYTES_PER_S * 0.99


def leases_of_both(notes: list[list[Any]], unit: int) -> list[Lease]:
    """Of bytes or of requests, while both executors were at work."""
    shares = [(at, note[0]) for at, what, *note in notes if what == "share"]
    start = next(at for at, share in shares if share == 1.0)
    end = next(at for at, share in shares if share == 0.0 and at > start)
    return [Lease(at, note[2], note[unit]) for at, what, *note in notes if what == "lease" and start <= at <= end]


def by_job(notes: Path) -> list[list[list[Any]]]:
    jobs: list[list[list[Any]]] = []
    for line in notes.read_text(encoding="utf-8").splitlines():
        at, what, *more = json.loads(line)
        if what == "begun":
            jobs.append([])
        else:
            jobs[-1].append([at, what, *more])
    return jobs


@pytest.mark.timeout(300)
def test_two_executors_share_the_line_within_a_tenth(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    limits = {"bytes": {"peak_bandwidth_bytes_per_s": BYTES_PER_S}, "requests": {"peak_requests_per_s": REQUESTS_PER_S}}
    jobs = [
        json.dumps(planned(tmp_path / name, tmp_path, {"bin_files": FILES // 4, "max_concurrency": 16, **knobs}))
        for name, knobs in limits.items()
    ]
    notes = tmp_path / "notes.jsonl"
    conf = {
        **small_jvm(),
        **spark_conf(build_archive(tmp_path)),
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both executors are there
    }
    with clusters.start(tmp_path) as cluster:
        cluster.start_worker()
        cluster.start_worker()
        command = spark_submit(
            Path(__file__).with_name("noted_copy.py"), conf, str(notes), *jobs, master=cluster.master
        )
        with Program(command, tmp_path / "copy.log", cwd=tmp_path) as job:
            assert job.wait(JOB_S) == 0, job.output()[-3000:]
    for (name, limit), noted, unit in zip(
        (("bytes", BYTES_PER_S), ("requests", REQUESTS_PER_S)), by_job(notes), (0, 1), strict=True
    ):
        leases = leases_of_both(noted, unit)
        assert span_s(leases) >= LEAST_S, name
        earliest, latest = (last_goes_at(leases, share * limit) for share in (FARTHEST, NEAREST))
        assert earliest <= leases[-1].goes_at <= latest, name
        files = arrived(tmp_path / name)
        assert len(files) == FILES
        first_at = next(at for at, what, *_ in noted if what == "lease")
        most = FARTHEST * limit * (files[-1].st_mtime_ns / 1e9 - first_at)
        assert (FILES * FILE_BYTES if name == "bytes" else 2 * FILES) <= most, f"{name}: more came than was let go"

"""Lakemirror on a table of `tables`, in a process of its own: prints seconds by stage and the requests it made.

    python -m tests.perf.rivals.ours FOLDER full|commit|N task|spark [HEAP]

It is `App.mirror`, whole, with the lease, L0 and the marker, over a configuration file and a SQL catalog. One thing is
taken out of its way: the plan's data files, which do not exist; the other copies none either. `full` starts from an
empty mirror and takes the version in which every snapshot has a tag, so that every list and every manifest is
rewritten; `commit` takes the last commit after the mirror has the version before it; a number is the first plan, and no
more, of the version after so many commits. In the Spark lane the session is up before the clock starts.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from lakemirror.app import App
from lakemirror.config.loader import load_config
from lakemirror.model.table import TableRef
from lakemirror.replicate import pipeline
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine
from tests.perf.rivals.memory import Watch
from tests.perf.rivals.tables import NAME, Made, load
from tests.stores import READS, Recorder

TABLE = TableRef.parse(NAME)
LANES = {"task": {"small_change_files": 10**9, "small_change_bytes": 10**18}, "spark": {"small_change_files": 0}}


@dataclass
class Installation:
    """A mirror in `folder` of a source whose catalog shows the version of the table that we say."""

    made: Made
    folder: Path
    lane: str
    engine: Engine | None

    def __post_init__(self) -> None:
        shutil.copy(Path(self.made.folder) / "catalog.db", self.folder / "catalog.db")
        source = {**self.made.lake.properties, "uri": f"sqlite:///{self.folder / 'catalog.db'}"}
        document = {
            "source": {"catalog": source},
            "mirror": {
                "catalog": {"name": "cloud", "type": "sql", "uri": f"sqlite:///{self.folder / 'mirror.db'}"},
                "location": (self.folder / "mirror").as_uri(),
            },
            "defaults": LANES[self.lane],
            "tables": [{"name": NAME}],
        }
        config = self.folder / "lakemirror.yaml"
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.recorder = Recorder()
        # what tasks of Spark ask is told by the result alone: a recorder does not travel
        wrap = self.recorder.wrap if self.engine is None else None
        self.app = App(load_config(config), wrap_store=wrap)

    def show(self, metadata_uri: str) -> None:
        with sqlite3.connect(self.folder / "catalog.db") as catalog:
            catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (metadata_uri,))

    def mirror(self, metadata_uri: str) -> dict[str, Any]:
        self.show(metadata_uri)
        self.recorder.calls.clear()
        start = time.perf_counter()
        with mock.patch.object(pipeline, "plan_diff", _without_copies(pipeline.plan_diff)):
            result = self.app.mirror(TABLE, engine=self.engine).as_json()
        spent = time.perf_counter() - start
        if result["lane"] != self.lane:
            raise RuntimeError(f"want the {self.lane} lane, got {result['lane']}")
        answer = {"seconds": spent, "by_stage": result["seconds"], "requests": result["requests"]}
        return {**answer, **result["rewritten"], **({} if self.engine else {"reads": self._reads()})}

    def plan(self, metadata_uri: str) -> dict[str, Any]:
        assert self.engine is not None
        self.show(metadata_uri)
        start = time.perf_counter()
        found = self.app.detect(TABLE)
        plan = self.app.plan_diff(TABLE, str(found.plan_uri), str(found.source_name), self.engine)
        return {"seconds": time.perf_counter() - start, "files": plan.files}

    def _reads(self) -> dict[str, int]:
        """By what was asked: to read an object (and of these, what the run wrote itself), to list, to look at one by
        HEAD, or for what may be there and is not."""
        written: set[str] = set()
        kinds = dict.fromkeys(("objects", "own", "lists", "looks", "absent"), 0)
        for _, verb, uri in self.recorder.calls:
            if verb == "put":
                written.add(uri)
            elif verb == "list":
                kinds["lists"] += 1
            elif verb in READS:
                is_there = Path(uri.removeprefix("file:")).exists()
                kind = "absent" if not is_there else "looks" if verb == "head" else "objects"
                kinds[kind] += 1
                kinds["own"] += kind == "objects" and uri in written
        return kinds


def _without_copies(plan_diff: Any) -> Any:
    """The same plan, made and written as ever; what follows it is not told of data files."""

    def planned(*args: Any, **options: Any) -> Plan:
        plan: Plan = plan_diff(*args, **options)
        return replace(plan, segments=tuple(one for one in plan.segments if one.role not in ("copy", "split")))

    return planned


def main(folder: Path, what: str, lane: str, heap: str = "2g") -> int:
    made = load(folder)
    if made is None:
        raise RuntimeError(f"no table in {folder}: make it first")
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="lakemirror-ours-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        installation = Installation(made, scratch, lane, stack.enter_context(_engine(lane, heap, scratch)))
        if what == "commit":
            installation.mirror(made.before)
        with Watch() as memory:
            if what.isdigit():
                answer = installation.plan(made.version(int(what)))
            else:
                answer = installation.mirror(made.tagged if what == "full" else made.after)
        print(json.dumps({**answer, "peak_mb": memory.peak_mb}))
    return 0


@contextmanager
def _engine(lane: str, heap: str, scratch: Path) -> Iterator[Engine | None]:
    if lane == "task":
        yield None
        return
    from lakemirror.spark.engine import SparkEngine
    from tests.perf.rivals import session as sessions

    session = sessions.start([], scratch / "spark", heap)
    try:
        session.range(10).count()
        yield SparkEngine(session)
    finally:
        session.stop()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))

"""Lakemirror on a table of `tables`, in a process of its own: prints seconds by stage and the requests it made.

    python -m tests.perf.rivals.ours FOLDER full|commit|plan task|spark [HEAP]

The stages are the library's own: detect, plan, rewrite, and the marker. No data file is copied, as the other does not
copy either. `full` starts from an empty mirror and takes the version in which every snapshot has a tag, so that every
list and every manifest is rewritten; `commit` takes the last commit after the mirror has the version before it; `plan`
is the first plan alone. In the Spark lane the session is up before the clock starts.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from lakemirror import bridge
from lakemirror.config.knobs import Knobs
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.replicate import pipeline
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Policy, Sides, Unchanged, detect
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, LocalEngine, Requests, StageContext, sum_requests
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.once import ReadOnceStore
from lakemirror.usecases.mirror import FILES_AT_ONCE
from tests.perf.rivals.memory import Watch
from tests.perf.rivals.tables import NAME, load

TABLE = TableRef.parse(NAME)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A source catalog whose table is at the version that we say."""

    location: str

    def head(self, table: TableRef) -> str | None:
        return self.location

    def tables(self) -> tuple[TableRef, ...]:
        return (TABLE,)

    def file_io(self) -> dict[str, str]:
        return {}


@dataclass
class Run:
    """One step of the mirror, without its copy stage, as `usecases.mirror` puts it together."""

    location: str
    layout: TableLayout
    engine: Engine
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        store = ObstoreStore({})
        self.is_local = self.engine.name == LocalEngine.name
        self._plain = store
        self._source, self._mirror = CountingStore(store), CountingStore(store)
        self._once = ReadOnceStore(self._source)

    def plan(self) -> tuple[Change, Plan]:
        policy = Policy(small_change_files=0, small_change_bytes=0)
        with self._timed("detect"):
            found = detect(TABLE, self.layout, Sides(Pointer(self.location), self._once, self._mirror, {}), policy)
        if isinstance(found, Unchanged):
            raise RuntimeError(found.reason)
        with self._timed("plan"):
            return found, pipeline.plan_diff(found, self._context(found), self.engine)

    def whole(self) -> dict[str, object]:
        change, plan = self.plan()
        with self._timed("rewrite"):
            assembled = pipeline.rewrite_metadata(change, plan, self._context(change), self.engine, self.layout)
        with self._timed("marker"):
            marker = pipeline.marker_of(change, plan, assembled)
            data = marker.to_bytes(created_at=datetime.now(UTC), producer="bench")
            bridge.publish(self._mirror, self.layout, marker, bridge.stage(self._mirror, self.layout, marker, data))
        by_tasks = [] if self.is_local else [plan.requests, assembled.requests]
        here: Requests = {"source": self._source.counts, "mirror": self._mirror.counts}
        return {
            "seconds": sum(self.seconds.values()),
            "by_stage": self.seconds,
            "requests": sum_requests([here, *by_tasks]),
            "files": plan.files,
            "manifests": assembled.rewritten.manifests,
            "lists": assembled.rewritten.manifest_lists,
        }

    def _context(self, change: Change) -> StageContext:
        knobs = Knobs()
        source: ObjectStore = self._once if self.is_local else self._plain
        return StageContext(
            source=source,
            mirror=self._mirror if self.is_local else self._plain,
            paths=change.paths,
            plan_uri=self.layout.plan(change.plan_id),
            ledger_uri=self.layout.ledger(change.plan_id),
            concurrency=FILES_AT_ONCE,
            bin_files=knobs.bin_files,
            bin_bytes=knobs.bin_bytes,
            ledger_flush_files=knobs.ledger_flush_files,
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start


def main(folder: Path, what: str, lane: str, heap: str = "2g") -> int:
    made = load(folder)
    if made is None:
        raise RuntimeError(f"no table in {folder}: make it first")
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="lakemirror-ours-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        layout = TableLayout.of((scratch / "mirror").as_uri(), TABLE)
        engine = stack.enter_context(_engine(lane, heap, scratch))
        if what == "commit":
            Run(made.before, layout, engine).whole()
        with Watch() as memory:
            run = Run(made.after if what == "commit" else made.tagged if what == "full" else made.after, layout, engine)
            if what == "plan":
                _, plan = run.plan()
                answer: dict[str, object] = {"seconds": sum(run.seconds.values()), "by_stage": run.seconds}
                answer |= {"files": plan.files, "segments": len(plan.segments)}
            else:
                answer = run.whole()
        print(json.dumps({**answer, "peak_mb": memory.peak_mb}))
    return 0


@contextmanager
def _engine(lane: str, heap: str, scratch: Path) -> Iterator[Engine]:
    if lane == "task":
        yield LocalEngine(max(1, Knobs().max_concurrency // FILES_AT_ONCE))
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

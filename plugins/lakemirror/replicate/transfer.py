"""The copy stage of a run: from the plan's segments to rows of work, spread by the engine, and their sum.

Whole files and ranges of large files are copied side by side; large files are finished once all their ranges are there.
For workers elsewhere a hub beside this process keeps the rates of all of them together, and hears how far they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from lakemirror.copying import bins
from lakemirror.copying.crew import run_loop
from lakemirror.copying.hub import Hub
from lakemirror.copying.model import CopyItem
from lakemirror.copying.ports import opened
from lakemirror.errors import LakemirrorError, PermanentError, SourceVanishedError
from lakemirror.replicate.copy import COPIED, WORK, CopySegments, ranges_folder, read_items, work_of
from lakemirror.replicate.plan import Plan, Segment
from lakemirror.replicate.progress import FilesTold
from lakemirror.replicate.split import SplitFile
from lakemirror.replicate.stage import Engine, LocalEngine, Progress, Requests, StageContext, requests_of, sum_requests
from lakemirror.storage.port import ConditionFailed, Create, ObjectStore

Spread = Callable[[CopySegments, pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Copied:
    files: int
    bytes: int
    skipped: int
    requests: Requests
    wire_requests: Requests
    """Those of the wires alone, which nobody else counts."""


def copy_objects(
    plan: Plan, context: StageContext, engine: Engine, started_uri: str, progress: Progress | None = None
) -> Copied:
    """Copy what the plan names and the ledger does not have yet.

    `started_uri` tells whether an earlier try at this version may have left files that no ledger tells of; then each
    key is looked at before it is written. A first try writes without looking.
    """
    planned = (*plan.of("copy"), *plan.of("split"))
    resumes = bool(planned) and not _is_first(context.mirror, started_uri)
    told = FilesTold(progress, sum(part.files for part in planned), sum(part.bytes for part in planned))
    work, finishing = _work(plan, context)
    try:
        with _shared(context, engine, told, work.num_rows) as (shared, spread):
            rows = [spread(CopySegments(shared, resumes), work), spread(CopySegments(shared, resumes), finishing)]
    except (PermanentError, SourceVanishedError) as err:
        _abort_uploads(err, plan, context)
        raise
    done = pa.concat_tables(rows)
    on_wires = requests_of(done, "wire_requests")
    copied = Copied(
        sum(done["files"].to_pylist()),
        sum(done["bytes"].to_pylist()),
        sum(done["skipped"].to_pylist()),
        sum_requests([requests_of(done), on_wires]),
        on_wires,
    )
    want = sum(segment.files for segment in planned)
    if copied.files + copied.skipped != want:
        raise PermanentError(
            "copy", context.plan_uri, f"want {want} files, got {copied.files + copied.skipped}", "report this"
        )
    return copied


def _work(plan: Plan, context: StageContext) -> tuple[pa.Table, pa.Table]:
    """What can be done at once, the large first, and what comes after it."""
    rows, finishing = [], []
    settings, mirror = context.copying.settings, context.copying.mirror()
    for segment in plan.of("split"):
        powers = mirror.capabilities(context.ledger_uri)
        wanted = max(settings.part_bytes, powers.min_part_bytes)
        part_bytes = bins.part_bytes_for(segment.bytes, wanted, settings.held_bytes, segment.uri, powers.max_parts)
        for chosen in bins.ranges_of(segment.bytes, part_bytes, context.split_bytes):
            rows.append(work_of(segment, "range", part_bytes, chosen))
        finishing.append(work_of(segment, "finish", part_bytes))
    rows += [work_of(segment, "files", settings.part_bytes) for segment in plan.of("copy")]
    return pa.Table.from_pylist(rows, WORK), pa.Table.from_pylist(finishing, WORK)


@contextmanager
def _shared(
    context: StageContext, engine: Engine, told: FilesTold, tasks: int
) -> Iterator[tuple[StageContext, Spread]]:
    """The context for the workers, and how the work is spread: in this process on one event loop, or by the engine."""
    if engine.name == LocalEngine.name:
        here = replace(context, on_file=told.add)

        def at_once(stage: CopySegments, work: pa.Table) -> pa.Table:
            return pa.Table.from_batches(stage(iter(work.combine_chunks().to_batches())), COPIED)

        yield here, at_once
        return
    ports = context.copying
    with Hub(
        engine.driver if tasks else None, ports.rates, min(tasks, ports.shares), ports.shares, on_progress=told.reach
    ) as address:

        def spread(stage: CopySegments, work: pa.Table) -> pa.Table:
            return engine.run(stage, work, COPIED, told.rows)

        yield replace(context, copying=replace(ports, hub=address)), spread


def _abort_uploads(err: LakemirrorError, plan: Plan, context: StageContext) -> None:
    """This plan will not go on: what its large files have left is dropped. A failure of that is told with the error."""
    split = plan.of("split")
    if not split:
        return
    try:
        run_loop(_abort_all(split, context))
    except LakemirrorError as late:
        err.add_note(f"an upload could not be aborted ({late})")


async def _abort_all(split: tuple[Segment, ...], context: StageContext) -> None:
    async with opened(context.copying, "abort") as made:
        for segment in split:
            (found,) = read_items(context.mirror, segment.uri, context.paths)
            item = CopyItem(found["source"], found["target"], found["size"])
            folder = ranges_folder(context.ledger_uri, segment.uri)
            await SplitFile(made.copier, context.mirror, folder, item, context.copying.settings.part_bytes).abort()


def _is_first(store: ObjectStore, started_uri: str) -> bool:
    try:
        store.put(started_uri, b"", Create())
    except ConditionFailed:
        return False
    return True

"""The copy stage of a run: from the plan's segments to rows of work, spread by the engine, and their sum.

Whole files and ranges of large files are copied side by side; large files are finished once all their ranges are there.
For workers elsewhere a hub beside this process keeps the rates of all of them together, and hears how far they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
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
from lakemirror.replicate.ledger import Item, Ledgers
from lakemirror.replicate.leftovers import Leftovers, abort_leftovers
from lakemirror.replicate.plan import Plan, Segment
from lakemirror.replicate.progress import FilesTold
from lakemirror.replicate.split import SplitFile, upload_written_down
from lakemirror.replicate.stage import (
    Engine,
    LocalEngine,
    Progress,
    Report,
    Requests,
    StageContext,
    requests_of,
    sum_requests,
)
from lakemirror.storage.keys import check_key
from lakemirror.storage.port import ConditionFailed, Create, ObjectStore

Spread = Callable[[CopySegments, pa.Table, Report], pa.Table]


@dataclass(frozen=True, slots=True)
class Copied:
    files: int
    bytes: int
    skipped: int
    ledgers: Ledgers
    """Of segments that one try copied whole."""
    requests: Requests
    wire_requests: Requests
    """Those of the wires alone, which nobody else counts."""


def copy_objects(
    plan: Plan,
    context: StageContext,
    engine: Engine,
    started_uri: str,
    progress: Progress | None = None,
    leftovers: Leftovers | None = None,
) -> Copied:
    """Copy what the plan names and the ledger does not have yet.

    `started_uri` tells whether an earlier try at this version may have left files that no ledger tells of; then each
    key is looked at before it is written, and `leftovers` are aborted. A first try writes without looking. Where files
    went in parts, leftovers are aborted at the end as well: of tasks that were killed, or of twins that came too late.
    """
    planned = (*plan.of("copy"), *plan.of("split"))
    _check_keys(plan, context)
    resumes = bool(planned) and not _is_first(context.mirror, started_uri)
    work, finishing = (pa.Table.from_pylist(rows, WORK) for rows in _work(plan, context))
    large = plan.of("split") if finishing.num_rows else ()
    all_files, all_bytes = _volume(planned)
    large_files, large_bytes = _volume(large)
    told = FilesTold(progress, all_files, all_bytes)
    sweeping = [sum_requests([])]
    if resumes and leftovers is not None:
        folders = [ranges_folder(context.ledger_uri, segment.uri) for segment in plan.of("split")]
        kept = {upload_written_down(context.mirror, folder) for folder in folders}
        sweeping.append(abort_leftovers(leftovers, kept, context, is_thorough=True))
    try:
        with _shared(context, engine, told, work.num_rows) as (shared, spread):
            stage = CopySegments(shared, resumes, engine.is_repeated)
            first, last = (
                told.portion(all_files - large_files, all_bytes - large_bytes),
                told.portion(large_files, large_bytes),
            )
            rows = [spread(stage, work, first), spread(stage, finishing, last)]
    except (PermanentError, SourceVanishedError) as err:
        _abort_uploads(err, plan, context)
        raise
    done = pa.concat_tables(rows)
    if leftovers is not None and any(done["begun"].to_pylist()):
        sweeping.append(abort_leftovers(leftovers, (), context, is_thorough=False))
    on_wires = sum_requests([requests_of(done, "wire_requests"), *sweeping])
    copied = Copied(
        sum(done["files"].to_pylist()),
        sum(done["bytes"].to_pylist()),
        sum(done["skipped"].to_pylist()),
        {uri: parts for uri, parts in zip(done["uri"].to_pylist(), done["ledger"].to_pylist(), strict=True) if parts},
        sum_requests([requests_of(done), on_wires]),
        on_wires,
    )
    if copied.files + copied.skipped != all_files:
        raise PermanentError(
            "copy", context.plan_uri, f"want {all_files} files, got {copied.files + copied.skipped}", "report this"
        )
    return copied


def work_rows(plan: Plan, context: StageContext) -> int:
    """Into how many rows of work the plan falls that can be done at once: each range of a large file is one."""
    return len(_work(plan, context)[0])


def _volume(planned: Sequence[Segment]) -> tuple[int, int]:
    return sum(segment.files for segment in planned), sum(segment.bytes for segment in planned)


def _check_keys(plan: Plan, context: StageContext) -> None:
    """PermanentError for a key that the mirror's store would not keep as it is, before anything is copied."""
    spoiled = context.copying.mirror().capabilities(context.ledger_uri).spoiled
    for segment in plan.segments:
        if segment.role == "fact" or not set(spoiled).intersection(segment.odd):
            continue
        for item in read_items(context.mirror, segment.uri, context.paths):
            if found := set(spoiled).intersection(check_key(item["target"]).key):
                why = f"the mirror's store cannot hold this key: it does not keep {min(found)!r}"
                raise PermanentError(
                    "copy", item["target"], why, "rename the file, or move the mirror to another store"
                )


def _work(plan: Plan, context: StageContext) -> tuple[list[Item], list[Item]]:
    """What can be done at once, the large first, and what comes after it.

    A large file that its store copies by itself is one request, and no work to be shared.
    """
    rows, finishing = [], []
    copying, settings = context.copying, context.copying.settings
    shared, whole = plan.of("split"), plan.of("copy")
    powers = copying.mirror().capabilities(context.ledger_uri)
    if copying.is_one_store and powers.copies_within:
        shared, whole = (), (*shared, *whole)
    wanted = max(settings.part_bytes, powers.min_part_bytes)
    for segment in shared:
        part_bytes = bins.part_bytes_for(segment.bytes, wanted, settings.held_bytes, segment.uri, powers.max_parts)
        for chosen in bins.ranges_of(segment.bytes, part_bytes, context.split_bytes):
            rows.append(work_of(segment, "range", part_bytes, chosen))
        finishing.append(work_of(segment, "finish", part_bytes))
    rows += [work_of(segment, "files", settings.part_bytes) for segment in whole]
    return rows, finishing


@contextmanager
def _shared(
    context: StageContext, engine: Engine, told: FilesTold, tasks: int
) -> Iterator[tuple[StageContext, Spread]]:
    """The context for the workers, and how the work is spread: in this process on one event loop, or by the engine."""
    if engine.name == LocalEngine.name:
        here = replace(context, on_file=told.add)

        def at_once(stage: CopySegments, work: pa.Table, report: Report) -> pa.Table:
            return pa.Table.from_batches(stage(iter(work.combine_chunks().to_batches())), COPIED)

        yield here, at_once
        return
    ports = context.copying
    place = engine.driver if tasks else None
    hub = Hub(place, ports.rates, min(tasks, ports.shares), ports.shares, ports.attempts, on_progress=told.reach)
    with hub:

        def spread(stage: CopySegments, work: pa.Table, report: Report) -> pa.Table:
            address = hub.expect(min(work.num_rows, ports.shares))
            there = replace(stage.context, copying=replace(ports, hub=address))
            return engine.run(replace(stage, context=there), work, COPIED, report)

        yield context, spread


def _abort_uploads(err: LakemirrorError, plan: Plan, context: StageContext) -> None:
    """Drop the upload of the large file that failed, or of all if this plan will not go on: a source file is gone.

    After another stop the same plan goes on, with the parts that were sent. A failure here is told with the error.
    """
    split = plan.of("split")
    if not split:
        return
    try:
        run_loop(_abort_all(split, context, None if isinstance(err, SourceVanishedError) else err.subject))
    except LakemirrorError as late:
        err.add_note(f"an upload could not be aborted ({late})")


async def _abort_all(split: tuple[Segment, ...], context: StageContext, only: str | None) -> None:
    async with opened(context.copying, "abort") as made:
        for segment in split:
            (found,) = read_items(context.mirror, segment.uri, context.paths)
            item = CopyItem(found["source"], found["target"], found["size"])
            if only in (None, item.source, item.target):
                folder = ranges_folder(context.ledger_uri, segment.uri)
                part_bytes = context.copying.settings.part_bytes
                await SplitFile(made.copier, context.mirror, folder, item, part_bytes).abort()


def _is_first(store: ObjectStore, started_uri: str) -> bool:
    """Whoever sets the mark is; each run's is another one, so that a retry does not take an older run's for its own."""
    try:
        store.put(started_uri, secrets.token_hex(16).encode(), Create())
    except ConditionFailed:
        return False
    return True

"""What the real code is given in place of threads, event loops of its own and waiting, while a simulation runs.

Nothing of the protocol is replaced. Threads become plain calls, because actors are greenlets of one thread; the stages
between detect and publish go through the memory (`remembered`); the source's metadata is read anew by each stage, so
that what a stage asks for does not depend on an earlier one.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
from greenlet import getcurrent

from lakemirror.catalogs import sql
from lakemirror.config.models import Config
from lakemirror.copying import crew
from lakemirror.formats.iceberg import avro, manifest_list, metadata_json
from lakemirror.model.marker import Marker
from lakemirror.replicate import fence, pipeline, process, segments, stage, transfer, verify
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Policy
from lakemirror.replicate.ledger import Ledgers
from lakemirror.usecases import fencing, mirror, stages, workbench
from tests.simulation import keeping

T = TypeVar("T")
_KNOWN: dict[Callable[..., Any], dict[Hashable, tuple[Any, Any]]] = {}  # of each pure function, for all variants


class InPlace:
    """A pool of threads without threads."""

    def __init__(self, max_workers: int | None = None) -> None:
        pass

    def __enter__(self) -> InPlace:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def map(self, work: Callable[..., T], *items: Iterable[Any]) -> Iterator[T]:
        return map(work, *items)


class Loop(asyncio.BaseEventLoop):
    """An event loop that waits for nothing from outside: no sockets, no other threads."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self

    def select(self, timeout_s: float | None) -> list[Any]:
        assert timeout_s is not None, "it would wait without end"
        if timeout_s:
            time.sleep(timeout_s)
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass


async def _in_place(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    return work(*arguments, **named)


def _remembered(name: str, work: Callable[..., Any], key: Callable[..., Hashable]) -> Callable[..., Any]:
    def stage(*arguments: Any, **named: Any) -> Any:
        stages = getcurrent().actor.stages
        return stages.stage((name, key(*arguments, **named)), lambda: work(*arguments, **named))

    return stage


def _once(work: Callable[..., T], key: Callable[..., Hashable], most: int = 1 << 14) -> Callable[..., T]:
    """A pure function whose results never change is computed once for each input; a broken one is another function."""
    known = _KNOWN.setdefault(work, {})

    @wraps(work)
    def found(*arguments: Any, **named: Any) -> T:
        place = key(*arguments, **named)
        there = known.get(place)
        if there is None:
            if len(known) > most:
                known.clear()
            there = known[place] = arguments, work(*arguments, **named)  # what is kept keeps its id
        return there[1]  # type: ignore[no-any-return]

    return found


def _stream_of(table: pa.Table) -> bytes:
    """All that a table is, its metadata included; it takes a tenth of the time of Parquet."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def altered() -> list[str]:
    """Metadata files whose parsed JSON somebody has changed, which others get to see then; there must be none."""
    parse = inspect.unwrap(metadata_json.parse)
    return [uri for (data, uri), found in _KNOWN[parse].values() if parse(data, uri) != found]


@contextmanager
def installed() -> Iterator[None]:
    """For as many schedules as one likes."""

    def of_plan(change: Change, *more: Any, is_first: bool = False) -> Hashable:
        return change.plan_id, is_first

    def of_context(plan: Any, context: Any, *more: Any) -> Hashable:
        return str(context.plan_uri)

    def of_source(table: Any, layout: Any, sides: Any, policy: Policy, *more: Any) -> Hashable:
        return policy.lifts_column_ids, more  # which is by the mirror's catalog; all else of a policy is the same

    checksum, plan_id = Marker.checksum, Change.expected_plan_id
    assert isinstance(checksum, property)
    assert isinstance(plan_id, property)
    assert checksum.fget is not None
    assert plan_id.fget is not None
    copy = _remembered("copy", mirror.copy_objects, of_context)
    replaced: list[tuple[Any, str, Any]] = [
        (process, "name_of_this_process", lambda: getcurrent().actor.new_name()),
        (fencing, "has_ended", lambda name: getcurrent().actor.world.has_ended(name)),
        (mirror, "socket", SimpleNamespace(gethostname=lambda: "host")),
        (mirror, "os", SimpleNamespace(getpid=lambda: getcurrent().actor.name)),
        (fence, "threading", SimpleNamespace(RLock=keeping.Lock)),
        (fence._Hold, "kept", keeping.kept),
        (sql, "_text", str),
        # one text for all: a run that takes an older one's mark for its own copies more than it must, and no worse
        (transfer, "secrets", SimpleNamespace(token_hex=lambda size: "0" * size)),
        # there are no uploads in parts, and the look at the lease before they are swept would tell all runs apart
        (transfer, "abort_leftovers", lambda *arguments, **named: stage.sum_requests([])),
        (asyncio, "to_thread", _in_place),
        (crew, "_new_loop", Loop),
        (stage, "ThreadPoolExecutor", InPlace),
        (verify, "ThreadPoolExecutor", InPlace),
        (mirror, "THREADS", 1),
        # what a process still knows is not in the memory of stages: it asks again
        (workbench, "ReadOnceStore", lambda store: store),
        (workbench, "OwnWritesStore", lambda store, *folders, apart_from: store),
        (segments, "_decode", _once(segments._decode, lambda data, schema, required: (data, tuple(schema.names)))),
        (segments, "encode", _once(segments.encode, _stream_of)),
        (Config, "knobs_for", _once(Config.knobs_for, lambda config, table: (id(config), table))),
        (Change, "expected_plan_id", property(_once(plan_id.fget, id))),
        (Change, "to_bytes", _once(Change.to_bytes, id)),
        (Change, "from_bytes", staticmethod(_once(Change.from_bytes, lambda data, uri: (data, uri)))),
        (manifest_list, "read", _once(manifest_list.read, lambda data, uri, seen=None: (data, uri))),
        (avro, "_check_schema", _once(avro._check_schema, bytes)),
        (Change, "rows", _once(Change.rows, lambda change, *states: (id(change.manifests), states))),
        (metadata_json, "parse", _once(metadata_json.parse, lambda data, uri: (data, uri))),
        (Marker, "checksum", property(_once(checksum.fget, lambda marker: marker))),
        (Marker, "from_bytes", staticmethod(_once(Marker.from_bytes, lambda data, uri: (data, uri)))),
        (mirror, "detect", _remembered("detect", mirror.detect, of_source)),
        (stages, "detect_again", _remembered("detect again", stages.detect_again, of_source)),
        (pipeline, "plan_diff", _remembered("plan", pipeline.plan_diff, of_plan)),
        (mirror, "copy_objects", copy),
        (stages, "copy_objects", copy),
        (pipeline, "rewrite_metadata", _remembered("rewrite", pipeline.rewrite_metadata, of_plan)),
        (pipeline, "verify_l0", _remembered("verify", pipeline.verify_l0, _verified)),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        yield


def _verified(
    store: Any, change: Any, plan: Any, assembled: Any, place: Any, sampling: Any, ledgers: Ledgers | None
) -> Hashable:
    known = tuple((segment, *parts) for segment, parts in sorted((ledgers or {}).items()))
    return change.plan_id, assembled.metadata_sha256, assembled.index_sha256, assembled.lists, known

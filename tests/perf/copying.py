"""The copy engine against its peers: the same files, between the same two SeaweedFS servers, in the same run.

`rclone copy` at the best of a few `--transfers`, and a bare obstore loop, which reads and writes without checksums (its
bodies are not even signed, and each file is one request), conditions, limits, retries or a ledger. Each takes turns
with ours, and the best of three rounds counts, so that a slow moment of the machine does not decide; of rclone only
the setting that was quickest goes on after the first round, or it would have more tries than ours. The target bucket is
made anew for each run: SeaweedFS keeps the room of deleted objects, but not that of deleted buckets.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dev.services import S3Store, Services, down, running, up
from dev.services.seaweed import make_bucket
from lakemirror.copying.model import CopySettings, WireTo
from lakemirror.copying.pace import Rates
from lakemirror.copying.ports import CopyPorts
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate.plan import ITEM, PackSegments, Plan, Segment
from lakemirror.replicate.stage import Engine, LocalEngine, StageContext, sum_requests
from lakemirror.replicate.transfer import Copied, copy_objects
from lakemirror.storage.abilities import Abilities
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.probe import ProbedAbilities
from tests.perf.row import Row

if TYPE_CHECKING:
    from obstore.store import S3Store as Client

TRANSFERS = (16, 32, 64)
FEW_TRANSFERS = (4, 8, *TRANSFERS)  # of large files: each has parts at once of its own
UNREACHED = Rates(bytes_per_s=1e12, requests_per_s=1e9)  # limits that are asked for each time and never reached
ROUNDS = 2
WARM_FILES = 128  # two rows of work, so that both workers of Spark have begun


@dataclass(frozen=True, slots=True)
class Load:
    """So many files of this size, below a prefix of the source bucket."""

    name: str
    files: int
    size_bytes: int
    transfers: tuple[int, ...] = TRANSFERS
    """Of rclone, which counts at its best."""
    part_bytes: int | None = None
    """Of the parts that it was written in; None: by one request, as writers do that have the whole file."""

    @property
    def total_bytes(self) -> int:
        return self.files * self.size_bytes

    def key(self, number: int) -> str:
        return f"{self.name}/f{number:05d}.parquet"


SMALL = Load("small", 10_000, 64 * 1024)
MIDDLE = Load("middle", 40, 64 * 1024**2, FEW_TRANSFERS)
HUGE = Load("huge", 1, 2 * 1024**3, part_bytes=32 * 1024**2)  # as Iceberg's S3FileIO writes, unless told otherwise


def measure_copy(folder: Path) -> Iterator[Row]:
    """The rows of docs/benchmarks.md, as they are measured; `LAKEMIRROR_BENCH_SCALE=0.1` for a tenth of the files."""
    scale = float(os.environ.get("LAKEMIRROR_BENCH_SCALE", "1"))
    before = set(running())
    services = up()
    try:
        bench = Bench(services, folder)
        small = replace(SMALL, files=max(1, int(SMALL.files * scale)))
        middle = replace(MIDDLE, files=max(1, int(MIDDLE.files * scale)))
        huge = replace(HUGE, size_bytes=max(64 * 1024**2, int(HUGE.size_bytes * scale)))
        yield from bench.many(small, "64 KB")
        yield from bench.many(middle, "64 MB")
        yield from bench.one(huge)
        yield from bench.spark(small)
    finally:
        if not before:
            down()


class Bench:
    def __init__(self, services: Services, folder: Path) -> None:
        self.source = replace(services.source_store, bucket="bench-source")
        self.mirror = services.mirror_store
        self.folder = folder
        self.abilities = ProbedAbilities(self.mirror.properties, self.mirror.uri)
        self.abilities()  # once for a store, not for each copy
        self.busy: dict[str, float] = {}
        self._filled: set[str] = set()
        _fresh(self.source)

    def many(self, load: Load, size: str) -> list[Row]:
        self.fill(load)
        what = f"{load.files:,} × {size}"
        runs: dict[str, Callable[[S3Store], float]] = {
            "ours": lambda target: self.ours(load, target),
            "loop": lambda target: self.loop(load, target),
            **{f"rclone {count}": self._rclone(load, count) for count in load.transfers},
        }
        first = self.best(runs, rounds=1)
        quickest = min((name for name in first if name.startswith("rclone")), key=lambda name: first[name])
        again = self.best({name: runs[name] for name in ("ours", "loop", quickest)}, known=first)
        best = {**first, **again}
        rclone = best[quickest]
        over = best["ours"] / best["loop"] - 1
        told = ", ".join(f"{name} {spent:.2f} s" for name, spent in best.items())
        print(f"bench: {what}: {told}", file=sys.stderr, flush=True)
        return [
            Row(f"copy {what}, in the task", f"{best['ours']:.2f} s", "–", None),
            Row(f"copy {what}: against rclone", f"{rclone / best['ours']:.2f}×", "≥ 1.0×", best["ours"] <= rclone),
            Row(f"copy {what}: CRC32C, limits, ledger over a bare loop", f"{over:+.0%}", "≤ 10 %", over <= 0.1),
            Row(
                f"copy {what}: cores busy, ours / the loop / {quickest}",
                " / ".join(f"{self.busy[name]:.0%}" for name in ("ours", "loop", quickest)),
                "–",
                None,
            ),
        ]

    def one(self, load: Load) -> list[Row]:
        self.fill(load)
        best = self.best(
            {"ours": lambda target: self.ours(load, target), "stream": lambda target: self.stream(load, target)}
        )
        gain = best["stream"] / best["ours"]
        peak = self.peak_memory(load)
        bound = CopySettings().memory_bytes
        what = f"one file of {load.total_bytes / 1024**3:.1f} GiB"
        return [
            Row(f"copy {what}: ours / the stream", f"{best['ours']:.2f} s / {best['stream']:.2f} s", "–", None),
            Row(f"copy {what}: against a single stream", f"{gain:.2f}×", "≥ 1.5×", gain >= 1.5),
            Row(
                f"copy {what}: cores busy, ours / the stream",
                f"{self.busy['ours']:.0%} / {self.busy['stream']:.0%}",
                "–",
                None,
            ),
            Row(f"copy {what}: memory it takes", f"{peak / 1e6:.0f} MB", f"≤ {bound / 1e6:.0f} MB", peak <= bound),
        ]

    def spark(self, load: Load) -> list[Row]:
        from lakemirror.spark.session import LazySparkEngine

        engine = LazySparkEngine("local[2]", {"spark.driver.memory": "1g", "spark.python.worker.reuse": "true"})
        try:
            warm = replace(load, files=min(load.files, WARM_FILES))
            self.best({"warm": lambda target: self.ours(warm, target, engine)}, rounds=1)
            best = self.best(
                {
                    "task": lambda target: self.ours(load, target),
                    "spark": lambda target: self.ours(load, target, engine),
                }
            )
        finally:
            engine.stop()
        ratio = best["task"] / best["spark"]
        what = f"copy {load.files:,} files by Spark local[2]"
        return [
            Row(f"{what}: the task / Spark", f"{best['task']:.2f} s / {best['spark']:.2f} s", "–", None),
            Row(f"{what}: cores busy, the task / Spark", " / ".join(f"{self.busy[x]:.0%}" for x in best), "–", None),
            Row(
                f"{what}: against the task",
                f"{ratio:.2f}×",
                "≥ 0.8×",
                ratio >= 0.8,
            ),
        ]

    def best(
        self,
        runs: dict[str, Callable[[S3Store], float]],
        rounds: int = ROUNDS,
        known: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """The shortest time of each, by turns, or that which is known if it is shorter; `busy`: all cores then."""
        found: dict[str, float] = {name: known[name] for name in runs} if known else {}
        for number in range(rounds):
            for name, run in runs.items():
                target = replace(self.mirror, bucket=f"bench-{name.replace(' ', '-')}-{number}")
                _fresh(target)
                before = _core_seconds()
                try:
                    spent = run(target)
                    used = _core_seconds() - before
                finally:
                    _drop(target)
                if spent <= found.get(name, spent):
                    found[name], self.busy[name] = spent, used / (spent * (os.cpu_count() or 1))
        return found

    def fill(self, load: Load) -> None:
        if load.name in self._filled:
            return
        chance = random.Random(load.name)
        body = chance.randbytes(min(load.size_bytes, 64 * 1024**2))
        body = body * -(-load.size_bytes // len(body))
        client = _store(self.source)

        async def put() -> None:
            import obstore

            room = asyncio.Semaphore(32 if load.size_bytes < 1 << 20 else 2)

            async def one(number: int) -> None:
                async with room:
                    data = memoryview(body)[: load.size_bytes]
                    key, chunk = load.key(number), load.part_bytes or load.size_bytes
                    in_parts = load.part_bytes is not None
                    await obstore.put_async(client, key, data, use_multipart=in_parts, chunk_size=chunk)

            await asyncio.gather(*(one(number) for number in range(load.files)))

        asyncio.run(put())
        self._filled.add(load.name)

    def ours(self, load: Load, target: S3Store, engine: Engine | None = None) -> float:
        return Ours(self.source, self.abilities).seconds(load, target, engine)

    def loop(self, load: Load, target: S3Store) -> float:
        """What a person would write: obstore's own asynchronous calls, many at once."""
        import obstore

        source, mirror = _store(self.source), _store(target)
        at_once = 64 if load.size_bytes < 1 << 20 else 4

        async def run() -> None:
            room = asyncio.Semaphore(at_once)

            async def one(number: int) -> None:
                async with room:
                    found = await obstore.get_async(source, load.key(number))
                    await obstore.put_async(mirror, load.key(number), await found.bytes_async(), use_multipart=False)

            await asyncio.gather(*(one(number) for number in range(load.files)))

        start = time.monotonic()
        asyncio.run(run())
        return time.monotonic() - start

    def stream(self, load: Load, target: S3Store) -> float:
        """One read, one upload whose parts go one after another."""
        import obstore

        async def run() -> None:
            found = await obstore.get_async(_store(self.source), load.key(0))
            body = found.stream(min_chunk_size=8 << 20)
            await obstore.put_async(_store(target), load.key(0), body, max_concurrency=1, chunk_size=8 << 20)

        start = time.monotonic()
        asyncio.run(run())
        return time.monotonic() - start

    def _rclone(self, load: Load, transfers: int) -> Callable[[S3Store], float]:
        def run(target: S3Store) -> float:
            config = self.folder / "rclone.conf"
            config.write_text("".join(_remote(name, one) for name, one in (("a", self.source), ("b", target))))
            quick = ["--s3-no-check-bucket", "--no-traverse", "--no-check-dest", "--transfers", str(transfers)]
            path = f"{target.bucket}/{load.name}"
            command = ["rclone", "--config", str(config), "copy", f"a:{self.source.bucket}/{load.name}", f"b:{path}"]
            start = time.monotonic()
            subprocess.run([_tool(), *command[1:], *quick], check=True, timeout=600, capture_output=True)
            return time.monotonic() - start

        return run

    def peak_memory(self, load: Load) -> int:
        """By how much a process grows that copies the file, over one that copies a single byte."""
        target = replace(self.mirror, bucket="bench-memory")
        _fresh(target)
        try:
            one = replace(load, files=1)
            stores = json.dumps([_fields(store) for store in (self.source, target, self.mirror)])
            grown = []
            for name, size in (("tiny", 1), (one.name, one.size_bytes)):
                self.fill(Load(name, 1, size))
                command = [sys.executable, "-m", "tests.perf.copying", stores, name, str(size)]
                done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
                grown.append(int(done.stdout.split()[-1]))
            return grown[1] - grown[0]
        finally:
            _drop(target)


@dataclass(frozen=True, slots=True)
class Ours:
    """The copy stage as a run has it, from this bucket into others of the store with these abilities."""

    source: S3Store
    abilities: Callable[[], Abilities]

    def seconds(self, load: Load, target: S3Store, engine: Engine | None = None) -> float:
        """The whole copy stage, from the plan's segments to the ledger; as many tasks as processes, as a run has it."""
        narrow, processes = (engine or LocalEngine()).narrow(2)
        context, plan = self.planned(load, target, processes)
        start = time.monotonic()
        copied = copy_objects(plan, context, narrow, f"{context.ledger_uri}.started")
        spent = time.monotonic() - start
        _check(copied, load)
        return spent

    def planned(self, load: Load, target: S3Store, processes: int) -> tuple[StageContext, Plan]:
        mirror = ObstoreStore(target.properties)
        ports = CopyPorts(
            WireTo(tuple(self.source.properties.items())),
            WireTo(tuple(target.properties.items()), self.abilities),
            CopySettings(concurrency=64 // processes),
            UNREACHED,
            processes,
        )
        context = StageContext(
            source=ObstoreStore(self.source.properties),
            mirror=mirror,
            paths=PrefixMap.of({self.source.uri: target.uri}),
            plan_uri=f"{target.uri}/_plan/p",
            ledger_uri=f"{target.uri}/_ledger/p",
            copying=ports,
            bin_files=min(1000, max(WARM_FILES // 2, load.files // 10)),
            bin_bytes=1024**3,
            split_bytes=512 * 1024**2,
            ledger_flush_files=64,
        )
        keys = [load.key(number) for number in range(load.files)]
        items = {
            "source": [f"{self.source.uri}/{key}" for key in keys],
            "target": [f"{target.uri}/{key}" for key in keys],
            "size": [load.size_bytes] * load.files,
            "kind": ["data"] * load.files,
            "format": [None] * load.files,
        }
        rows = [
            row for batch in PackSegments(context).write("copy", pa.table(items, ITEM)) for row in batch.to_pylist()
        ]
        return context, Plan(tuple(Segment(**row) for row in rows), 0, sum_requests([]))


def _core_seconds() -> float:
    """Of all processes, servers too, since the machine started: what a copy leaves idle is what could be gained."""
    user, nice, system, _idle, _wait, irq, soft, *_ = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    return sum(map(int, (user, nice, system, irq, soft))) / os.sysconf("SC_CLK_TCK")


def _store(store: S3Store) -> Client:
    from obstore.store import S3Store as Client

    return Client(
        store.bucket,
        endpoint=store.endpoint,
        region=store.region,
        access_key_id=store.access_key_id,
        secret_access_key=store.secret_access_key,
        unsigned_payload=True,  # else obstore hashes every body, as nothing of ours does here
        client_options={"allow_http": True},
    )


def _fields(store: S3Store) -> tuple[str, ...]:
    return store.endpoint, store.region, store.access_key_id, store.secret_access_key, store.bucket


def _fresh(store: S3Store) -> None:
    """An empty bucket that has room to write: SeaweedFS takes seconds for the first object."""
    _drop(store)
    make_bucket(store)
    client = store.client()
    client.put_object(Bucket=store.bucket, Key="warm", Body=b"x" * 100_000)
    client.delete_object(Bucket=store.bucket, Key="warm")


def _drop(store: S3Store) -> None:
    from botocore.exceptions import ClientError

    client = store.client()
    try:
        client.head_bucket(Bucket=store.bucket)
    except ClientError:
        return
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket):
        found = [{"Key": one["Key"]} for one in page.get("Contents", [])]
        if found:
            client.delete_objects(Bucket=store.bucket, Delete={"Objects": found, "Quiet": True})
    client.delete_bucket(Bucket=store.bucket)


def _remote(name: str, store: S3Store) -> str:
    return (
        f"[{name}]\ntype = s3\nprovider = Other\nendpoint = {store.endpoint}\nregion = {store.region}\n"
        f"access_key_id = {store.access_key_id}\nsecret_access_key = {store.secret_access_key}\n"
        "force_path_style = true\n\n"
    )


def _tool() -> str:
    return str(Path(sys.executable).parent / "rclone")


def _check(copied: Copied, load: Load) -> None:
    if (copied.files, copied.bytes) != (load.files, load.total_bytes):
        raise RuntimeError(f"want {load.files} files of {load.total_bytes} bytes, got {copied}")


def main(argv: list[str]) -> int:
    """A copy in a process of its own, which tells how much memory it took at most."""
    stores, name, size = argv
    source, target, probed = (S3Store(*fields) for fields in json.loads(stores))
    abilities = ProbedAbilities(probed.properties, probed.uri)  # reads what was recorded there: nothing is probed anew
    Ours(source, abilities).seconds(Load(name, 1, int(size)), target)
    status = Path("/proc/self/status").read_text(encoding="ascii")  # getrusage tells of the parent before exec, too
    print(next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

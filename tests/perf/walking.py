"""Measures of the manifest walker: entries a second on one core, the memory of one large manifest, hostile blocks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lakemirror.formats.iceberg import manifest
from lakemirror.formats.iceberg.avro_walk import Engine, native_module
from lakemirror.formats.iceberg.plain_manifest import PlainRules
from tests.fuzz import run as fuzzing
from tests.fuzz import sanitized
from tests.perf import manifests
from tests.perf.row import Row

ENTRIES = 20_000
MILLION = 1_000_000
HOSTILE_BLOCKS = 1_000_000
_BARS: dict[Engine, int] = {"c": 100_000, "python": 15_000}
_NAMES: dict[Engine, str] = {"c": "C", "python": "Python fallback"}


def measure_walk(folder: Path) -> list[Row]:
    """Entries with 20 columns of random statistics: read for a plan and rewritten, inflate and deflate included."""
    data = b"".join(manifests.pieces(ENTRIES))
    single = b"".join(manifests.pieces(ENTRIES // 4, block_bytes=1))
    rules = PlainRules.mapping(manifests.PATHS)
    rows = []
    for engine in _engines():

        def rewrite(one: bytes = data, engine: Engine = engine) -> object:
            return manifest.rewrite(one, "bench", manifests.PATHS, {}, engine=engine)

        def read(engine: Engine = engine) -> object:
            return list(manifest.live_parts(data, "bench", manifests.PATHS, rules, engine=engine))

        speed, bar, name = _speed(ENTRIES, rewrite), _BARS[engine], _NAMES[engine]
        is_met = speed.core >= bar
        rows += [
            Row(f"manifest entries rewritten, one core, {name}", str(speed), f"≥ {bar:,}/s", is_met),
            Row(f"manifest entries read for a plan, one core, {name}", str(_speed(ENTRIES, read)), "–", None),
        ]
        if engine == "c":
            slow = _speed(ENTRIES // 4, lambda: rewrite(single))
            rows.append(Row("the same, one entry a block, rewritten, C", str(slow), "–", None))
    return rows


def _engines() -> Iterator[Engine]:
    if native_module(None, {}) is not None:
        yield "c"
    yield "python"


@dataclass(frozen=True, slots=True)
class Speed:
    """Entries a second: of one core's own time, which the bars are about, and by the clock beside other work."""

    core: float
    clock: float

    def __str__(self) -> str:
        return f"{self.core:,.0f}/s of processor time, {self.clock:,.0f}/s by the clock"


def _speed(entries: int, work: Callable[[], object], times: int = 7) -> Speed:
    """The best of a few by each measure; the work is done by one thread."""
    core, clock = [], []
    for _ in range(times):
        starts = time.process_time(), time.perf_counter()
        work()
        core.append(time.process_time() - starts[0])
        clock.append(time.perf_counter() - starts[1])
    return Speed(entries / min(core), entries / min(clock))


def measure_million(folder: Path) -> list[Row]:
    """One manifest of 1,000,000 entries: read, planned as a whole and rewritten, each in a process of its own."""
    rows = []
    for what, title, are_vectors, want in (
        ("read", "entries, read for a plan", False, MILLION),
        ("plan", "entries, the whole plan in the task lane", False, MILLION),
        ("rewrite", "entries, rewritten", False, None),
        ("plan", "deletion vectors in 1,000 Puffin files, the whole plan in the task lane", True, MILLION // 1000),
    ):
        home = folder / ("vectors" if are_vectors else "data")
        manifest_file = home / "source" / "m.avro"
        if not manifest_file.exists():
            manifest_file.parent.mkdir(parents=True)
            manifests.write(manifest_file, MILLION, (home / "source").as_uri(), are_vectors=are_vectors)
        command = [sys.executable, "-m", "tests.perf.million", what, str(home)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
        found = json.loads(done.stdout)
        if want is not None and found["answer"] != want:
            raise RuntimeError(f"{what}: want {want}, got {found['answer']}")
        peak, size = found["peak_mb"], manifest_file.stat().st_size
        told = f"{peak:.0f} MB resident, {found['seconds']:.1f} s"
        rows.append(Row(f"one manifest of 1,000,000 {title} ({size >> 20} MB)", told, "≤ 512 MB", peak <= 512))
    return rows


def measure_fuzz(folder: Path) -> list[Row]:
    """Mutated blocks through the walker in C, built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    cc = fuzzing.compiler()
    if cc is None:
        raise RuntimeError("the measure needs a C compiler with sanitizers")
    start = time.perf_counter()
    done = fuzzing.fuzz(cc, folder, HOSTILE_BLOCKS, fuzzing.SEED)
    is_met = done.returncode == 0
    told = f"{done.stdout.strip()} ({time.perf_counter() - start:.0f} s)" if is_met else done.stderr[:200]
    start = time.perf_counter()
    blocks, files = HOSTILE_BLOCKS // fuzzing.PER_BINDING_BLOCK, HOSTILE_BLOCKS // fuzzing.PER_FILE
    thrown = sanitized.throw(cc, folder, blocks, files, fuzzing.SEED)
    is_whole = thrown.returncode == 0
    also = f"{thrown.stdout.strip()} ({time.perf_counter() - start:.0f} s)" if is_whole else thrown.stderr[:200]
    return [
        Row("hostile Avro blocks, sanitizers on", told, "10^6, 0 crashes, 0 over-reads", is_met),
        Row("the same through the extension as Python loads it", also, "0 crashes, 0 over-reads", is_whole),
    ]

"""Measures side by side with `rewrite_table_path`, and the first plan of very large tables.

Tables are made once, below `.bench/tables`, and used again. Every number comes from a process of its own. The numbers
also go to `.bench/rivals.json`, from which `tests.perf.rivals.plot` draws.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.perf.rivals.tables import Made, load
from tests.perf.row import Row

PROJECT = Path(__file__).resolve().parents[3]
TABLES = PROJECT / ".bench" / "tables"
NUMBERS = PROJECT / ".bench" / "rivals.json"
COMMITS, FILES = 1000, 100
LARGE_COMMITS, LARGE_FILES = (100, 200, 300), 10_000  # 1, 2 and 3 million files
HEAP = "2g"
_TIMEOUT_S = 3600
Json = dict[str, Any]


def measure_rivals(folder: Path) -> list[Row]:
    """The same table for both: one commit of 100 files on 1,000 commits, and everything from nothing."""
    table = _table(COMMITS, FILES)
    theirs = {what: _python("theirs", table.folder, what) for what in ("commit", "full")}
    ours = {
        (what, lane): _python("ours", table.folder, what, lane)
        for what in ("commit", "full")
        for lane in ("task", "spark")
    }
    _keep("rivals", {"theirs": theirs, **{f"ours {what} {lane}": found for (what, lane), found in ours.items()}})
    names = {
        "commit": f"one commit of {FILES} files on {COMMITS:,} commits",
        "full": f"all of {COMMITS + 1:,} commits, every snapshot tagged",
    }
    bars = {"commit": 50, "full": 3}
    rows = []
    for what, name in names.items():
        rows.append(Row(f"{name}: rewrite_table_path", f"{theirs[what]['seconds']:.1f} s", "–", None))
        for lane in ("task", "spark"):
            spent = ours[what, lane]["seconds"]
            ratio = theirs[what]["seconds"] / spent
            is_held = (what, lane) != ("commit", "spark")  # a commit of this size never takes that lane by itself
            rows.append(
                Row(
                    f"{name}: {lane} lane, no bytes copied, as the other",
                    f"{spent:.2f} s, {ratio:.0f}×",
                    f"≥ {bars[what]}×" if is_held else "–",
                    ratio >= bars[what] if is_held else None,
                )
            )
    rows += _reads(ours["commit", "task"])
    return rows


def _reads(found: Json) -> list[Row]:
    """All objects that are read, on both sides and for whatever reason; a listing, a HEAD and a 404 read none."""
    reads = found["reads"]
    others = reads["objects"] - found["manifests"]
    measured = f"{others} + {found['manifests']} changed manifest"
    looks = f"{reads['lists']} listings, {reads['looks']} HEADs of what it wrote, {reads['absent']} for nothing"
    return [
        Row(
            "one commit: objects read in all, both sides, the lease included",
            measured,
            "≤ 6 + changed",
            others <= 6,
        ),
        Row("one commit: of these, read back of what it wrote itself", str(reads["own"]), "–", None),
        Row("one commit: requests besides that read no object", looks, "–", None),
    ]


def measure_large(folder: Path) -> list[Row]:
    """The first plan of 1, 2 and 3 million files in the Spark lane: one JVM with a heap of 2 GB for everything."""
    table = _table(max(LARGE_COMMITS), LARGE_FILES)
    rows, found = [], {}
    for commits in LARGE_COMMITS:
        files = commits * LARGE_FILES
        found[files] = answer = _python("ours", table.folder, str(commits), "spark", HEAP)
        memory = ", ".join(f"{kind} {size} MB" for kind, size in answer["peak_mb"].items())
        name = f"first plan of {files:,} files, heap {HEAP}"
        rows.append(Row(name, f"{answer['seconds']:.1f} s", "all planned", answer["files"] == files))
        rows.append(Row(f"{name}: peak resident", memory, "–", None))
    _keep("large", {str(files): answer for files, answer in found.items()})
    first, last = min(found), max(found)
    growth = found[last]["seconds"] / found[first]["seconds"]
    want = last / first * 1.25
    rows.append(Row(f"growth from {first:,} to {last:,} files", f"{growth:.2f}×", f"≤ {want:.2f}×", growth <= want))
    return rows


def _table(commits: int, files_per_commit: int) -> Made:
    folder = TABLES / f"{commits}x{files_per_commit}"
    found = load(folder)
    if found is None:
        print(f"bench: making a table of {commits:,} commits of {files_per_commit:,} files …", file=sys.stderr)
        subprocess.run([str(PROJECT / "scripts" / "fetch_jars.sh")], check=True, timeout=600)
        _run("tables", str(folder), str(commits), str(files_per_commit))
        found = load(folder)
    if found is None:
        raise RuntimeError(f"the table in {folder} was not made")
    return found


def _python(module: str, *arguments: str) -> Json:
    """The last line that the module prints, which is JSON."""
    answer: Json = json.loads(_run(module, *arguments).splitlines()[-1])
    return answer


def _run(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"tests.perf.rivals.{module}", *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _keep(name: str, numbers: Json) -> None:
    NUMBERS.parent.mkdir(exist_ok=True)
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    load_average = f"{os.getloadavg()[1]:.1f}"
    NUMBERS.write_text(json.dumps({**known, name: {**numbers, "load_average": load_average}}, indent=1) + "\n")

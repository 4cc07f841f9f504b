"""The extension as Python loads it, built with sanitizers, and a Python that runs with them.

`run.build` has the walking core alone; here its binding is in it, too: buffers of Python, allocations, arguments.
Python's own allocator is out of the way, so that what lies around a buffer is poisoned.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.fuzz import corpus, run
from tests.fuzz.binding import WALKER


def build(cc: str, folder: Path) -> Path:
    library = folder / "_walk.so"
    sources = [str(source) for source in sorted(run.NATIVE.glob("*.c"))]
    headers = [f"-isystem{path}" for path in {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}]
    flags = ["-std=c11", "-g", "-O1", "-fPIC", "-shared", *run.SANITIZERS]
    subprocess.run([cc, *flags, *headers, "-o", str(library), *sources], check=True, timeout=300)
    return library


def runtime(cc: str) -> str | None:
    """The sanitizer's library that must be loaded before all else, if this compiler has one to be shared."""
    for name in ("libasan.so", f"libclang_rt.asan-{os.uname().machine}.so"):
        said = subprocess.run([cc, f"-print-file-name={name}"], capture_output=True, text=True, timeout=60, check=False)
        path = Path(said.stdout.strip())
        if path.is_absolute() and path.exists():
            return str(path)
    return None


def throw(
    cc: str, folder: Path, blocks: int, files: int, seed: int, timeout_s: int = 3600
) -> subprocess.CompletedProcess[str]:
    """So many blocks and files through the extension in a child; `folder/at` says which was the last."""
    preloaded = runtime(cc)
    if preloaded is None:
        raise RuntimeError(f"{cc} has no AddressSanitizer to be shared: install it, or set CC")
    # Of what Python leaks at its end nothing is ours.
    environment = {
        **os.environ,
        "LD_PRELOAD": preloaded,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": f"{run.PROJECT / 'plugins'}:{run.PROJECT}",
        "LAKEMIRROR_WALKER": "c",
        WALKER: str(build(cc, folder)),
    }
    corpus.write(folder / "corpus")
    numbers = [str(number) for number in (blocks, files, seed)]
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.binding", str(folder), *numbers],
        cwd=run.PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

"""`make fuzz`: mutated blocks through the walking core under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.fuzz.run --blocks 1000000 --seed 1

Then a tenth as many through the extension as Python loads it, its binding included, and a few thousand mutated
manifests and lists through the library over it (`sanitized`).

Exit 0: nothing crashed and nothing was read outside its buffer. Otherwise the sanitizer's report is on stderr; the same
seed repeats the run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import corpus

PROJECT = Path(__file__).resolve().parents[2]
NATIVE = PROJECT / "plugins" / "lakemirror" / "formats" / "iceberg" / "native"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
SEED = 20_261_116
PER_BINDING_BLOCK, PER_FILE = 10, 500  # blocks of the core for each one through Python


def compiler() -> str | None:
    return next(
        (found for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None
    )


def build(cc: str, folder: Path) -> Path:
    """The core without Python, and the fuzzer, with sanitizers."""
    program = folder / "fuzz_walk"
    sources = [str(NATIVE / "walk.c"), str(NATIVE / "paths.c"), str(Path(__file__).with_name("fuzz_walk.c"))]
    command = [cc, "-std=c11", "-g", "-O1", *SANITIZERS, *WARNINGS, f"-I{NATIVE}", "-o", str(program), *sources]
    subprocess.run(command, check=True, timeout=300)
    return program


def fuzz(cc: str, folder: Path, blocks: int, seed: int, timeout_s: int = 3600) -> subprocess.CompletedProcess[str]:
    corpus.write(folder / "corpus")
    command = [str(build(cc, folder)), str(folder / "corpus"), str(blocks), str(seed)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()
    cc = compiler()
    if cc is None:
        print("make fuzz needs a C compiler with sanitizers (gcc or clang) on PATH", file=sys.stderr)
        return 2
    from tests.fuzz import sanitized  # which builds by what is here

    with tempfile.TemporaryDirectory(prefix="lakemirror-fuzz-") as name:
        folder = Path(name)
        done = _told(fuzz(cc, folder, args.blocks, args.seed))
        if done == 0:
            blocks, files = args.blocks // PER_BINDING_BLOCK, args.blocks // PER_FILE
            done = _told(sanitized.throw(cc, folder, blocks, files, args.seed))
            if done:
                print(f"the last was {(folder / 'at').read_text()}", end="", file=sys.stderr)
    return done


def _told(done: subprocess.CompletedProcess[str]) -> int:
    print(done.stdout, end="", flush=True)
    print(done.stderr, end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

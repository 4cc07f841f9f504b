"""Builds the walker in C (plugins/lakemirror/formats/iceberg/native) for the Python that runs this.

Silent when there is nothing to do. Without a compiler, or where it fails, set-up goes on with the walker in Python and
says so in one sentence, once. `--must` fails instead (the image has a stage that exists for this alone).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / "plugins" / "lakemirror" / "formats" / "iceberg"
TARGET = FOLDER / f"_walk{EXTENSION_SUFFIXES[0]}"
NOTE = PROJECT / ".cache" / "walker-not-built"  # what was tried in vain, so that it is neither tried nor said again
FLAGS = ["-std=c11", "-O2", "-fPIC", "-fstack-protector-strong", "-Wall", "-Wextra"]
TIMEOUT_S = 300


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--must", action="store_true", help="fail if it cannot be built")
    must = parser.parse_args(argv).must
    sources = sorted((FOLDER / "native").glob("*.[ch]"))
    if not sources or _is_current(sources):
        return 0
    TARGET.unlink(missing_ok=True)  # code of yesterday must not answer for today's
    command = _command()
    attempt = _fingerprint(sources, command)
    if not must and NOTE.is_file() and NOTE.read_text() == attempt:
        return 0
    problem = _build(command, sources) if command else "no C compiler was found"
    if problem is None:
        NOTE.unlink(missing_ok=True)
        return 0
    print(
        f"setup: the walker in C was not built ({problem}); manifests are walked in Python, correct but slower: "
        "install a C compiler and run 'make setup' again",
        file=sys.stderr,
    )
    if must:
        return 1
    NOTE.parent.mkdir(exist_ok=True)
    NOTE.write_text(attempt)
    return 0


def _is_current(sources: list[Path]) -> bool:
    return TARGET.exists() and all(source.stat().st_mtime <= TARGET.stat().st_mtime for source in sources)


def _command() -> list[str]:
    """How this Python's extensions are linked, with a compiler that is there; empty if there is none."""
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    for compiler in (os.environ.get("CC"), linker[0], "cc", "gcc", "clang"):
        if compiler and (found := shutil.which(compiler)):
            return [found, *linker[1:]]
    return []


def _fingerprint(sources: list[Path], command: list[str]) -> str:
    digest = hashlib.sha256(repr((command, TARGET.name, sys.version)).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _build(command: list[str], sources: list[Path]) -> str | None:
    """Compile and load it under another name, then put it in its place; what went wrong, if something did."""
    unfinished = TARGET.with_name(f".{os.getpid()}-{TARGET.name}")
    includes = [f"-I{path}" for path in {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}]
    files = [str(source) for source in sources if source.suffix == ".c"]
    try:
        done = subprocess.run(
            [*command, *FLAGS, *includes, "-o", str(unfinished), *files],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            return f"{Path(command[0]).name} failed: {errors[0].strip() if errors else 'it does not say why'}"
        _load(unfinished)
        unfinished.replace(TARGET)
    except (OSError, ImportError, subprocess.TimeoutExpired) as err:
        return str(err)
    finally:
        unfinished.unlink(missing_ok=True)
    return None


def _load(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("_walk", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no extension of this Python")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

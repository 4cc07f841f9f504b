"""The walker in C: built where there is a compiler, again when its source is newer, and never a reason to stop."""

import os
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.unit.scripts.conftest import ROOT, House

FOLDER = "plugins/lakemirror/formats/iceberg"
BUILT = f"{FOLDER}/_walk{EXTENSION_SUFFIXES[0]}"
BUILD = (sys.executable, "-I", "scripts/build_walker.py")
COMPILERS = [name for name in ("cc", "gcc", "clang", "as", "ld") if shutil.which(name)]
needs_compiler = pytest.mark.skipif(not shutil.which("cc") and not os.environ.get("CI"), reason="no C compiler")


@pytest.fixture
def yard(house: House) -> House:
    """The script and the sources; no compiler on PATH."""
    shutil.copy(ROOT / "scripts/build_walker.py", house.folder / "scripts/build_walker.py")
    shutil.copytree(ROOT / FOLDER / "native", house.folder / FOLDER / "native")
    return house


@pytest.fixture
def equipped(yard: House) -> House:
    for name in COMPILERS:
        (yard.bin / name).symlink_to(str(shutil.which(name)))
    return yard


def built(house: House) -> Path:
    return house.folder / BUILT


@needs_compiler
def test_it_is_built_once_and_silently(equipped: House) -> None:
    first = equipped.run(*BUILD)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    made = built(equipped).stat()

    again = equipped.run(*BUILD)

    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert built(equipped).stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in (equipped.folder / FOLDER).iterdir() if path.is_file()] == [built(equipped).name]


@needs_compiler
def test_a_newer_source_builds_it_again(equipped: House) -> None:
    equipped.run(*BUILD)
    os.utime(built(equipped), (5, 5))
    for source in (equipped.folder / FOLDER / "native").iterdir():
        os.utime(source, (5, 5))
    equipped.run(*BUILD)
    assert built(equipped).stat().st_mtime == 5
    os.utime(equipped.folder / FOLDER / "native" / "walk.h", (6, 6))

    equipped.run(*BUILD)

    assert built(equipped).stat().st_mtime > 6


@needs_compiler
def test_what_was_built_walks(equipped: House) -> None:
    equipped.run(*BUILD)
    code = f"import sys; sys.path.insert(0, {FOLDER!r}); import _walk; print(_walk.VERSION)"
    assert equipped.run(sys.executable, "-c", code).stdout == "2\n"


def test_without_a_compiler_one_sentence_once_and_no_failure(yard: House) -> None:
    first = yard.run(*BUILD)
    assert (first.returncode, first.stdout) == (0, "")
    assert first.stderr.startswith("setup: the walker in C was not built (no C compiler was found); ")
    assert first.stderr.count("\n") == 1

    again = yard.run(*BUILD)

    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert not built(yard).exists()


@needs_compiler
def test_a_compiler_that_comes_later_is_used(yard: House) -> None:
    yard.run(*BUILD)
    for name in COMPILERS:
        (yard.bin / name).symlink_to(str(shutil.which(name)))

    assert yard.run(*BUILD).stderr == ""
    assert built(yard).exists()


def test_a_compiler_that_fails_is_told_and_what_was_built_before_is_gone(yard: House) -> None:
    yard.tool("cc", "echo 'module.c:4: fatal error: Python.h: No such file or directory' >&2; exit 1")
    yard.write(BUILT, "of yesterday")
    os.utime(built(yard), (1, 1))

    told = yard.run(*BUILD)

    assert (told.returncode, told.stderr.count("\n")) == (0, 1)
    assert "cc failed: module.c:4: fatal error: Python.h" in told.stderr
    assert not built(yard).exists()
    assert yard.run(*BUILD).stderr == ""


def test_what_does_not_load_is_not_kept(yard: House) -> None:
    """The linker may succeed and the result still not be an extension of this Python."""
    yard.tool("cc", 'while [[ $1 != -o ]]; do shift; done; echo "no library" >"$2"')

    assert "was not built" in yard.run(*BUILD).stderr
    assert not built(yard).exists()


def test_the_image_insists(yard: House) -> None:
    assert yard.run(*BUILD, "--must").returncode == 1
    assert yard.run(*BUILD, "--must").returncode == 1


def test_without_sources_there_is_nothing_to_do(yard: House) -> None:
    shutil.rmtree(yard.folder / FOLDER / "native")

    done = yard.run(*BUILD)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_set_up_goes_on_without_a_compiler_and_is_silent_the_second_time(yard: House) -> None:
    from tests.unit.scripts.test_setup import PYTHON, STAMP, java

    yard.tool("python3.11", PYTHON)
    yard.tool("java", java("17.0.15"))
    for name in ("requirements.in", "requirements.txt", "requirements-dev.txt", "pyproject.toml"):
        yard.write(name, "one\n")

    first, again = yard.run("scripts/setup.sh"), yard.run("scripts/setup.sh")

    assert (first.returncode, first.stderr.count("the walker in C was not built")) == (0, 1)
    assert (yard.folder / STAMP).exists()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

import sys

import pytest

from tests.unit.scripts.conftest import House

# Plays Python 3.11: makes environments whose python is this script, and notes installs instead of doing them.
PYTHON = f"""
case "$*" in
    *ensurepip*) echo "$0" ;;
    *"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    *"-m pip "* | *"-m uv "*) echo "${{@:2}}" >>installs; [[ -z ${{BREAK:-}} ]] ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
STAMP = ".venv/.lakemirror-setup"


def java(version: str) -> str:
    return f"""echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2; echo 'openjdk version "{version}" 2025-04-15' >&2"""


@pytest.fixture
def ready(house: House) -> House:
    """A machine that has all that set-up needs."""
    house.tool("python3.11", PYTHON)
    house.tool("java", java("17.0.15"))
    for name in ("requirements.in", "requirements.txt", "requirements-dev.txt", "pyproject.toml"):
        house.write(name, "one\n")
    return house


def installs(house: House) -> list[str]:
    log = house.folder / "installs"
    return log.read_text().splitlines() if log.exists() else []


def test_installs_the_pinned_files_with_pinned_uv_and_lakemirror_last(ready: House) -> None:
    done = ready.run("scripts/setup.sh")

    assert (done.returncode, done.stderr) == (0, "")
    assert installs(ready) == [
        "pip install --quiet --disable-pip-version-check uv==0.13.7",
        "uv pip install --quiet --python .venv/bin/python --no-deps -r requirements.txt -r requirements-dev.txt",
        "uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .",
    ]


def test_second_time_is_silent_and_installs_nothing(ready: House) -> None:
    ready.run("scripts/setup.sh")
    before = installs(ready)

    again = ready.run("scripts/setup.sh")

    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert installs(ready) == before


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "pyproject.toml"])
def test_a_changed_file_installs_again_into_the_same_environment(ready: House, name: str) -> None:
    ready.run("scripts/setup.sh")
    ready.write(".venv/kept", "")
    ready.write(name, "two\n")

    again = ready.run("scripts/setup.sh")

    assert again.returncode == 0
    assert len(installs(ready)) == 6
    assert (ready.folder / ".venv/kept").exists()


def test_a_moved_project_installs_again(ready: House) -> None:
    ready.run("scripts/setup.sh")
    elsewhere = ready.folder.rename(ready.folder.with_name("elsewhere"))
    ready.folder, ready.bin = elsewhere, elsewhere / ready.bin.name

    assert ready.run("scripts/setup.sh").returncode == 0
    assert len(installs(ready)) == 6


def test_an_interrupted_set_up_leaves_no_stamp_and_the_next_one_starts_clean(ready: House) -> None:
    broken = ready.run("scripts/setup.sh", env={"BREAK": "1"})
    assert broken.returncode != 0
    assert not (ready.folder / STAMP).exists()
    ready.write(".venv/lib/half-a-package", "")

    healed = ready.run("scripts/setup.sh")

    assert healed.returncode == 0
    assert (ready.folder / STAMP).exists()
    assert not (ready.folder / ".venv/lib/half-a-package").exists()
    assert ready.run("scripts/setup.sh").stdout == ""


def test_an_interrupted_update_is_not_taken_for_finished(ready: House) -> None:
    ready.run("scripts/setup.sh")
    ready.write("requirements.txt", "two\n")
    ready.run("scripts/setup.sh", env={"BREAK": "1"})
    ready.write("requirements.txt", "one\n")

    assert "making .venv" in ready.run("scripts/setup.sh").stdout


def test_without_python_311_one_sentence_and_nothing_written(ready: House) -> None:
    (ready.bin / "python3.11").unlink()
    ready.tool("python3", "exit 1")

    refused = ready.run("scripts/setup.sh")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("Lakemirror needs Python 3.11")
    assert refused.stderr.count("\n") == 1
    assert not (ready.folder / ".venv").exists()


def test_python_may_be_named(ready: House) -> None:
    (ready.bin / "python3.11").rename(ready.bin / "snake")

    assert ready.run("scripts/setup.sh", env={"PYTHON": str(ready.bin / "snake")}).returncode == 0


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (java("11.0.2"), "'java' is Java 11"),
        (java("1.8.0_402"), "'java' is Java 8"),
        ("echo 'no runtime present' >&2; exit 1", "'java' does not run"),
        ("echo hello", "does not tell its version"),
    ],
)
def test_without_java_17_one_sentence_and_nothing_written(ready: House, script: str, found: str) -> None:
    ready.tool("java", script)

    refused = ready.run("scripts/setup.sh")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("Lakemirror needs Java 17 or newer")
    assert found in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (ready.folder / ".venv").exists()


def test_java_home_goes_before_path(ready: House) -> None:
    refused = ready.run("scripts/setup.sh", env={"JAVA_HOME": "/no/such/java"})

    assert refused.returncode == 2
    assert "'/no/such/java/bin/java' does not run" in refused.stderr


@pytest.mark.parametrize("version", ["17", "21.0.3", "24-ea"])
def test_java_17_and_newer_are_taken(ready: House, version: str) -> None:
    ready.tool("java", java(version))

    assert ready.run("scripts/setup.sh").returncode == 0


def test_into_another_environment_without_development_tools(ready: House) -> None:
    done = ready.run("scripts/setup.sh", "--into", str(ready.bin / "python3.11"))

    assert done.returncode == 0
    assert [line for line in installs(ready) if "requirements-dev" in line] == []
    assert len(installs(ready)) == 3
    assert not (ready.folder / ".venv").exists()

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = "help setup lint test test-unit test-e2e demo bench fuzz soak fixtures up down clean".split()

FAST = ["tests/dags", "tests/contract", "tests/unit"]


def make(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), *words]
    # The outer make hands its own flags and variables down; a test must not see them.
    env = {"PATH": os.environ["PATH"]}
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, timeout=60, check=False)


def test_help_names_every_target_once() -> None:
    listed = re.findall(r"^  make ([a-z0-9-]+) +\S", make("help").stdout, re.MULTILINE)

    assert set(TARGETS) <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("target", ["fixtures"])
def test_what_is_not_there_yet_says_so_and_fails(target: str) -> None:
    answer = make(target)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"make {target} is not part of this version: it will ")


@pytest.mark.parametrize(
    "target", ["lint", "format", "test", "test-unit", "test-e2e", "demo", "bench", "fuzz", "soak", "up", "lock"]
)
def test_what_needs_the_environment_makes_it_first(target: str) -> None:
    steps = make("-n", target).stdout.splitlines()

    assert steps[0] == "/bin/bash scripts/setup.sh"
    assert len(steps) > 1


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ((), "--profile embedded"),
        (("KEEP=1",), "--keep --profile embedded"),
        (("KEEP=0", "PROFILE=services"), "--profile services"),
    ],
)
def test_demo_passes_its_variables_on(words: tuple[str, ...], arguments: str) -> None:
    last = make("-n", "demo", *words).stdout.splitlines()[-1]

    assert " ".join(last.split("scripts/demo.py")[1].split()) == arguments


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ((), ""),
        (("GCS=0", "SPARK="), ""),
        (("GCS=1", "HMS=1", "SPARK=1"), "--gcs --hms --spark"),
    ],
)
def test_up_passes_its_variables_on(words: tuple[str, ...], arguments: str) -> None:
    last = make("-n", "up", *words).stdout.splitlines()[-1]

    assert " ".join(last.split("-m dev.services up")[1].split()) == arguments


def test_down_where_nothing_was_ever_up_says_so(tmp_path: Path) -> None:
    answer = make("down", folder=tmp_path)

    assert (answer.returncode, answer.stdout) == (0, "services: nothing was up\n")


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ((), "--hours 1"),
        (("HOURS=3",), "--hours 3"),
        (("MINUTES=8",), "--minutes 8"),
        (("MINUTES=8", "ONLY=simulated"), "--minutes 8 --only simulated"),
    ],
)
def test_soak_takes_hours_or_minutes(words: tuple[str, ...], arguments: str) -> None:
    last = make("-n", "soak", *words).stdout.splitlines()[-1]

    assert last.split("tests.histories.soak ")[1].split() == arguments.split()


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ((), "run"),
        (("FUZZ_ARGS=--seed 7",), "run --seed 7"),
        (("MINUTES=8",), "inputs --minutes 8"),
        (("MINUTES=8", "FUZZ_ARGS=--seed 7"), "inputs --minutes 8 --seed 7"),
    ],
)
def test_fuzz_takes_blocks_or_files(words: tuple[str, ...], arguments: str) -> None:
    last = make("-n", "fuzz", *words).stdout.splitlines()[-1]

    assert last.split("tests.fuzz.")[1].rstrip() == arguments


def test_unit_tests_need_no_service() -> None:
    runs = [line for line in make("-n", "test-unit").stdout.splitlines() if "pytest" in line]

    assert [line.rpartition(" -m pytest ")[2].split() for line in runs] == [
        [*'-m "not services" -n 2 --dist loadfile --no-loadscope-reorder'.split(), *FAST, "tests/simulation"]
    ]


def test_all_tests_in_one_process_if_so_wished() -> None:
    runs = [line for line in make("-n", "test", "PROCESSES=1").stdout.splitlines() if "pytest" in line]

    assert [line.rpartition(" -m pytest ")[2].split() for line in runs] == [
        ["tests/simulation/test_schedules.py"],
        ["--ignore", "tests/simulation/test_schedules.py", "tests/integration", "tests/e2e", *FAST, "tests/simulation"],
    ]


def test_one_file_instead_of_all() -> None:
    runs = [
        line for line in make("-n", "test", "T=tests/unit/test_makefile.py").stdout.splitlines() if "pytest" in line
    ]

    assert len(runs) == 1
    assert runs[0].endswith(" tests/unit/test_makefile.py")


@pytest.mark.parametrize(
    ("words", "is_fetched"),
    [
        ((), True),
        (("T=tests/e2e/test_x.py",), True),
        (("T=tests/unit tests/e2e",), True),
        (("T=tests/unit/test_x.py",), False),
    ],
)
def test_jars_are_fetched_only_where_a_jvm_is_started(words: tuple[str, ...], is_fetched: bool) -> None:
    assert ("scripts/fetch_jars.sh" in make("-n", "test", *words).stdout) is is_fetched


def test_all_tests_are_all_folders() -> None:
    runs = " ".join(line for line in make("-n", "test").stdout.splitlines() if "pytest" in line)

    for folder in ("unit", "contract", "dags", "integration", "e2e"):
        assert f"tests/{folder}" in runs


@pytest.mark.parametrize("words", [(), ("ALL=1",)])
def test_clean_removes_caches_and_demo_homes_and_the_environment_only_when_asked(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    for folder in (".cache/jars", ".services", ".demo/home", ".mypy_cache", "dags/__pycache__", ".venv/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dags/kept.py").touch()

    assert make("clean", *words, folder=tmp_path).returncode == 0

    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ([] if words else [".venv", ".venv/__pycache__"]) + ["dags", "dags/kept.py"]

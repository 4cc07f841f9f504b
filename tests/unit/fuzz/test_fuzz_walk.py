"""The walking core under sanitizers: a bounded number of mutated blocks here, a million in `make fuzz`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz import run

BLOCKS = 30_000
pytestmark = pytest.mark.skipif(run.compiler() is None and not os.environ.get("CI"), reason="no C compiler")


def test_mutated_blocks_do_no_harm(tmp_path: Path) -> None:
    cc = run.compiler()
    assert cc is not None
    done = run.fuzz(cc, tmp_path, BLOCKS, run.SEED, timeout_s=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{BLOCKS} blocks, ")
    assert done.stdout.endswith(", 0 crashes, 0 over-reads\n")
    taken = int(done.stdout.split()[2])
    assert BLOCKS // 20 < taken < BLOCKS // 2  # neither is all refused at the door nor all harmless


@pytest.mark.parametrize(
    ("file", "check", "sabotaged"),
    [
        ("walk.c", "if (size > w->size - w->pos)", "if (size > w->size)"),
        ("walk.c", "i < left && i < 10", "i < 10"),
        ("walk.c", "*branch >= node[1]", "*branch >= node[1] * 1000000"),
        ("walk.c", "(size_t)argument >= slots", "slots > LM_MAX_SLOTS"),
        ("paths.c", "total += (size_t)range.start - done", "total += (size_t)range.start - done - 1"),
    ],
)
def test_a_missing_check_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, check: str, sabotaged: str
) -> None:
    """The fuzzer is worth its name: with one check less in the core it reports within the same number of blocks."""
    cc = run.compiler()
    assert cc is not None
    copy = tmp_path / "native"
    copy.mkdir()
    for source in run.NATIVE.glob("*.[ch]"):
        text = source.read_text()
        if source.name == file:
            assert check in text
            text = text.replace(check, sabotaged)
        (copy / source.name).write_text(text)
    monkeypatch.setattr(run, "NATIVE", copy)
    done = run.fuzz(cc, tmp_path, BLOCKS, run.SEED, timeout_s=110)
    assert done.returncode != 0
    assert "ERROR: AddressSanitizer" in done.stderr or "runtime error" in done.stderr or "broken promise" in done.stderr

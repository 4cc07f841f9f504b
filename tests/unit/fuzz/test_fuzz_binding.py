"""The extension as Python loads it, under sanitizers: a bounded number of blocks and files; more in `make fuzz`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.fuzz import run, sanitized

BLOCKS, FILES = 6_000, 60
pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and (run.compiler() is None or sanitized.runtime(str(run.compiler())) is None),
    reason="no C compiler with a sanitizer to be shared",
)


def throw(folder: Path, files: int = 0) -> tuple[int, str, str]:
    cc = run.compiler()
    assert cc is not None
    done = sanitized.throw(cc, folder, BLOCKS, files, run.SEED, timeout_s=110)
    return done.returncode, done.stdout, done.stderr


def test_what_python_hands_over_does_no_harm(tmp_path: Path) -> None:
    code, said, errors = throw(tmp_path, FILES)
    assert (code, errors) == (0, "")
    found = re.fullmatch(
        rf"binding: {BLOCKS} blocks \((\d+) taken, \d+ refused\), "
        rf"{FILES} files \((\d+) taken, \d+ refused\), 0 findings\n",
        said,
    )
    assert found is not None, said
    assert BLOCKS // 20 < int(found[1]) < BLOCKS // 2  # neither is all refused at the door nor all harmless
    assert 0 < int(found[2]) < FILES


@pytest.mark.parametrize(
    ("check", "sabotaged"),
    [
        ("start < 0 || start > data.len ||", ""),
        ("NULL, count * self->slots *", "NULL, (count - 1) * self->slots *"),
        ("slot < -1 || slot >= (long long)slots", "slot < -1"),
        ("memcpy(copy, code.buf, (size_t)code.len)", "memcpy(copy, code.buf, (size_t)code.len + 2)"),
    ],
)
def test_a_missing_check_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, sabotaged: str) -> None:
    """With one check less in the binding the sanitizer reports within the same number of blocks, and says which."""
    copy = tmp_path / "native"
    copy.mkdir()
    for source in run.NATIVE.glob("*.[ch]"):
        text = source.read_text()
        if source.name == "module.c":
            assert check in text
            text = text.replace(check, sabotaged)
        (copy / source.name).write_text(text)
    monkeypatch.setattr(run, "NATIVE", copy)
    code, _, errors = throw(tmp_path)
    assert code != 0
    assert "ERROR: AddressSanitizer" in errors or "runtime error" in errors, errors
    assert re.fullmatch(rf"block +\d+ of seed {run.SEED}\n", (tmp_path / "at").read_text())

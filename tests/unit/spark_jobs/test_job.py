"""What all Spark jobs share, with a played session: arguments, result file, exit code."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PythonException

from lakemirror.errors import (
    LakemirrorError,
    LostRaceError,
    PermanentError,
    SourceVanishedError,
    TransientError,
    UsageError,
    VerificationError,
)
from lakemirror.model.results import StageResult
from lakemirror.model.table import TableRef
from lakemirror.spark import job
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore

ORDERS = TableRef.parse("sales.orders")
RESULT = StageResult(ORDERS, "copy", "file:///p", 1.5, files=3, bytes=1200)
STORE = ObstoreStore({})


@pytest.fixture
def session() -> Iterator[MagicMock]:
    with patch("pyspark.sql.SparkSession.builder") as builder:
        yield builder.appName.return_value.getOrCreate.return_value


def _args(tmp_path: Path) -> job.JobArgs:
    return job.JobArgs("/c.yaml", ORDERS, "file:///p", f"file://{tmp_path}/results/r.json")


def _run(args: job.JobArgs, outcome: StageResult | Exception) -> tuple[int, dict[str, Any] | None]:
    def stage(spark: Any, given: job.JobArgs) -> StageResult:
        assert given is args
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def load(path: str) -> Any:
        assert path == "/c.yaml"
        return SimpleNamespace(mirror_store=STORE)

    return job.run_job("copy_objects", args, stage, load), job.read_result(STORE, args.result_uri)


def test_arguments() -> None:
    words = ["--config", "/c.yaml", "--table", "sales.orders", "--plan-uri", "file:///p", "--result-uri", "file:///r"]
    assert job.parse_args(words, "doc") == job.JobArgs("/c.yaml", ORDERS, "file:///p", "file:///r")


@pytest.mark.parametrize(
    "words",
    [[], ["--config", "c"], ["--conf", "c", "--table", "a.b", "--plan-uri", "p", "--result-uri", "r"]],
)
def test_missing_or_shortened_arguments_end_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        job.parse_args(words, "doc")
    assert ended.value.code == 2


def test_a_bad_table_name_ends_with_2_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        job.parse_args(["--config", "c", "--table", "orders", "--plan-uri", "p", "--result-uri", "r"], "doc")
    assert ended.value.code == 2
    assert "want <namespace>.<table>" in capsys.readouterr().err


def test_success(session: MagicMock, tmp_path: Path) -> None:
    code, written = _run(_args(tmp_path), RESULT)
    assert code == 0
    assert written == json.loads(json.dumps({**RESULT.as_json(), "report": RESULT.report()}))
    session.stop.assert_called_once_with()


@pytest.mark.parametrize(
    ("family", "code", "kind", "needs_new_plan"),
    [
        (TransientError, 1, "transient", False),
        (PermanentError, 1, "permanent", False),
        (UsageError, 2, "usage", False),
        (VerificationError, 4, "permanent", False),
        (LostRaceError, 5, "transient", True),
        (SourceVanishedError, 1, "transient", True),
    ],
)
def test_an_error_is_in_the_exit_code_and_in_the_result_file(
    session: MagicMock,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    family: type[LakemirrorError],
    code: int,
    kind: str,
    needs_new_plan: bool,
) -> None:
    got, written = _run(_args(tmp_path), family("copy", "s3://a", "went wrong", "look"))
    assert got == code
    assert written == {
        "table": "sales.orders",
        "ok": False,
        "error": {
            "kind": kind,
            "op": "copy",
            "subject": "s3://a",
            "message": "went wrong",
            "hint": "look",
            "needs_new_plan": needs_new_plan,
        },
        "report": ["copy s3://a: went wrong; look"],
    }
    assert capsys.readouterr().err == "copy s3://a: went wrong; look\n"
    session.stop.assert_called_once_with()


@pytest.mark.parametrize(
    ("err", "kind"),
    [
        (Py4JError("Error while sending or receiving"), "transient"),
        (PythonException("KeyError: 'target'"), "permanent"),
        (KeyError("target"), "permanent"),
    ],
)
def test_sparks_own_failures_may_pass_and_defects_do_not(
    session: MagicMock, tmp_path: Path, capsys: pytest.CaptureFixture[str], err: Exception, kind: str
) -> None:
    code, written = _run(_args(tmp_path), err)
    assert code == 1
    assert written is not None
    assert written["error"]["kind"] == kind
    assert written["error"]["op"] == "copy_objects"
    assert "Traceback" in capsys.readouterr().err


def test_a_bad_configuration_starts_no_session(
    session: MagicMock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(path: str) -> Any:
        raise UsageError("load config", path, "unknown key", "did you mean mirror?")

    def never(spark: Any, args: job.JobArgs) -> StageResult:
        raise AssertionError("the job must not run")

    assert job.run_job("copy_objects", _args(tmp_path), never, load) == 2
    assert "did you mean mirror?" in capsys.readouterr().err
    told = job.read_result(STORE, _args(tmp_path).result_uri)
    assert told is not None
    assert (told["ok"], told["error"]["kind"]) == (False, "usage")  # so that the submitter does not try again
    session.stop.assert_not_called()


def test_a_result_that_was_never_written_is_none(tmp_path: Path) -> None:
    store: ObjectStore = STORE
    assert job.read_result(store, f"file://{tmp_path}/none.json") is None


def test_a_later_result_replaces_an_earlier_one(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/r.json"
    job.write_result(STORE, uri, {"ok": False})
    job.write_result(STORE, uri, {"ok": True})
    assert job.read_result(STORE, uri) == {"ok": True}

"""Airflow retries what is transient and nothing else."""

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from lakemirror.airflow.errors import airflow_errors, exception_from_result
from lakemirror.errors import (
    LakemirrorError,
    LostRaceError,
    PermanentError,
    SourceVanishedError,
    TransientError,
    UsageError,
    VerificationError,
)


def _mapped(err: Exception, *, is_plan_fixed: bool = False) -> AirflowException:
    with pytest.raises(AirflowException) as caught, airflow_errors(is_plan_fixed=is_plan_fixed):
        raise err
    assert caught.value is err or caught.value.__cause__ is err
    return caught.value


@pytest.mark.parametrize("family", [PermanentError, UsageError, VerificationError])
def test_a_permanent_error_fails_without_retry(family: type[LakemirrorError]) -> None:
    mapped = _mapped(family("copy", "s3://a/b", "size differs (want 3, got 4)", "look at it"))
    assert isinstance(mapped, AirflowFailException)
    assert str(mapped) == "copy s3://a/b: size differs (want 3, got 4); look at it"


@pytest.mark.parametrize("family", [TransientError, SourceVanishedError, LostRaceError])
def test_a_transient_error_is_retried(family: type[LakemirrorError]) -> None:
    mapped = _mapped(family("list", "s3://a", "timed out"))
    assert type(mapped) is AirflowException
    assert str(mapped) == "list s3://a: timed out"


@pytest.mark.parametrize("family", [SourceVanishedError, LostRaceError])
def test_a_task_with_a_fixed_plan_is_not_retried_when_a_new_plan_is_needed(family: type[LakemirrorError]) -> None:
    mapped = _mapped(family("copy", "s3://a/b", "gone"), is_plan_fixed=True)
    assert isinstance(mapped, AirflowFailException)
    assert "the next run makes a new one" in str(mapped)


def test_a_task_with_a_fixed_plan_is_retried_after_a_passing_fault() -> None:
    assert type(_mapped(TransientError("copy", "s3://a/b", "503"), is_plan_fixed=True)) is AirflowException


def test_a_defect_is_not_retried() -> None:
    mapped = _mapped(ZeroDivisionError("division by zero"))
    assert isinstance(mapped, AirflowFailException)
    assert "ZeroDivisionError: division by zero" in str(mapped)


def test_what_airflow_raises_itself_passes_unchanged() -> None:
    skip = AirflowSkipException("nothing to do")
    assert _mapped(skip) is skip


@pytest.mark.parametrize(
    ("kind", "needs_new_plan", "is_retried"),
    [("transient", False, True), ("transient", True, False), ("permanent", False, False), ("usage", False, False)],
)
def test_the_error_in_a_result_file_decides_alike(kind: str, needs_new_plan: bool, is_retried: bool) -> None:
    error = {"kind": kind, "op": "copy", "subject": "x", "message": "m", "hint": "", "needs_new_plan": needs_new_plan}
    mapped = exception_from_result(error)
    assert isinstance(mapped, AirflowFailException) is not is_retried
    assert str(mapped).startswith("copy x: m")


def test_the_notes_of_an_error_in_a_result_file_are_told() -> None:
    err = TransientError("copy", "x", "m", "run again")
    err.add_note("gave up after 3 new plans (max_replans)")
    assert str(exception_from_result({**err.as_json(), "needs_new_plan": False})) == str(err)
    assert str(err) == "copy x: m; run again (gave up after 3 new plans (max_replans))"

"""The one place where lakemirror's errors become Airflow's: only what is transient is ever retried.

| raised by the library                         | becomes               | Airflow                            |
|-----------------------------------------------|-----------------------|------------------------------------|
| PermanentError (usage, verification, …)       | AirflowFailException  | fails the task, no retry           |
| TransientError                                | AirflowException      | retries as the DAG says            |
| TransientError that asks for a new plan, in a | AirflowFailException  | fails the run; the next one starts |
| task whose plan was made by an earlier task   |                       | at detect_change and plans anew    |
| anything else (a defect)                      | AirflowFailException  | fails the task, no retry           |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from lakemirror.errors import LakemirrorError, LostRaceError, SourceVanishedError, told


@contextmanager
def airflow_errors(*, is_plan_fixed: bool = False) -> Iterator[None]:
    """Calls into the library run inside this; `is_plan_fixed` where a retry would meet the same plan again."""
    try:
        yield
    except AirflowException:
        raise
    except LakemirrorError as err:
        needs_new_plan = isinstance(err, (SourceVanishedError, LostRaceError))
        raise _exception(err.kind, str(err), needs_new_plan=needs_new_plan and is_plan_fixed) from err
    except Exception as err:
        raise AirflowFailException(
            f"{type(err).__name__}: {err}; this is a defect of lakemirror: report it with the traceback"
        ) from err


def exception_from_result(error: Mapping[str, Any]) -> AirflowException:
    """The same decision for a Spark job, from the error in its result JSON; its plan is always an earlier task's."""
    text = told(error["op"], error["subject"], error["message"], error["hint"], error.get("notes", ()))
    return _exception(error["kind"], text, needs_new_plan=bool(error.get("needs_new_plan")))


def _exception(kind: str, text: str, *, needs_new_plan: bool) -> AirflowException:
    if kind != "transient":
        return AirflowFailException(text)
    if needs_new_plan:
        return AirflowFailException(f"{text}; no retry of this plan, the next run makes a new one")
    return AirflowException(text)

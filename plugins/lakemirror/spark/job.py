"""What all Spark jobs have in common: arguments, one session, a result file whatever happens, exit codes.

A job is `run(spark, args) -> Result`; everything else is here. The result file tells whoever submitted the job why it
failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakemirror.errors import LakemirrorError, LostRaceError, PermanentError, SourceVanishedError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.replicate.progress import LogLines
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Result(Protocol):
    """What a stage answers."""

    def as_json(self) -> dict[str, Any]: ...

    def report(self) -> list[str]: ...


class HasMirrorStore(Protocol):
    """As much of the application as a job needs to leave its result."""

    @property
    def mirror_store(self) -> ObjectStore: ...


@dataclass(frozen=True, slots=True)
class JobArgs:
    """What the submitter says."""

    config: str
    table: TableRef
    plan_uri: str
    result_uri: str
    source_name: str | None = None
    owner: str | None = None


Run = Callable[["SparkSession", JobArgs], Result]


def parse_args(argv: Sequence[str] | None, description: str | None, *, needs_source: bool = False) -> JobArgs:
    """Ends the process with exit code 2 if the arguments are wrong."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--config", required=True, help="the configuration file")
    parser.add_argument("--table", required=True, type=_table, help="the table, like sales.orders")
    parser.add_argument("--plan-uri", required=True, help="where the plan is, as detect_change named it")
    if needs_source:
        parser.add_argument("--source-name", required=True, help="the source's state, as detect_change named it")
    parser.add_argument("--result-uri", required=True, help="where to write the result as JSON")
    parser.add_argument("--owner", help="the run that the table's lease is taken for; default: this process")
    found = parser.parse_args(argv)
    source_name = found.source_name if needs_source else None
    return JobArgs(found.config, found.table, found.plan_uri, found.result_uri, source_name, found.owner)


def progress_lines(args: JobArgs) -> LogLines:
    """How far the stage is, on standard output, which ends up in the log of whoever submitted the job."""
    return LogLines(str(args.table), lambda line: print(line, flush=True), time.monotonic)  # noqa: T201


def run_job(name: str, args: JobArgs, run: Run, load_app: Callable[[str], HasMirrorStore]) -> int:
    """Run the stage in a Spark session of its own; the answer is in the result file and in the exit code."""
    try:
        store = load_app(args.config).mirror_store
    except LakemirrorError as err:
        sys.stderr.write(f"{err}\n")
        if args.result_uri.startswith("file:"):  # needs nothing of the configuration that could not be loaded
            write_result(ObstoreStore({}), args.result_uri, _failed(args, err))
        return err.exit_code
    try:
        result = _in_session(name, args, run)
        payload, exit_code = {**result.as_json(), "report": result.report()}, 0
    except LakemirrorError as err:
        sys.stderr.write(f"{err}\n")
        payload, exit_code = _failed(args, err), err.exit_code
    except Exception as err:  # noqa: BLE001 - the boundary: the submitter must learn of everything
        traceback.print_exc()
        payload, exit_code = _failed(args, _unforeseen(name, args, err)), 1
    write_result(store, args.result_uri, payload)
    return exit_code


def write_result(store: ObjectStore, result_uri: str, payload: dict[str, Any]) -> None:
    store.put(result_uri, json.dumps(payload, indent=1).encode(), Overwrite())


def read_result(store: ObjectStore, result_uri: str) -> dict[str, Any] | None:
    """What the job wrote; None if it never came that far."""
    try:
        blob = store.get(result_uri)
    except ObjectNotFound:
        return None
    payload: dict[str, Any] = json.loads(blob.data)
    return payload


def _in_session(name: str, args: JobArgs, run: Run) -> Result:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"lakemirror {name} {args.table}").getOrCreate()
    try:
        return run(spark, args)
    finally:
        spark.stop()


def _failed(args: JobArgs, err: LakemirrorError) -> dict[str, Any]:
    needs_new_plan = isinstance(err, (SourceVanishedError, LostRaceError))
    return {
        "table": str(args.table),
        "ok": False,
        "error": {**err.as_json(), "needs_new_plan": needs_new_plan},
        "report": [str(err)],
    }


def _unforeseen(name: str, args: JobArgs, err: Exception) -> LakemirrorError:
    """Spark's own failures (a lost executor, a dead JVM) may pass; what our code did not foresee will not."""
    from pyspark.errors import PythonException

    from lakemirror.spark.failures import raised_in_task

    in_task = raised_in_task(err)
    text = in_task or f"{type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''}"
    is_sparks_own = type(err).__module__.partition(".")[0] in ("py4j", "pyspark")
    if is_sparks_own and in_task is None and not isinstance(err, PythonException):
        return TransientError(name, str(args.table), text, "see the log of this task")
    return PermanentError(name, str(args.table), text, "this is a defect of lakemirror: report it with the traceback")


def _table(text: str) -> TableRef:
    try:
        return TableRef.parse(text)
    except LakemirrorError as err:
        raise argparse.ArgumentTypeError(str(err)) from err

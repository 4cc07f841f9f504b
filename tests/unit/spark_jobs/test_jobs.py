"""Each job: one stage of the library, on the session it was given."""

import importlib
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, create_autospec, patch

import pytest
from pyspark.sql import SparkSession

from lakemirror.app import App
from lakemirror.model.table import TableRef
from lakemirror.spark import job
from lakemirror.spark.engine import SparkEngine

JOBS = ["copy_objects", "plan_diff", "rewrite_metadata"]
ARGS = job.JobArgs("/c.yaml", TableRef.parse("sales.orders"), "file:///p", "file:///r", owner="run 1")
SOURCE_NAME = "file:///s/v3.metadata.json#snapshot=8"


def args_of(name: str) -> job.JobArgs:
    """Planning starts from the state of the source that detect saw."""
    return replace(ARGS, source_name=SOURCE_NAME) if name == "plan_diff" else ARGS


@pytest.fixture(params=JOBS)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"spark_jobs.{request.param}")


@pytest.fixture
def app() -> Any:
    fake: MagicMock = create_autospec(App, instance=True)
    with patch.object(App, "load", autospec=True, return_value=fake) as load:
        yield fake
    load.assert_called_once_with("/c.yaml", owner="run 1")


def test_it_runs_its_stage_and_nothing_else(module: ModuleType, app: MagicMock) -> None:
    session = create_autospec(SparkSession, instance=True)
    name = module.__name__.rpartition(".")[2]
    stage = getattr(app, name)
    assert module.run(session, args_of(name)) is stage.return_value
    (table, plan_uri, *rest), _ = stage.call_args
    source, engine, told = (rest[0], rest[1], None) if name == "plan_diff" else (None, *rest)
    assert (table, plan_uri, source) == (ARGS.table, ARGS.plan_uri, SOURCE_NAME if name == "plan_diff" else None)
    assert (told is None) == (name == "plan_diff")
    assert isinstance(engine, SparkEngine)
    assert [call[0] for call in app.mock_calls if call[0] != "close"] == [name]
    session.stop.assert_not_called()


def test_main_hands_its_own_name_and_stage_to_the_runner(module: ModuleType) -> None:
    words = [
        "--config",
        "/c.yaml",
        "--table",
        "sales.orders",
        "--plan-uri",
        "file:///p",
        "--result-uri",
        "file:///r",
        "--owner",
        "run 1",
    ]
    name = module.__name__.rpartition(".")[2]
    if name == "plan_diff":
        words += ["--source-name", SOURCE_NAME]
    with patch.object(job, "run_job", autospec=True, return_value=4) as run_job:
        assert module.main(words) == 4
    (given, args, run, load), _ = run_job.call_args
    assert (given, args, run) == (name, args_of(name), module.run)
    assert load == App.load


def test_it_says_what_it_is_for(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    assert (module.__doc__ or "").splitlines()[0].split(":")[0] in capsys.readouterr().out

"""The Spark operator with a spark-submit that is played: what it is started with, and how its end is judged."""

import copy
import json
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from lakemirror.airflow import spark
from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.airflow.spark import SparkJobOperator
from lakemirror.config.connections import Connection, environment_connection
from lakemirror.config.loader import load_config
from lakemirror.config.models import Config
from lakemirror.errors import LakemirrorError, PermanentError, SourceVanishedError, TransientError
from lakemirror.model.results import StageResult
from lakemirror.model.table import TableRef
from lakemirror.spark import job
from lakemirror.storage.objects import ObstoreStore

ORDERS = TableRef.parse("sales.orders")


class SparkSubmit:
    """Plays the submitted job: writes its result, or not, and ends well, or not."""

    def __init__(self, store: ObstoreStore, payload: dict[str, Any] | None, *, fails: bool) -> None:
        self.store, self.payload, self.fails = store, payload, fails
        self.command: list[str] = []
        self.environment: dict[str, str] = {}
        self.archive_bytes = 0

    def submit(self, hook: SparkSubmitHook, application: str = "", **kwargs: Any) -> None:
        self.command = hook._build_spark_submit_command(application)
        self.environment = {**os.environ, **(hook._env or {})}
        conf = [self.command[at + 1] for at, word in enumerate(self.command) if word == "--conf"]
        (archive,) = [one.removeprefix("spark.archives=") for one in conf if one.startswith("spark.archives=")]
        self.archive_bytes = Path(archive.partition("#")[0]).stat().st_size
        if self.payload is not None:
            job.write_result(self.store, self.argument("--result-uri"), self.payload)
        if self.fails:
            raise AirflowException("Cannot execute: spark-submit. Error code is: 1.")

    def argument(self, name: str) -> str:
        return self.command[self.command.index(name) + 1]


def _config(folder: Path, spark_conf: dict[str, str], **more: str) -> Config:
    catalog = {"name": "m", "type": "sql", "uri": "sqlite:///m.db", **more}
    document = {"mirror": {"catalog": catalog, "location": "file:///m"}, "spark": {"conf": spark_conf}}
    (folder / "c.yaml").write_text(json.dumps(document))
    return load_config(folder / "c.yaml", env={})


@pytest.fixture
def operator(app: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkJobOperator:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    app.config = _config(tmp_path, {"spark.executor.memory": "2g"})
    app.mirror_store = ObstoreStore({})
    return SparkJobOperator(
        task_id="copy_objects",
        application="/jobs/copy_objects.py",
        conn_id="spark_default",
        table="sales.orders",
        config_path=app.config.path,
        plan_uri=f"file://{tmp_path}/_plan/p8",
    )


def _play(
    operator: SparkJobOperator, app: MagicMock, context: Any, payload: dict[str, Any] | None, *, fails: bool
) -> tuple[SparkSubmit, Any]:
    player = SparkSubmit(app.mirror_store, payload, fails=fails)
    with patch.object(SparkSubmitHook, "submit", autospec=True, side_effect=player.submit):
        return player, operator.execute(context)


def _failure(err: LakemirrorError) -> dict[str, Any]:
    args = job.JobArgs("/c.yaml", ORDERS, "file:///p", "file:///r")
    return job._failed(args, err)


def _success() -> dict[str, Any]:
    result = StageResult(ORDERS, "copy", "file:///p", 1.5, files=3, bytes=1200, skipped_files=1)
    return {**result.as_json(), "report": result.report()}


def test_it_submits_the_job_with_the_library_and_all_it_needs_to_know(
    operator: SparkJobOperator, app: MagicMock, context: Any, tmp_path: Path
) -> None:
    player, answer = _play(operator, app, context, _success(), fails=False)
    assert player.command[:3] == ["spark-submit", "--master", "local[2]"]
    assert "spark.executor.memory=2g" in player.command
    assert player.archive_bytes > 10_000
    assert player.argument("--name") == "lakemirror copy_objects sales.orders"
    assert player.argument("--config") == str(tmp_path / "c.yaml")
    assert player.argument("--table") == "sales.orders"
    assert player.argument("--plan-uri") == f"file://{tmp_path}/_plan/p8"
    assert player.command[player.command.index("/jobs/copy_objects.py") + 1] == "--config"
    counts = {"files": 3, "bytes": 1200, "skipped_files": 1, "seconds": 1.5}
    assert answer == {"table": "sales.orders", "plan_uri": "file:///p", **counts}
    app.close.assert_called_once_with()


def test_every_try_has_a_result_file_of_its_own(operator: SparkJobOperator, app: MagicMock, context: Any) -> None:
    again = copy.deepcopy(operator)
    first, _ = _play(operator, app, context, _success(), fails=False)
    context["ti"].try_number = 2
    second, _ = _play(again, app, context, _success(), fails=False)
    assert first.argument("--result-uri") != second.argument("--result-uri")


def test_the_report_is_in_the_task_log(
    operator: SparkJobOperator, app: MagicMock, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(operator, app, context, _success(), fails=False)
    logged = capsys.readouterr().out
    assert "sales.orders: copy took 1.5 s" in logged
    assert "3 files, 1.2 KB at 800 B/s, 1 were there already" in logged


@pytest.mark.parametrize(
    ("err", "is_retried"),
    [
        (TransientError("copy", "s3://a", "503"), True),
        (SourceVanishedError("copy", "s3://a", "gone"), False),
        (PermanentError("copy", "s3://a", "denied"), False),
    ],
)
def test_the_jobs_own_word_decides_about_a_retry(
    operator: SparkJobOperator, app: MagicMock, context: Any, err: LakemirrorError, is_retried: bool
) -> None:
    with pytest.raises(AirflowException, match="copy s3://a") as caught:
        _play(operator, app, context, _failure(err), fails=True)
    assert isinstance(caught.value, AirflowFailException) is not is_retried


@pytest.mark.parametrize("payload", [None, _success()])
def test_a_job_that_was_cut_off_is_tried_again(
    operator: SparkJobOperator, app: MagicMock, context: Any, payload: dict[str, Any] | None
) -> None:
    with pytest.raises(AirflowException, match="Error code is: 1") as caught:
        _play(operator, app, context, payload, fails=True)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_job_that_ends_well_must_have_left_a_result(operator: SparkJobOperator, app: MagicMock, context: Any) -> None:
    with pytest.raises(AirflowException, match="ended without a result") as caught:
        _play(operator, app, context, None, fails=False)
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("value", [None, "spark://local[2]"])
def test_a_connection_that_cannot_be_loaded_is_not_taken_for_yarn(
    operator: SparkJobOperator,
    app: MagicMock,
    context: Any,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
) -> None:
    if value is None:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", value)
    with pytest.raises(AirflowFailException, match="Spark connection 'spark_default' cannot be loaded"):
        _play(operator, app, context, _success(), fails=False)


def test_the_configuration_wins_over_our_defaults(
    operator: SparkJobOperator, app: MagicMock, context: Any, tmp_path: Path
) -> None:
    app.config = _config(tmp_path, {"spark.log.level": "INFO"})
    player, _ = _play(operator, app, context, _success(), fails=False)
    assert "spark.log.level=INFO" in player.command
    assert "spark.log.level=WARN" not in player.command


def test_the_python_of_the_executors_may_be_chosen_by_the_environment() -> None:
    assert "spark.pyspark.python" in spark._defaults({})
    assert "spark.pyspark.python" not in spark._defaults({"PYSPARK_PYTHON": "/usr/bin/python3.11"})


def test_spark_submit_is_found_next_to_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = spark._search_path({"PATH": "/nowhere"})
    assert found is not None
    folder, _, rest = found["PATH"].partition(":")
    assert (Path(folder) / "spark-submit").exists()
    assert rest == "/nowhere"


def test_json_only_in_what_is_handed_on(operator: SparkJobOperator, app: MagicMock, context: Any) -> None:
    _, answer = _play(operator, app, context, _success(), fails=False)
    assert json.loads(json.dumps(answer)) == answer


@pytest.mark.parametrize("master", ["local[2]", "spark://m:7077", "yarn"])
@pytest.mark.parametrize("had", [None, "generic://before"])
def test_the_driver_gets_its_connections_and_nobody_else_sees_them(
    operator: SparkJobOperator,
    app: MagicMock,
    context: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    master: str,
    had: str | None,
) -> None:
    """On YARN and Kubernetes the provider would write `env_vars` into the command, and the command into the log."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": master}))
    if had is not None:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUD", had)
    app.config = _config(tmp_path, {}, conn_id="cloud")
    secret = Connection("cloud", extra='{"token": "tok-hush"}')
    with patch.object(LakemirrorHook, "resolve", autospec=True, return_value=secret):
        player, answer = _play(operator, app, context, _success(), fails=False)
    assert environment_connection("cloud", player.environment) == secret
    assert os.environ.get("AIRFLOW_CONN_CLOUD") == had
    assert "hush" not in " ".join(player.command)
    assert "hush" not in json.dumps([operator.env_vars, operator.conf, operator.application_args, answer])
    out, err = capfd.readouterr()
    assert "hush" not in out + err


def test_the_environment_is_put_back_after_a_failure(
    operator: SparkJobOperator, app: MagicMock, context: Any, tmp_path: Path
) -> None:
    app.config = _config(tmp_path, {}, conn_id="cloud")
    with (
        patch.object(LakemirrorHook, "resolve", autospec=True, return_value=Connection("cloud", host="h")),
        pytest.raises(AirflowException),
    ):
        _play(operator, app, context, None, fails=True)
    assert "AIRFLOW_CONN_CLOUD" not in os.environ


def test_a_missing_connection_is_told_before_anything_is_submitted(
    operator: SparkJobOperator, app: MagicMock, context: Any, tmp_path: Path
) -> None:
    app.config = _config(tmp_path, {}, conn_id="cloud")
    player = SparkSubmit(app.mirror_store, _success(), fails=False)
    with (
        patch.object(SparkSubmitHook, "submit", autospec=True, side_effect=player.submit),
        pytest.raises(AirflowException, match="read connection cloud: Airflow does not know it"),
    ):
        operator.execute(context)
    assert player.command == []


def _documented() -> list[str]:
    """The connections that docs/operations.md names, in their order."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    return re.findall(r"^export AIRFLOW_CONN_SPARK_DEFAULT='(.*)'$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("nth", "words"),
    [
        (0, ["--master", "local[*]"]),
        (1, ["--master", "spark://master:7077"]),
        (2, ["--master", "yarn"]),
        (3, ["--master", "k8s://https://kube.example.net:6443"]),
    ],
)
def test_the_documented_connections(
    operator: SparkJobOperator,
    app: MagicMock,
    context: Any,
    monkeypatch: pytest.MonkeyPatch,
    nth: int,
    words: list[str],
) -> None:
    """What spark-submit is started with; YARN and Kubernetes themselves were never reached."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", _documented()[nth])
    monkeypatch.setattr(spark, "_has_kubernetes", lambda: True)
    monkeypatch.setattr(spark_submit, "kube_client", MagicMock(), raising=False)
    player, _ = _play(operator, app, context, _success(), fails=False)
    assert player.command[1:3] == words
    assert player.argument("--deploy-mode") == "client"
    if nth == 2:
        assert player.argument("--queue") == "lake"
    assert ("spark.kubernetes.namespace=lake" in player.command) == (nth == 3)


def test_all_documented_connections_are_tried() -> None:
    assert len(_documented()) == 4


def test_kubernetes_without_its_provider_is_told_by_name(
    operator: SparkJobOperator, app: MagicMock, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's own provider would end with a NameError."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", _documented()[3])
    monkeypatch.setattr(spark, "find_spec", MagicMock(side_effect=ModuleNotFoundError))
    with pytest.raises(AirflowFailException, match="install apache-airflow-providers-cncf-kubernetes"):
        _play(operator, app, context, _success(), fails=False)

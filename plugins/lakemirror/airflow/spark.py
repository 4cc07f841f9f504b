"""Runs one of `spark_jobs/` by spark-submit, and tells from its result file whether a retry can help."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from lakemirror.airflow.errors import airflow_errors, exception_from_result
from lakemirror.airflow.hook import LakemirrorHook, run_name

if TYPE_CHECKING:
    from lakemirror.app import App

KUBERNETES = "apache-airflow-providers-cncf-kubernetes"
BRIEF = ("table", "plan_uri", "files", "bytes", "skipped_files", "seconds")


class SparkJobOperator(SparkSubmitOperator):
    """One stage of the way of a commit, as a Spark job of its own; re-running it finishes what is missing.

    The connection `conn_id` names the cluster. The driver runs next to this task (client mode), with its environment,
    so that the job reads the same configuration, and with the connections that this names, which it cannot ask Airflow
    for; the library goes to the executors as one archive.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "table",
        "config_path",
        "plan_uri",
        "source_name",
    )
    ui_color = "#fbe3d3"

    def __init__(
        self,
        *,
        application: str,
        conn_id: str,
        table: str,
        plan_uri: str,
        source_name: str | None = None,
        config_path: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(application=application, conn_id=conn_id, deploy_mode="client", **kwargs)
        self.table = table
        self.plan_uri = plan_uri
        self.source_name = source_name
        self.config_path = config_path

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        self._check_connection()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakemirror-")))
            result_uri = (folder / "result.json").as_uri()  # the driver runs on this machine
            with airflow_errors(is_plan_fixed=True):
                hook = LakemirrorHook(config_path=self.config_path)
                app = stack.enter_context(hook.app())
                self._prepare(app, result_uri, folder, run_name(context))
                secrets = hook.driver_environment(app.config)
            try:
                with _environment(secrets):
                    super().execute(context)
            except AirflowException as err:
                raise self._failure(app, result_uri, err) from err
            result = self._read_result(app, result_uri)
        if result is None:
            raise AirflowException(f"{self.table}: {self.task_id} ended without a result")
        for line in result["report"]:
            self.log.info("%s", line)
        return {key: result[key] for key in BRIEF if key in result}

    def _prepare(self, app: App, result_uri: str, folder: Path, owner: str) -> None:
        from lakemirror.spark import library

        archive = library.build_archive(folder)
        self.name = f"lakemirror {self.task_id} {self.table}"
        self.conf = {**_defaults(os.environ), **library.spark_conf(archive), **app.config.spark.conf}
        self.env_vars = _search_path(os.environ)
        self.application_args = [
            *("--config", str(app.config.path)),
            *("--table", self.table),
            *("--plan-uri", self.plan_uri),
            *(() if self.source_name is None else ("--source-name", self.source_name)),
            *("--result-uri", result_uri),
            *("--owner", owner),
        ]

    def _check_connection(self) -> None:
        """The provider would take a connection it cannot load for YARN, and say so only in a log line; and it breaks at
        one for Kubernetes where the provider for that is not installed.
        """
        try:
            host = BaseHook.get_connection(self._conn_id).host or ""
        except (AirflowException, ValueError) as err:
            raise AirflowFailException(
                f"{self.table}: Spark connection {self._conn_id!r} cannot be loaded ({err}); "
                f'define it, e.g. AIRFLOW_CONN_{self._conn_id.upper()}=\'{{"conn_type": "spark", "host": "local[*]"}}\''
            ) from err
        if host.startswith("k8s") and not _has_kubernetes():
            raise AirflowFailException(
                f"{self.table}: Spark connection {self._conn_id!r} leads to Kubernetes ({host}), and Airflow's "
                f"provider for that is not installed; install {KUBERNETES}"
            )

    def _failure(self, app: App, result_uri: str, err: AirflowException) -> AirflowException:
        """Why the job failed, by its own word; a job that could not leave one was cut off, and may be tried again."""
        result = self._read_result(app, result_uri)
        return err if result is None or result["ok"] else exception_from_result(result["error"])

    def _read_result(self, app: App, result_uri: str) -> dict[str, Any] | None:
        from lakemirror.spark.job import read_result

        with airflow_errors():
            return read_result(app.mirror_store, result_uri)


def _has_kubernetes() -> bool:
    """It is no requirement: with it, importing the Spark operator takes twice as long, in each parse and task."""
    try:
        return find_spec("airflow.providers.cncf.kubernetes") is not None
    except ModuleNotFoundError:
        return False


def _defaults(env: Mapping[str, str]) -> dict[str, str]:
    """Driver and executors run this Python unless told otherwise; logs hold what the job says, not each Spark step.

    The jobs are short, so Spark's own web page is off: on a host with many tables the drivers would fight for ports.
    """
    python = {"spark.pyspark.driver.python": sys.executable}
    if "PYSPARK_PYTHON" not in env:
        python["spark.pyspark.python"] = sys.executable
    quiet = {"spark.log.level": "WARN", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    return {**python, **quiet}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """For processes that start meanwhile. The provider's `env_vars` would do on some masters only: on YARN and
    Kubernetes it writes them into the command, which everybody on the host and every reader of the log can see.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _search_path(env: Mapping[str, str]) -> dict[str, str] | None:
    """spark-submit comes with this Python; workers started by full path do not have its folder in PATH."""
    if shutil.which("spark-submit") is not None:
        return None
    return {"PATH": os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", os.defpath)))}

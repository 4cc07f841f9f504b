"""A Spark standalone cluster on 127.0.0.1 with as many workers as a test starts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from dev.airflow_standalone import free_ports
from dev.spark_classes import java_options
from tests.e2e.processes import Program, until

_DEPLOY = "org.apache.spark.deploy"
_JOINS_S = 60


class Cluster:
    """One master; `start_worker` adds a worker."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        port, self._web_port = free_ports(2)
        self.master, self.work = f"spark://127.0.0.1:{port}", folder / "work"
        self.workers: list[Program] = []
        ports = ["--port", str(port), "--webui-port", str(self._web_port)]
        self._start("master", [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", *ports])

    def start_worker(self, cores: int = 1, host: str = "127.0.0.1") -> None:
        """All of 127.* is this machine; Spark takes each name for a machine of its own."""
        port, web_port = free_ports(2)
        place = ["--host", host, "--port", str(port), "--webui-port", str(web_port)]
        size = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(self.work)]
        self.workers.append(self._start("worker", [f"{_DEPLOY}.worker.Worker", *place, *size, self.master]))
        until(self._all_are_there, "the worker joins", timeout_s=_JOINS_S, poll_s=0.2)

    def _all_are_there(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=5) as answer:
                return int(json.loads(answer.read())["aliveworkers"]) >= len(self.workers)
        except OSError:
            return False

    def _start(self, name: str, command: list[str]) -> Program:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log = self._folder / f"{name}.log"
        small = {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": java_options()}
        return self._stack.enter_context(Program([spark_class, *command], log, cwd=self._folder, env=small))


@contextmanager
def start(folder: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(folder, stack)

"""A Spark standalone cluster on 127.0.0.1 whose workers come and go."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from dev.airflow_standalone import free_ports
from tests.e2e.processes import Program, until

_SMALL = {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_DEPLOY = "org.apache.spark.deploy"
_JOINS_S = 60


class Cluster:
    """One master; `start_worker` adds a worker, `kill_worker` takes one away, with its executors, by kill -9."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        port, self._web_port = free_ports(2)
        self.master, self.work = f"spark://127.0.0.1:{port}", folder / "work"
        self.workers: list[Program] = []
        ports = ["--port", str(port), "--webui-port", str(self._web_port)]
        self._start("master", [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", *ports])

    def start_worker(self, cores: int = 1) -> None:
        port, web_port = free_ports(2)
        place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port)]
        size = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(self.work)]
        self.workers.append(self._start("worker", [f"{_DEPLOY}.worker.Worker", *place, *size, self.master]))
        until(self._all_are_there, "the worker joins", timeout_s=_JOINS_S, poll_s=0.2)

    def kill_worker(self) -> None:
        self.workers.pop(0).kill()

    def _all_are_there(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=5) as answer:
                return int(json.loads(answer.read())["aliveworkers"]) >= len(self.workers)
        except OSError:
            return False

    def _start(self, name: str, command: list[str]) -> Program:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log = self._folder / f"{name}.log"
        return self._stack.enter_context(Program([spark_class, *command], log, cwd=self._folder, env=_SMALL))


@contextmanager
def start(folder: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(folder, stack)

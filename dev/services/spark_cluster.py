"""A Spark standalone cluster from the pinned PySpark: one master, two workers."""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.request
from pathlib import Path

from dev.services.folder import ServicesFolder
from dev.services.servers import Server
from dev.services.trouble import ServicesError
from dev.services.waiting import answers

MASTER = "spark-master"
WORKERS = ("spark-worker-1", "spark-worker-2")
CORES, MEMORY = 2, "1g"  # of each worker
DEPLOY = "org.apache.spark.deploy"


def master(port: int, web_port: int) -> Server:
    command = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    web = f"http://127.0.0.1:{web_port}/json/"
    return Server(MASTER, (*_spark_class(f"{DEPLOY}.master.Master"), *command), lambda: answers(web), _environment())


def worker(
    name: str, folder: ServicesFolder, port: int, web_port: int, *, master_web_port: int, master_uri: str
) -> Server:
    where = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    size = ("--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(folder.data(name) / "work"))
    command = (*_spark_class(f"{DEPLOY}.worker.Worker"), *where, *size, master_uri)
    return Server(name, command, lambda: _has_joined(port, master_web_port), _environment())


def uri(port: int) -> str:
    return f"spark://127.0.0.1:{port}"


def _spark_class(name: str) -> tuple[str, ...]:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServicesError("PySpark is not in this environment: run `make setup`")
    return str(Path(found.origin).parent / "bin" / "spark-class"), name


def _environment() -> dict[str, str]:
    return {
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


def _has_joined(port: int, master_web_port: int) -> bool:
    """Whether the master counts the worker at this port among the living."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{master_web_port}/json/", timeout=3) as answer:
            workers = json.loads(answer.read())["workers"]
    except (OSError, ValueError):
        return False
    return any(one["port"] == port and one["state"] == "ALIVE" for one in workers)

"""Airflow with a home of its own, and parses of the DAG folder in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dags.airflow_home import ROOT, use_private_airflow_home

use_private_airflow_home()

Parse = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def parse() -> Parse:
    """Parse the DAG folder as the DAG processor would, with no network, and tell all about it."""

    def run(config: Path, *, hash_seed: int = 0, only_dag: str | None = None, **env: str) -> dict[str, Any]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
            "PYTHONHASHSEED": str(hash_seed),
            "LAKEMIRROR_CONFIG": str(config),
            **env,
        }
        command = [sys.executable, str(ROOT / "tests" / "dags" / "probe.py"), str(ROOT / "dags"), only_dag or ""]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    return run


def write_config(path: Path, tables: list[dict[str, Any]], *, with_source: bool = True, **sections: Any) -> Path:
    """A configuration of the embedded kind next to `path`; JSON is YAML."""
    folder = path.parent
    document: dict[str, Any] = {
        "mirror": {
            "catalog": {"name": "cloud", "type": "sql", "uri": f"sqlite:///{folder}/mirror.db"},
            "location": f"file://{folder}/mirror",
        },
        "tables": tables,
        **sections,
    }
    if with_source:
        catalog = {"name": "onprem", "type": "sql", "uri": f"sqlite:///{folder}/source.db"}
        document["source"] = {"catalog": {**catalog, "warehouse": f"file://{folder}/source"}}
    path.write_text(json.dumps(document, indent=1))
    return path

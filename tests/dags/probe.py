"""Run in a process of its own: parses a DAG folder without network or connections and prints what came of it as JSON.

Usage: probe.py DAGS_FOLDER ONLY_DAG. Airflow's own modules are imported before the clock starts; the time is
processor time, so that other work on the machine does not count.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

HEAVY = ("deltalake", "duckdb", "lakemirror.app", "obstore", "pandas", "pyarrow", "pyiceberg", "pyspark")


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("the network was used at parse")


def refuse_connection(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("a connection was asked for at parse")


def main(folder: Path, only_dag: str) -> None:
    import airflow.providers.apache.spark.operators.spark_submit
    import airflow.triggers.base  # noqa: F401 - imported for its time
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import Connection
    from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
    from airflow.serialization.serialized_objects import DagSerialization

    from lakemirror.config import connections

    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.getaddrinfo = refuse
    Connection.get = refuse_connection  # type: ignore[method-assign]
    connections.environment_connection = refuse_connection
    with _airflow_parsing_context_manager(dag_id=only_dag or None):
        start = time.process_time()
        bag = DagBag(dag_folder=str(folder), safe_mode=True)
        cpu_s = time.process_time() - start
    answer = {
        "errors": bag.import_errors,
        "cpu_s": cpu_s,
        "heavy": [name for name in HEAVY if name in sys.modules],
        "dags": {dag_id: DagSerialization.to_dict(dag) for dag_id, dag in bag.dags.items()},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    main(Path(sys.argv[1]), sys.argv[2])

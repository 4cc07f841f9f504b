"""The demo from beginning to end: a lake is made, Airflow mirrors it while it changes, both sides are compared.

Every wait is bounded, and what is started is stopped, whatever happens. Only `keep` leaves Airflow up, and only after
source and mirror agreed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from pyiceberg.catalog import Catalog

from dev.airflow_standalone import AirflowDidNotStart, AirflowStandalone, Settings
from dev.demo.home import DemoHome, short
from dev.demo.services_home import ServicesHome
from dev.demo.teller import Teller
from dev.demo.trouble import readable_tail, task_log
from dev.demo.verdict import compare, write_table
from dev.demo.watcher import Watcher
from dev.shop import TABLES, Shop

SMALL_TABLES = ("shop.customers", "shop.events")
START_TIMEOUT_S = 120
PARSE_TIMEOUT_S = 60
ROUND_TIMEOUT_S = 300
POLL_S = 1.0
Home = DemoHome | ServicesHome


class DemoFailed(RuntimeError):
    """The demo did not reach its end; the message says at what."""


class Demo:
    """One run in a home; `run` returns the exit code."""

    def __init__(self, project: Path, home: Home, *, keep: bool, out: TextIO = sys.stdout) -> None:
        self._keep = keep
        self._out = out
        self._home = home
        settings = Settings(home.airflow, project, home.config, environment=home.environment)
        self._airflow = AirflowStandalone(settings)
        self._teller = Teller(out)

    def run(self) -> int:
        self._teller.tell(f"a fresh home: {self._home.folder}")
        self._home.clear()
        source, mirror = self._home.source.create(), self._home.mirror.create()
        self._home.write_config()
        agrees = False
        try:
            agrees = self._play(Shop(source), source, mirror)
        except (AirflowDidNotStart, DemoFailed) as err:
            self._teller.tell(f"FAILED: {err}")
            self._teller.detail(f"logs: {self._airflow.log_file} and {self._airflow.task_logs}")
        finally:
            if not (agrees and self._keep):
                self._teller.tell("stopping Airflow")
                self._airflow.stop()
        self._tell_next(agrees)
        return 0 if agrees else 1

    def _play(self, shop: Shop, source: Catalog, mirror: Catalog) -> bool:
        self._commit("round 1, first load", shop.open_for_business)
        self._teller.tell("starting Airflow: scheduler, DAG processor, triggerer, api-server (about 25 s)")
        self._airflow.start(timeout_s=START_TIMEOUT_S, on_wait=self._teller.tell)
        self._teller.tell(f"Airflow is up at {self._airflow.url}")
        api = self._airflow.api()
        watcher = Watcher(api, mirror, TABLES, self._teller)
        self._await_dags(watcher)
        api.unpause_all()
        self._teller.tell("DAGs unpaused: from now on the scheduler mirrors every minute")
        # The large first load of orders is still on its way through Spark while the small tables move on.
        self._await_heads(watcher, source, SMALL_TABLES)
        self._commit("round 2, updates and deletes", shop.trade)
        self._await_heads(watcher, source, SMALL_TABLES)
        self._commit("round 3, schema and partition changes", shop.grow)
        self._await_heads(watcher, source, TABLES)
        self._teller.tell("reading every row of both sides with pyiceberg")
        comparisons = [
            compare(table, source, mirror, visible_at=watcher.visible_at.get(table), lanes=watcher.lanes[table])
            for table in TABLES
        ]
        write_table(comparisons, self._out)
        lanes = {lane for one in comparisons for lane in one.lanes}
        if lanes != {"spark", "task"}:
            raise DemoFailed(f"both lanes were to be seen, got {', '.join(sorted(lanes)) or 'none'}")
        agrees = all(one.agrees for one in comparisons)
        self._teller.tell("source and mirror agree" if agrees else "FAILED: source and mirror differ")
        return agrees

    def _commit(self, what: str, write: Callable[[], Iterable[str]]) -> None:
        self._teller.tell(f"committing on the source: {what}")
        for line in write():
            self._teller.detail(line)

    def _await_dags(self, watcher: Watcher) -> None:
        wanted = {table.replace(".", "__") for table in TABLES}
        wanted_ids = {f"{concern}__{table}" for concern in ("mirror", "follow") for table in wanted}
        self._teller.tell(f"waiting for the DAG processor to find {len(wanted_ids)} DAGs")
        self._wait("the DAGs", lambda: wanted_ids <= watcher.dag_ids(), PARSE_TIMEOUT_S, watcher)

    def _await_heads(self, watcher: Watcher, source: Catalog, tables: Iterable[str]) -> None:
        wanted = {table: source.load_table(table).metadata.current_snapshot_id for table in tables}
        self._teller.tell(f"waiting for the mirror to show {', '.join(wanted)} as they are now")
        self._wait(", ".join(wanted), lambda: watcher.shows(wanted), ROUND_TIMEOUT_S, watcher)

    def _wait(self, what: str, is_there: Callable[[], bool], timeout_s: float, watcher: Watcher) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_there():
            watcher.look()
            if watcher.failed_task is not None:
                log = task_log(self._airflow.task_logs, watcher.failed_task)
                self._teller.detail(f"{log}\n{readable_tail(log)}")
                raise DemoFailed(f"{watcher.failed_task['dag_id']}: {watcher.failed_task['task_id']} failed")
            if not self._airflow.is_running():
                raise DemoFailed("Airflow ended by itself")
            if time.monotonic() > deadline:
                raise DemoFailed(f"gave up waiting for {what} after {timeout_s:.0f} s{watcher.import_errors()}")
            time.sleep(POLL_S)

    def _tell_next(self, agrees: bool) -> None:
        command = f"{self._home.prelude}bin/lakemirror --config {short(self._home.config)}"
        steps = [
            (f"{command} status", "where each table stands"),
            (f"{command} config show shop.orders", "every setting, and where it came from"),
            (self._home.files, "the mirror's files and markers"),
            (f"ls {short(self._airflow.task_logs)}", "what each task reported"),
        ]
        if agrees and self._keep:
            self._out.write(
                f"\nAirflow stays up at {self._airflow.url}\n"
                f"  user {self._airflow.username}, password {self._airflow.password}\n"
                f"  stop it with: .venv/bin/python scripts/demo.py --stop\n"
            )
        elif agrees:
            steps.append((self._home.again, "the same, and Airflow stays up for you to look around"))
        width = max(len(text) for text, _ in steps)
        self._out.write("\nWhat to look at next\n")
        self._out.writelines(f"  {text:<{width}}  {why}\n" for text, why in steps)

"""What a parse of the DAG folder gives, and what it may not do (A5, T47)."""

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.dags.airflow_home import ROOT
from tests.dags.conftest import Parse, write_config

TABLES: list[dict[str, Any]] = [
    {"name": "sales.orders"},
    {"name": "crm.eu.people", "follow_trigger": "sensor", "schedule": "@hourly", "retries": 7, "priority": 5},
    {"name": "sales.ev ents", "schedule": None, "follow_schedule": None},
]
MIRROR_TASKS = ["detect_change", "plan_diff", "copy_objects", "rewrite_metadata", "publish_version"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("parse") / "lm.yaml", TABLES)


@pytest.fixture(scope="module")
def parsed(parse: Parse, config: Path) -> dict[str, Any]:
    return parse(config)


def _dag(parsed: dict[str, Any], dag_id: str) -> dict[str, Any]:
    dag: dict[str, Any] = parsed["dags"][dag_id]["dag"]
    return dag


def _tasks(dag: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {task["__var"]["task_id"]: task["__var"] for task in dag["tasks"]}


def test_every_table_has_its_two_dags_and_nothing_failed(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert sorted(parsed["dags"]) == [
        "follow__crm.eu__people",
        "follow__sales__ev-20ents",
        "follow__sales__orders",
        "mirror__crm.eu__people",
        "mirror__sales__ev-20ents",
        "mirror__sales__orders",
    ]


def test_two_parses_serialise_identically(parse: Parse, parsed: dict[str, Any], config: Path) -> None:
    """In another process, with other hashes of strings, at another time."""
    assert parse(config, hash_seed=4711)["dags"] == parsed["dags"]


def test_nothing_heavy_is_imported(parsed: dict[str, Any]) -> None:
    assert parsed["heavy"] == []


@pytest.mark.parametrize("path", [*(ROOT / "dags").glob("*.py"), *(ROOT / "plugins/lakemirror/airflow").glob("*.py")])
def test_no_clock_and_no_chance(path: Path) -> None:
    """Neither the DAG files nor the code they build with asks for the time or a random number anywhere."""
    forbidden = {"now", "utcnow", "today", "time", "monotonic", "perf_counter", "random", "randint", "uuid4", "choice"}
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    assert called & forbidden == set()


def test_dag_files_stay_thin() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "dags").glob("*.py")}
    assert set(lengths) == {"follow.py", "mirror.py", "resolve_tables.py"}
    assert max(lengths.values()) <= 100


@pytest.mark.parametrize("concern", ["mirror", "follow"])
def test_every_dag_says_how_it_runs(parsed: dict[str, Any], concern: str) -> None:
    for dag_id in (name for name in parsed["dags"] if name.startswith(concern)):
        dag = _dag(parsed, dag_id)
        assert sorted(dag["tags"]) == sorted(["lakemirror", concern])
        assert dag["max_active_runs"] == 1
        assert dag.get("catchup", False) is False
        assert dag["start_date"] == 1735689600.0
        assert "**Safe to rerun?**" in dag["doc_md"]
        assert "**Owner.**" in dag["doc_md"]
        assert dag["description"]
        for task in _tasks(dag).values():
            assert task.get("owner") == "lakemirror"
            assert task["execution_timeout"] == 21600.0


def test_the_tasks_of_a_mirror_dag_stand_in_a_row(parsed: dict[str, Any]) -> None:
    tasks = _tasks(_dag(parsed, "mirror__sales__orders"))
    assert list(tasks) == MIRROR_TASKS
    assert [task.get("downstream_task_ids", []) for task in tasks.values()] == [
        ["plan_diff"],
        ["copy_objects"],
        ["rewrite_metadata"],
        ["publish_version"],
        [],
    ]
    jobs = [Path(tasks[name]["application"]) for name in MIRROR_TASKS[1:4]]
    assert [job.name for job in jobs] == ["plan_diff.py", "copy_objects.py", "rewrite_metadata.py"]
    assert all(job.is_file() for job in jobs)


def test_knobs_reach_the_tasks(parsed: dict[str, Any]) -> None:
    task = _tasks(_dag(parsed, "mirror__crm.eu__people"))["detect_change"]
    assert (task["retries"], task["retry_delay"], task["priority_weight"]) == (7, 60.0, 5)


@pytest.mark.parametrize(
    ("dag_id", "timetable", "expression"),
    [
        ("mirror__sales__orders", "CronTriggerTimetable", "*/5 * * * *"),
        ("mirror__crm.eu__people", "CronTriggerTimetable", "0 * * * *"),
        ("mirror__sales__ev-20ents", "NullTimetable", None),
        ("follow__crm.eu__people", "CronTriggerTimetable", "*/10 * * * *"),
        ("follow__sales__ev-20ents", "AssetTriggeredTimetable", None),
        ("follow__sales__orders", "AssetOrTimeSchedule", "*/10 * * * *"),
    ],
)
def test_schedules(parsed: dict[str, Any], dag_id: str, timetable: str, expression: str | None) -> None:
    schedule = _dag(parsed, dag_id)["timetable"]
    assert schedule["__type"].rpartition(".")[2] == timetable
    assert (expression or "") in str(schedule)


def test_the_follower_waits_for_the_asset_that_the_mirror_emits(parsed: dict[str, Any]) -> None:
    mirror, follow = _dag(parsed, "mirror__sales__orders"), _dag(parsed, "follow__sales__orders")
    emitted = _tasks(mirror)["publish_version"]["outlets"]
    assert "x-lakemirror://ready/table__sales__orders" in str(emitted)
    assert "x-lakemirror://ready/table__sales__orders" in str(follow["timetable"])
    alias = {"__type": "asset_alias", "__var": {"name": "ready__sales__orders", "group": "asset"}}
    assert _tasks(mirror)["detect_change"]["outlets"] == [alias]


def test_with_a_sensor_the_follower_watches_the_bucket(parsed: dict[str, Any]) -> None:
    tasks = _tasks(_dag(parsed, "follow__crm.eu__people"))
    assert list(tasks) == ["await_ready", "follow_marker"]
    assert tasks["await_ready"]["downstream_task_ids"] == ["follow_marker"]
    assert list(_tasks(_dag(parsed, "follow__sales__orders"))) == ["follow_marker"]


def test_the_trigger_form_is_typed_and_described(parsed: dict[str, Any]) -> None:
    params = dict(_dag(parsed, "mirror__sales__orders")["params"])
    assert list(params) == ["dry_run", "target_snapshot_id", "full_verify"]
    for param in params.values():
        assert param["schema"]["__var"]["type"]
        assert param["schema"]["__var"]["title"]
        assert param["description"]
    assert _dag(parsed, "follow__sales__orders").get("params", []) == []


WATCHED: dict[str, Any] = {
    "mirror": {"catalog": {"name": "cloud", "type": "sql", "conn_id": "lake_cloud"}, "location": "s3://mirror/lake"},
    "events": {
        "poll_seconds": 7,
        "sqs": {"conn_id": "aws_q", "queue_url": "https://sqs.example.com/1/q"},
    },
    "defaults": {"mirror_trigger": "watch"},
}


def test_watchers_are_made_without_asking_anybody(parse: Parse, tmp_path: Path) -> None:
    """No provider is imported, no connection asked for, and two parses are the same."""
    tables = [
        {"name": "sales.orders", "follow_trigger": "bucket"},
        {"name": "sales.late", "follow_trigger": "sqs", "schedule": None, "follow_schedule": None},
    ]
    config = write_config(tmp_path / "lm.yaml", tables, **WATCHED)
    answer = parse(config)
    assert answer["errors"] == {}
    assert answer["heavy"] == []
    assert parse(config, hash_seed=4711)["dags"] == answer["dags"]
    common = {"config_path": str(config), "poll_interval_s": 7}
    queue = {"conn_id": "aws_q", "queue_url": "https://sqs.example.com/1/q", "region": None}
    for dag_id, schedule, kind, what, more in (
        ("mirror__sales__orders", "AssetOrTimeSchedule", "watchers.SourceHeadTrigger", "changed", {}),
        ("mirror__sales__late", "AssetTriggeredTimetable", "watchers.SourceHeadTrigger", "changed", {}),
        ("follow__sales__orders", "AssetOrTimeSchedule", "watchers.ReadyFolderTrigger", "arrived", {}),
        ("follow__sales__late", "AssetTriggeredTimetable", "inboxes.SqsNoticeTrigger", "arrived", queue),
    ):
        timetable = _dag(answer, dag_id)["timetable"]
        assert timetable["__type"].rpartition(".")[2] == schedule
        table = dag_id.partition("__")[2].replace("__", ".")
        (asset,) = timetable["__var"]["asset_condition"]["objects"]
        assert asset["uri"] == f"x-lakemirror://{what}/table__{table.replace('.', '__')}"
        (watcher,) = asset["watchers"]
        assert watcher["trigger"] == {
            "classpath": f"lakemirror.airflow.{kind}",
            "kwargs": {"table": table, **common, **more},
        }


def test_a_follower_without_a_source_has_only_follow_dags(parse: Parse, tmp_path: Path) -> None:
    answer = parse(write_config(tmp_path / "lm.yaml", TABLES[:1], with_source=False))
    assert answer["errors"] == {}
    assert list(answer["dags"]) == ["follow__sales__orders"]


def test_a_parse_asks_for_no_connection(parse: Parse, tmp_path: Path) -> None:
    """The connections are not even there; whoever asks for one fails."""
    mirror = {"catalog": {"name": "cloud", "type": "sql", "conn_id": "lake_cloud"}, "location": f"file://{tmp_path}/m"}
    source = {"catalog": {"name": "onprem", "type": "sql", "conn_id": "lake_onprem"}}
    tables = [*TABLES, {"match": "sales.*"}]
    path = write_config(tmp_path / "lm.yaml", tables, with_source=False, mirror=mirror, source=source)
    answer = parse(path)
    assert answer["errors"] == {}
    assert len(answer["dags"]) == 2 * len(TABLES) + 1
    assert "lake_cloud" not in str(answer["dags"])


def test_a_worker_builds_only_the_dag_it_runs(parse: Parse, config: Path) -> None:
    assert list(parse(config, only_dag="mirror__sales__orders")["dags"]) == ["mirror__sales__orders"]


def test_patterns_come_from_the_resolved_list(parse: Parse, tmp_path: Path) -> None:
    config = write_config(tmp_path / "lm.yaml", [{"match": "sales.*", "exclude": ["*.tmp_*"]}])
    assert list(parse(config)["dags"]) == ["lakemirror__resolve_tables"]
    resolved = tmp_path / "elsewhere.json"
    resolved.write_text('{"tables": ["crm.people", "sales.a", "sales.tmp_b"]}')
    answer = parse(config, LAKEMIRROR_TABLES_FILE=str(resolved))
    assert sorted(answer["dags"]) == ["follow__sales__a", "lakemirror__resolve_tables", "mirror__sales__a"]


def test_a_wrong_configuration_is_an_import_error_that_names_line_and_key(parse: Parse, tmp_path: Path) -> None:
    answer = parse(write_config(tmp_path / "lm.yaml", [{"name": "sales.orders", "retrys": 1}]))
    assert answer["dags"] == {}
    assert len(answer["errors"]) == 3
    for text in answer["errors"].values():
        assert "retrys" in text
        assert "retries" in text


@pytest.mark.parametrize("knobs", [{}, {"mirror_trigger": "watch", "follow_trigger": "bucket"}])
def test_two_hundred_tables_parse_within_two_seconds(parse: Parse, tmp_path: Path, knobs: dict[str, str]) -> None:
    tables = [{"name": f"sales.t{number:03d}"} for number in range(200)]
    config = write_config(tmp_path / "lm.yaml", tables, defaults=knobs)
    answer = parse(config)
    assert len(answer["dags"]) == 400
    assert answer["cpu_s"] <= 2.0

from typing import Any

import pytest

from lakemirror.airflow.spec import (
    FollowDagSpec,
    MirrorDagSpec,
    Tag,
    TaskRules,
    WatchSpec,
    configured_tables,
    follow_specs,
    mirror_specs,
    resolve_spec,
)
from lakemirror.config.models import Config
from lakemirror.model.table import TableRef

SOURCE = {"catalog": {"name": "onprem", "type": "sql"}}
MIRROR = {"catalog": {"name": "cloud", "type": "sql"}, "location": "file:///m"}


def _config(tables: list[dict[str, Any]], **sections: Any) -> Config:
    return Config.model_validate({"source": SOURCE, "mirror": MIRROR, "tables": tables, **sections})


def test_a_mirror_spec_has_the_knobs_of_its_table() -> None:
    config = _config(
        [{"name": "sales.orders", "schedule": "@hourly", "retries": 5, "retry_delay_seconds": 7, "priority": 10}],
        defaults={"execution_timeout_seconds": 60},
        spark={"conn_id": "yarn_prod"},
    )
    (spec,) = mirror_specs(config, "/c.yaml", ())
    rules = TaskRules(retries=5, retry_delay_s=7, execution_timeout_s=60, priority=10)
    assert spec == MirrorDagSpec(TableRef.parse("sales.orders"), "/c.yaml", "@hourly", rules, "yarn_prod")
    assert spec.dag_id == "mirror__sales__orders"
    assert spec.tags == ("lakemirror", "mirror")


def test_a_follow_spec_has_its_own_schedule_and_trigger() -> None:
    config = _config([{"name": "sales.orders", "follow_schedule": None, "follow_trigger": "sensor"}])
    (spec,) = follow_specs(config, "/c.yaml", ())
    knobs = config.knobs_for(spec.table)
    assert spec == FollowDagSpec(TableRef.parse("sales.orders"), "/c.yaml", None, "sensor", TaskRules.of(knobs))
    assert spec.dag_id == "follow__sales__orders"
    assert spec.tags == ("lakemirror", "follow")


def test_watchers_come_from_the_knobs_of_a_table_and_the_events_of_the_file() -> None:
    config = Config.model_validate(
        {
            "source": SOURCE,
            "mirror": {**MIRROR, "location": "s3://m/l"},
            "events": {"poll_seconds": 3, "sqs": {"queue_url": "https://q"}},
            "defaults": {"follow_trigger": "bucket", "mirror_trigger": "watch"},
            "tables": [{"name": "a.b"}, {"name": "c.d", "follow_trigger": "sqs", "mirror_trigger": "schedule"}],
        }
    )
    assert [spec.watch for spec in mirror_specs(config, "/c.yaml", ())] == [WatchSpec("source", 3), None]
    queue = (("conn_id", "aws_default"), ("queue_url", "https://q"), ("region", None))
    follow = follow_specs(config, "/c.yaml", ())
    assert [spec.watch for spec in follow] == [WatchSpec("bucket", 3), WatchSpec("sqs", 3, queue)]
    assert [spec.trigger for spec in follow] == ["watch", "watch"]


def test_a_configuration_without_a_source_only_follows() -> None:
    config = Config.model_validate({"mirror": MIRROR, "tables": [{"name": "sales.orders"}]})
    assert mirror_specs(config, "/c.yaml", ()) == ()
    assert [spec.dag_id for spec in follow_specs(config, "/c.yaml", ())] == ["follow__sales__orders"]


def test_tables_are_named_once_in_name_order() -> None:
    config = _config([{"match": "sales.*", "exclude": ["*_tmp"]}, {"name": "crm.people"}, {"name": "sales.b"}])
    resolved = ["sales.c", "sales.b", "sales.a", "sales.x_tmp", "other.table"]
    names = [str(table) for table in configured_tables(config, resolved)]
    assert names == ["crm.people", "sales.a", "sales.b", "sales.c"]


def test_before_the_first_resolution_named_tables_are_there() -> None:
    config = _config([{"match": "sales.*"}, {"name": "crm.people"}])
    assert [spec.dag_id for spec in mirror_specs(config, "/c.yaml", ())] == ["mirror__crm__people"]


@pytest.mark.parametrize(("tables", "is_needed"), [([{"match": "sales.*"}], True), ([{"name": "sales.orders"}], False)])
def test_patterns_need_resolving(tables: list[dict[str, Any]], is_needed: bool) -> None:
    spec = resolve_spec(_config(tables), "/c.yaml", "/c.tables.json")
    assert (spec is not None) is is_needed
    if spec is not None:
        assert (spec.dag_id, spec.tags) == ("lakemirror__resolve_tables", (Tag.LAKEMIRROR, Tag.UPKEEP))

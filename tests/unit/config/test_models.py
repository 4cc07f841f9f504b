"""A loaded configuration: which entry covers a table, what is in force for it, and where that came from."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from lakemirror.config.knobs import knob_names
from lakemirror.config.models import Config
from lakemirror.errors import UsageError
from lakemirror.model.table import TableRef
from tests.unit.config.conftest import Files

TEXT = """\
source:
  catalog:
    name: onprem
    type: sql
    uri: postgresql://lake:${PW}@host/db
    s3.secret-access-key: ${KEY}
    s3.region: north
  roots: [{name: cold, from: "${COLD}"}]
mirror:
  catalog: {name: cloud, type: sql, uri: sqlite:////var/c.db}
  location: s3://mirror/lake
spark:
  conf: {spark.x: 1, spark.y: "${KEY}"}
defaults:
  k_min: 50
  group: ${GROUP}
  gc: {cloud_gc_grace: 48h}
tables:
  - name: sales.orders
    k_max: 500
    gc: {trash: true}
  - match: "sales.*"
    exclude: ["*.tmp_*", "sales.x"]
    k_min: 10
    group: plain
  - name: sales.x
  - match: "*.deep.*"
"""
ENV = {"PW": "pw-hush", "KEY": "key-hush", "COLD": "s3://cold-hush/x", "GROUP": "group-hush"}
ORDERS = TableRef.parse("sales.orders")


@pytest.fixture
def config(files: Files) -> Config:
    return files.load(TEXT, ENV)


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ("sales.orders", "sales.orders"),
        ("sales.customers", "sales.*"),
        ("sales.a.b", "sales.*"),
        ("sales.tmp_1", None),
        ("sales.x", "sales.x"),
        ("a.deep.b", "*.deep.*"),
        ("sales.deep.b", "sales.*"),
        ("Sales.customers", None),
        ("other.orders", None),
    ],
)
def test_the_first_entry_that_matches_wins(config: Config, table: str, label: str | None) -> None:
    entry = config.entry_for(TableRef.parse(table))
    assert (entry.label if entry else None) == label


def test_a_pattern_above_an_exact_name_wins_when_rules_were_not_asked() -> None:
    data = {
        "mirror": {"catalog": {"name": "b", "type": "glue"}, "location": "s3://m"},
        "tables": [{"match": "a.*"}, {"name": "a.b"}],
    }
    entry = Config.model_validate(data).entry_for(TableRef.parse("a.b"))
    assert entry is not None
    assert entry.match == "a.*"


def test_names_are_resolved_in_name_order(config: Config) -> None:
    names = ["sales.z", "sales.orders", "other.t", "sales._hidden", "a.deep.b", "sales.tmp_1", "sales.z", "sales.a"]
    assert [str(ref) for ref in config.match(names)] == ["a.deep.b", "sales.a", "sales.orders", "sales.z"]
    assert config.refused(names) == {"sales._hidden": "'_hidden' cannot be a folder of the mirror"}


def test_exact_tables_in_the_order_of_the_file(config: Config) -> None:
    assert config.exact_tables() == (ORDERS, TableRef.parse("sales.x"))
    assert config.has_patterns


def test_without_patterns_no_catalog_needs_asking(files: Files) -> None:
    assert not files.load_with("tables: [{name: a.b}]").has_patterns
    assert not files.load_with("").has_patterns


def test_knobs_in_force(config: Config) -> None:
    orders = config.knobs_for(ORDERS)
    assert (orders.k_min, orders.k_max, orders.p, orders.group) == (50, 500, 0.02, "group-hush")
    assert (orders.gc.trash, orders.gc.cloud_gc_grace.days) == (True, 2)
    other = config.knobs_for(TableRef.parse("sales.other"))
    assert (other.k_min, other.k_max, other.group, other.gc.trash) == (10, 2000, "plain", False)
    assert config.knobs_for(TableRef.parse("not.listed")) == config.defaults


def test_explain_a_table(config: Config, files: Files) -> None:
    explained = config.explain(ORDERS)
    assert set(explained) == {"entry"} | {".".join(name) for name in knob_names()}
    assert {key: value for key, value in explained.items() if value["from"] != "default"} == {
        "entry": {"value": "sales.orders", "from": f"{files.path}:19"},
        "k_min": {"value": 50, "from": f"{files.path}:15"},
        "k_max": {"value": 500, "from": f"{files.path}:20"},
        "group": {"value": "***", "from": f"{files.path}:16"},
        "gc.cloud_gc_grace": {"value": "2d", "from": f"{files.path}:17"},
        "gc.trash": {"value": True, "from": f"{files.path}:21"},
    }
    assert explained["p"] == {"value": 0.02, "from": "default"}
    assert explained["hist_catchup"] == {"value": "7d", "from": "default"}
    by_pattern = config.explain(TableRef.parse("sales.other"))
    assert by_pattern["entry"] == {"value": "sales.*", "from": f"{files.path}:22"}
    assert by_pattern["group"] == {"value": "plain", "from": f"{files.path}:25"}


def test_explain_a_table_that_has_no_entry(config: Config, files: Files) -> None:
    with pytest.raises(UsageError) as caught:
        config.explain(TableRef.parse("not.listed"))
    assert str(caught.value) == (
        f"explain table not.listed: no entry of `tables:` in {files.path} covers it; add one, or check the name"
    )


def test_explain_everything(config: Config, files: Files) -> None:
    explained = config.explain()
    file = files.path
    assert {key: value for key, value in explained.items() if value["from"] != "default"} == {
        "source.catalog.name": {"value": "onprem", "from": f"{file}:3"},
        "source.catalog.type": {"value": "sql", "from": f"{file}:4"},
        "source.catalog.uri": {"value": "***", "from": f"{file}:5"},
        "source.catalog.s3.secret-access-key": {"value": "***", "from": f"{file}:6"},
        "source.catalog.s3.region": {"value": "north", "from": f"{file}:7"},
        "source.roots[0].name": {"value": "cold", "from": f"{file}:8"},
        "source.roots[0].from": {"value": "***", "from": f"{file}:8"},
        "mirror.catalog.name": {"value": "cloud", "from": f"{file}:10"},
        "mirror.catalog.type": {"value": "sql", "from": f"{file}:10"},
        "mirror.catalog.uri": {"value": "sqlite:////var/c.db", "from": f"{file}:10"},
        "mirror.location": {"value": "s3://mirror/lake", "from": f"{file}:11"},
        "spark.conf.spark.x": {"value": "1", "from": f"{file}:13"},
        "spark.conf.spark.y": {"value": "***", "from": f"{file}:13"},
        "defaults.k_min": {"value": 50, "from": f"{file}:15"},
        "defaults.group": {"value": "***", "from": f"{file}:16"},
        "defaults.gc.cloud_gc_grace": {"value": "2d", "from": f"{file}:17"},
        "tables[0].name": {"value": "sales.orders", "from": f"{file}:19"},
        "tables[1].match": {"value": "sales.*", "from": f"{file}:22"},
        "tables[1].exclude": {"value": ["*.tmp_*", "sales.x"], "from": f"{file}:23"},
        "tables[2].name": {"value": "sales.x", "from": f"{file}:26"},
        "tables[3].match": {"value": "*.deep.*", "from": f"{file}:27"},
    }
    assert explained["state"] == {"value": None, "from": "default"}
    assert explained["spark.master"] == {"value": "local[*]", "from": "default"}
    assert explained["cache.table_metadata_cache_max_size"] == {"value": 10000, "from": "default"}


def test_a_follower_has_no_source(files: Files) -> None:
    config = files.load_with("state: {uri: 'sqlite:////var/s.db'}")
    assert config.source is None
    assert config.explain()["source"] == {"value": None, "from": "default"}
    assert config.explain()["state.uri"] == {"value": "sqlite:////var/s.db", "from": f"{files.path}:4"}


def test_no_text_of_a_configuration_shows_a_secret(config: Config) -> None:
    assert config.source is not None
    shown = [
        config,
        config.source.catalog,
        config.source.roots,
        config.spark,
        config.defaults,
        config.knobs_for(ORDERS),
    ]
    for value in [*shown, pickle.loads(pickle.dumps(config)), config.model_copy()]:
        for text in (repr(value), str(value)):
            assert "hush" not in text
            assert "***" in text
    assert config.source.catalog.properties["s3.secret-access-key"] == "key-hush"
    assert repr(config.source.roots[0]) == "RootConfig(name='cold', from_='***')"
    assert repr(config.source.catalog) == (
        "SourceCatalogConfig(name='onprem', type='sql', conn_id=None, "
        "properties={'uri': '***', 's3.secret-access-key': '***', 's3.region': 'north'})"
    )


def test_secrets_of_entries_are_hidden_and_what_replaces_them_is_shown(files: Files) -> None:
    config = files.load_with(
        "defaults: {group: '${A}', schedule: '${C}'}\n"
        "tables:\n  - {name: a.b, group: open, k_min: '${N}', gc: {approval_objects: '${N}'}}\n"
        "  - {match: x, exclude: ['${A}']}",
        {"A": "a-hush", "C": "@daily", "N": "1947"},
    )
    knobs = repr(config.knobs_for(TableRef.parse("a.b")))
    assert "group='open'" in knobs
    assert "schedule='***'" in knobs
    assert "1947" not in knobs
    assert "hush" not in repr(config.tables)


def test_a_configuration_is_a_value(config: Config, files: Files) -> None:
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.explain(ORDERS) == config.explain(ORDERS)
    assert copy.entry_for(ORDERS) == config.entry_for(ORDERS)
    assert files.load(TEXT, ENV) == config
    with pytest.raises(ValidationError, match="frozen"):
        config.tables = ()


def test_properties_are_text_as_written(files: Files) -> None:
    text = """\
        mirror:
          catalog: {name: b, type: glue, glue.id: 0123, s3.timeout: 60.0, s3.flag: True, day: 2026-01-02, x: "007"}
          location: s3://m
        """
    assert files.load(text).mirror.catalog.properties == {
        "glue.id": "0123",
        "s3.timeout": "60.0",
        "s3.flag": "true",
        "day": "2026-01-02",
        "x": "007",
    }

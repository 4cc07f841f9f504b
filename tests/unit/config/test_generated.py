"""What is made from the models is up to date, and what it shows works."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lakemirror.config.knobs import knob_names
from lakemirror.config.loader import check_config, load_config
from lakemirror.config.schema import build_schema
from lakemirror.model.table import TableRef
from scripts.generate_config_docs import DOCS, MARKER_SCHEMA, SCHEMA, main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "include/config/lakemirror.yaml"


def documented_example() -> str:
    found = re.search(r"```yaml\n(.*?)```", (ROOT / DOCS).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_documentation_and_schema_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_what_is_stale_is_named_and_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{DOCS}: written\n{SCHEMA}: written\n{MARKER_SCHEMA}: written\n"
    assert main(["--root", str(tmp_path), "--check"]) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / DOCS).write_text("old")
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().out == f"{DOCS}: stale; run scripts/generate_config_docs.py\n"
    assert (tmp_path / DOCS).read_text() == "old"


def test_every_knob_is_documented() -> None:
    text = (ROOT / DOCS).read_text(encoding="utf-8")
    assert [name[-1] for name in knob_names() if f"| `{name[-1]}` |" not in text] == []


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    text = documented_example()
    path = tmp_path / "lake.yaml"
    path.write_text(text, encoding="utf-8")
    config = load_config(path, env=dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x"))
    assert config.knobs_for(TableRef.parse("sales.orders")).bandwidth_limit_bytes_per_s == 93_750_000
    jsonschema.validate(yaml.safe_load(text), build_schema())


def test_the_default_configuration_works() -> None:
    config = load_config(EXAMPLE, env={})
    assert config.source is not None
    assert config.state is not None
    home = f"{ROOT}/.demo"
    assert config.source.catalog.properties == {
        "uri": f"sqlite:///{home}/onprem/catalog.db",
        "warehouse": f"file://{home}/onprem/warehouse",
    }
    assert config.mirror.location == f"file://{home}/cloud/warehouse"
    assert config.state.uri == f"sqlite:///{home}/state.db"
    jsonschema.validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")), build_schema())


def test_the_schema_is_a_schema() -> None:
    schema = json.loads((ROOT / SCHEMA).read_text(encoding="utf-8"))
    assert schema == build_schema()
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    "change",
    [
        {"defaults": {"k_mim": 5}},
        {"defaults": {"k_min": "many"}},
        {"defaults": {"gc": {"cloud_gc_grace": "7 days"}}},
        {"defaults": {"bin_bytes": "1 XB"}},
        {"defaults": {"rate_limit": 0}},
        {"defaults": {"mode": "D"}},
        {"tables": [{"name": "a.b", "match": "a.*"}]},
        {"tables": [{"k_min": 5}]},
        {"tables": [{"name": "a.b", "unknown": 5}]},
        {"mirror": {"location": "s3://m"}},
        {"source": None},
        {"source": {"catalog": {"name": "a", "type": "dlf"}}},
    ],
)
def test_an_editor_marks_what_the_loader_refuses(change: dict[str, Any], tmp_path: Path) -> None:
    good = {"mirror": {"catalog": {"name": "b", "type": "glue", "s3.x": 5}, "location": "s3://m"}}
    jsonschema.validate(good, build_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(good | change, build_schema())
    path = tmp_path / "lake.yaml"
    path.write_text(json.dumps(good | change))
    assert len(check_config(path, env={})) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"defaults": {"gc": {"cloud_gc_grace": "48h", "approval_bytes": "2 TB"}, "retry_delay_seconds": "5m"}},
        {"defaults": {"peak_bandwidth_bytes_per_s": None, "schedule": None, "group": None}},
        {"tables": [{"name": "a.b", "gc": {"trash": True}}, {"match": "*", "exclude": ["x"], "p": 0.5}]},
        {"spark": {"conf": {"spark.x": 1, "spark.y": True}}},
    ],
)
def test_an_editor_accepts_what_the_loader_accepts(change: dict[str, Any], tmp_path: Path) -> None:
    good = {"mirror": {"catalog": {"name": "b", "type": "glue"}, "location": "s3://m"}} | change
    jsonschema.validate(good, build_schema())
    path = tmp_path / "lake.yaml"
    path.write_text(json.dumps(good))
    assert check_config(path, env={}) == []

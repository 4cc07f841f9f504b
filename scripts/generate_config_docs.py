"""Writes docs/configuration.md, include/config/lakemirror.schema.json and docs/marker.schema.json from the models.

python scripts/generate_config_docs.py            write them
python scripts/generate_config_docs.py --check    change nothing; exit 1 and name what is stale
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lakemirror.config.cache import SUPERSEDED, CacheConfig
from lakemirror.config.connection_properties import LIBPQ
from lakemirror.config.knobs import (
    CopyKnobs,
    FenceKnobs,
    GcKnobs,
    HistoryKnobs,
    LevelKnobs,
    SchedulingKnobs,
    VerifyKnobs,
)
from lakemirror.config.quantities import format_bytes, format_duration
from lakemirror.config.schema import build_schema
from lakemirror.config.section import About
from lakemirror.config.sections import (
    EventsConfig,
    MirrorCatalogConfig,
    MirrorConfig,
    PubsubConfig,
    RootConfig,
    SourceCatalogConfig,
    SourceConfig,
    SparkConfig,
    SqsConfig,
    StateConfig,
    TableEntry,
)
from lakemirror.model import marker_schema

DOCS = Path("docs/configuration.md")
SCHEMA = Path("include/config/lakemirror.schema.json")
MARKER_SCHEMA = Path("docs/marker.schema.json")

INTRODUCTION = """\
<!-- Made by scripts/generate_config_docs.py from the models in plugins/lakemirror/config. Do not edit. -->
# Configuration

One YAML file says where the tables are, where their copy goes, and how each is treated. It is the file named by
`--config`, else by `LAKEMIRROR_CONFIG`, else `include/config/lakemirror.yaml`.

- `bin/lakemirror config check` reads it and reports everything that is wrong, with file and line.
- `bin/lakemirror config show [TABLE]` shows every value in force and where it came from.
- `include/config/lakemirror.schema.json` lets an editor complete keys. Put
  `# yaml-language-server: $schema=lakemirror.schema.json` (the path from your file) into the first line.

## An example with everything in it

```yaml
"""

EXAMPLE = """\
source:                                  # leave it out for a follower
  catalog:
    name: onprem
    type: sql
    uri: postgresql+psycopg2://lake:${SOURCE_DB_PASSWORD}@db.example.com/catalog
    warehouse: s3://lake/warehouse
    s3.endpoint: https://s3.example.com  # every key but name, type and conn_id goes to pyiceberg as it is
    s3.access-key-id: ${SOURCE_S3_ACCESS_KEY_ID}
    s3.secret-access-key: ${SOURCE_S3_SECRET_ACCESS_KEY}
  roots:
    - {name: cold, from: s3://cold/warehouse}
mirror:
  catalog:
    name: cloud
    type: sql
    conn_id: mirror_lake                 # uri and keys are in this connection of Airflow
    s3.region: eu-central-1
  location: s3://mirror/lake
state:
  uri: sqlite:///state.db                # beside this file
spark:
  conn_id: spark_default
  master: local[*]
  conf: {spark.executor.memory: 4g}
events:
  sqs:                                   # S3 sends the notifications of the bucket there
    conn_id: aws_default
    queue_url: https://sqs.eu-central-1.amazonaws.com/123456789012/lakemirror
defaults:
  schedule: "*/5 * * * *"
  mirror_trigger: watch
  follow_trigger: sqs
  peak_bandwidth_bytes_per_s: 125 MB
  gc: {cloud_gc_grace: 72h}
tables:
  - name: sales.orders
    priority: 10
    group: finance
    schedule: "* * * * *"
  - match: "sales.*"
    exclude: ["*.tmp_*", "sales.scratch"]
    group: finance
  - match: "*"
    schedule: "@hourly"
    on_source_recreated: stop
"""

WRITING = """\
```

## How values are written

| what | how |
|---|---|
| duration | seconds (`900`), or with a unit: `45s`, `15m`, `24h`, `7d`, `2w` |
| bytes | a whole number, or with a unit: `256 MB` (10⁶), `256 MiB` (2²⁰); `256M` is refused, it could be either |
| schedule | five cron fields or a preset (`@hourly`, `@daily`, …); null: never by itself |
| location | `s3://…`, `s3a://…`, `s3n://…`, `gs://…`, `file:///absolute/path`, or a plain path |
| relative path | relative to the file's folder; `sqlite:///lake.db` is relative, `sqlite:////var/lake.db` absolute |
| secret | `${NAME}`, an environment variable that must be set, shown as `***`; or a connection, see below |
| a literal `${` | `$${` |

A secret in plain text is refused: in a key named like one (`token`, `credential`, `password`, `…secret-access-key`) and
in the address of a database. Unknown keys are refused with the nearest known one, and so are keys given twice. Anchors,
aliases and merge keys (`<<`) work. A file may have 1 MiB.

## Connections

A catalog with `conn_id` takes what the file does not say from an Airflow connection. The file's own keys win. Reading
the file asks for no connection: that happens when a task, or a command, first opens a catalog or a bucket. Inside
Airflow the connection may live in a secrets backend, in the environment or in Airflow's database. Without Airflow it is
the environment variable `AIRFLOW_CONN_<ID>` (the id in upper case), in Airflow's JSON or URI form. Spark drivers get it
from the task that submits them, through their environment.

Every key of the connection's `extra` is a pyiceberg property as it is, and its value is text. The other fields:

| catalog | `host`, `port`, `schema` | `login`, `password` |
|---|---|---|
| `sql`, `conn_type: postgres` | make the `uri`, driver psycopg2; `schema` is the database | are part of it |
| `sql`, `conn_type: sqlite` | `host` is the absolute path of the file | refused |
| `rest` | make the `uri`; see below for its scheme | `credential`; a password alone is the `token` |
| `blms` | as `rest` | refused: Google's own credentials are used |
| `hive` | make the `uri`, `thrift://host:port` | refused |
| `glue` | refused | refused |

- The `host` of a REST catalog may be a whole address, `https://host/path`. If it has no scheme, `schema` says `https`
  or `http`, or `conn_type` is `https`: nobody guesses whether a secret may go over the line in clear.
- Of an `extra`, libpq's settings become part of the `uri` that is made for PostgreSQL:
  {settings}.
- Refused is, with the name of the field: what has no place in this table, a relative path, a value of `extra` that is
  not text, `name`, `type` and `conn_id` in `extra`, and a property that both `extra` and the other fields give.
- `config check` cannot see into connections, so what depends on them is checked when they are opened: that there is a
  `uri`, that the mirror's catalog is not the source's, and that the mirror lies apart from the source. A configuration
  with both sides needs the connections of both sides, whatever is asked of it.

## Which tables

An entry of `tables:` has either a `name` or a `match`, and any knob. **The first entry that matches a table wins**, so
exact names stand above patterns. A knob that the entry leaves out is taken from `defaults:`, and what that leaves out
has the default shown below; `gc` is taken key by key.

"""

REFUSED = """\
## What is refused

Besides wrong values, because it cannot end well:

- `mirror.location` inside a root or the warehouse of the source, or the other way round; symbolic links are followed.
- A mirror catalog that is the source's catalog.
- `follow_trigger: pubsub` or `sqs` without `events.pubsub` or `events.sqs`, or for a bucket of another kind.
- Ids of two connections that differ in nothing but upper and lower case.
- `k_min` above `k_max`; lags of the levels that do not rise.
- `gc.cloud_gc_grace` below 24h in mode A, below 7d in modes B and C, and below `history_retention` in mode B.
- An entry that no table can reach, because an entry above it takes them all; the same name twice.
- `mode: B`, `mode: C`, `enable_L0_quick_publish: false`: not in this version.

## What is fixed

These are rules, not knobs: a source table that was dropped leaves its mirror as it is, and a foreign commit on the
mirror stops its follower.
"""

KNOBS_INTRODUCTION = """\
## Knobs

Each may stand under `defaults:` and in any entry of `tables:`.

- *takes effect* **now**: this version acts on it. **planned**: it is validated and shown, and nothing acts on it yet.
- *live*: meant to be changed while runs are under way, through `_control/overrides.json`, which is planned; in this
  version a new value takes effect with the next run.
- *for* names the requirement and the section of the design (§) that asks for it.

"""

KNOB_GROUPS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Scheduling", SchedulingKnobs),
    ("Copying", CopyKnobs),
    ("Keeping runs apart", FenceKnobs),
    ("Verifying", VerifyKnobs),
    ("History", HistoryKnobs),
    ("Falling behind", LevelKnobs),
    ("Garbage, under `gc:`", GcKnobs),
)
SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("source", SourceConfig),
    ("source.catalog", SourceCatalogConfig),
    ("source.roots[]", RootConfig),
    ("mirror", MirrorConfig),
    ("mirror.catalog", MirrorCatalogConfig),
    ("state", StateConfig),
    ("spark", SparkConfig),
    ("events", EventsConfig),
    ("events.pubsub", PubsubConfig),
    ("events.sqs", SqsConfig),
    ("tables[]", TableEntry),
)


def render_docs() -> str:
    parts = [INTRODUCTION, EXAMPLE, WRITING.replace("{settings}", ", ".join(f"`{name}`" for name in LIBPQ))]
    parts += ["## Sections\n\n", *_section_tables()]
    parts.append(KNOBS_INTRODUCTION)
    for title, model in KNOB_GROUPS:
        parts.append(f"### {title}\n\n{model.__doc__}\n\n{''.join(_knob_rows(model))}\n")
    parts.append(f"## Cache, under `cache:`\n\n{CacheConfig.__doc__}\n\n{''.join(_knob_rows(CacheConfig))}\n")
    parts.append("Older names, refused with the one that took their place:\n\n| older name | now |\n|---|---|\n")
    parts += [f"| `{old}` | `{new}` |\n" for old, new in SUPERSEDED.items()]
    return "".join([*parts, "\n", REFUSED])


def _section_tables() -> Iterator[str]:
    yield "| key | default | meaning |\n|---|---|---|\n"
    for path, model in SECTIONS:
        for name, info in model.model_fields.items():
            if info.description and name not in ("properties", "overrides"):
                default = "required" if info.is_required() else _default(info.default, "")
                yield f"| `{path}.{info.alias or name}` | {default} | {info.description}{_choices(info)} |\n"
        if path.endswith(".catalog"):
            yield f"| `{path}.<property>` |  | Any pyiceberg property: `uri`, `warehouse`, `s3.endpoint`, … |\n"
    yield "\n"


def _knob_rows(model: type[BaseModel]) -> Iterator[str]:
    yield "| key | default | unit | meaning | takes effect | live | for |\n|---|---|---|---|---|---|---|\n"
    for name, info in model.model_fields.items():
        about = About.of(info)
        if about is None:
            raise ValueError(f"{model.__name__}.{name} is not described; declare it with knob(...)")
        yield (
            f"| `{name}` | {_default(info.default, about.unit)} | {about.unit} | {info.description}{_choices(info)} "
            f"| {about.takes_effect} | {'yes' if about.is_live else ''} | {about.requirement} |\n"
        )


def _default(value: Any, unit: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, timedelta):
        return f"`{format_duration(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (tuple, dict)) and not value:
        return "none"
    return f"`{format_bytes(value)}`" if unit == "bytes" else f"`{value}`"


def _choices(info: FieldInfo) -> str:
    words = [word for word in get_args(info.annotation) if isinstance(word, str)]
    return f" One of {', '.join(f'`{word}`' for word in words)}." if words else ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the configuration's documentation and schema.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is stale")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the project's folder"
    )
    args = parser.parse_args(argv)
    schema = json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"
    of_markers = json.dumps(marker_schema.build_schema(), indent=2, ensure_ascii=False) + "\n"
    stale = []
    for path, text in ((DOCS, render_docs()), (SCHEMA, schema), (MARKER_SCHEMA, of_markers)):
        target = args.root / path
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not args.check:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path}: {'stale; run scripts/generate_config_docs.py' if args.check else 'written'}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""What no single key can tell: contradictions, a mirror over its own source, entries never reached."""

from __future__ import annotations

import pytest

from tests.unit.config.conftest import Files


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("defaults: {k_min: 100, k_max: 100}", []),
        (
            "defaults: {k_max: 50}",
            ["4: `defaults`: `k_min` (100) is larger than `k_max` (50); lower k_min or raise k_max"],
        ),
        (
            "defaults: {k_min: 60}\ntables:\n  - name: a.b\n    k_max: 50\n  - name: a.c",
            ["7: `tables[0]`: `k_min` (60) is larger than `k_max` (50); lower k_min or raise k_max"],
        ),
        ("defaults: {copy_part_bytes: 100 MB, copy_memory_bytes: 200 MB}", []),
        ("defaults: {follow_trigger: bucket, mirror_trigger: watch}", []),
        (
            "events: {sqs: {queue_url: https://q}}\ndefaults: {follow_trigger: sqs}",
            [
                "5: `defaults.follow_trigger: sqs` gets no notifications of `mirror.location`, which is not a bucket "
                "of S3; choose bucket"
            ],
        ),
        (
            "events: {pubsub: {project_id: p, subscription: s}}\ntables: [{name: a.b, follow_trigger: sqs}]",
            [
                "5: `tables[0].follow_trigger: sqs` needs `events.sqs`; say there which queue it reads, or choose "
                "bucket",
                "5: `tables[0].follow_trigger: sqs` gets no notifications of `mirror.location`, which is not a bucket "
                "of S3; choose bucket",
            ],
        ),
        (
            "events: {sqs: }",
            ["4: `events.sqs`: want a map, got nothing; fill it in, or remove the key"],
        ),
        (
            "events: {pubsub: {project_id: p, subscription: projects/p/subscriptions/s}}",
            [
                "4: `events.pubsub.subscription`: want the short name of a subscription, got "
                "'projects/p/subscriptions/s'; leave out projects/…/subscriptions/"
            ],
        ),
        (
            "defaults: {copy_part_bytes: 200 MB}",
            [
                "4: `defaults`: `copy_memory_bytes` (256000000) does not hold two parts of `copy_part_bytes` "
                "(200000000); raise copy_memory_bytes or lower copy_part_bytes"
            ],
        ),
        ("defaults: {mode: B}", ["4: `defaults`: `mode: B` is not in this version; write mode: A"]),
        ("tables: [{name: a.b, mode: C}]", ["4: `tables[0]`: `mode: C` is not in this version; write mode: A"]),
        (
            "defaults: {enable_L0_quick_publish: false}",
            ["4: `defaults`: `enable_L0_quick_publish: false` needs L1, which is not in this version; write true"],
        ),
        ("defaults: {gc: {cloud_gc_grace: 24h}}", []),
        ("defaults: {gc: {cloud_gc_grace: 72h}}", []),
        (
            "defaults: {gc: {cloud_gc_grace: 23h}}",
            [
                "4: `defaults`: `gc.cloud_gc_grace` of 23h is too short for mode A: readers would lose files; "
                "want at least 1d"
            ],
        ),
        (
            "defaults: {gc: {cloud_gc_grace: 72h}}\ntables: [{name: a.b, mode: B}]",
            [
                "5: `tables[0]`: `mode: B` is not in this version; write mode: A",
                "5: `tables[0]`: `gc.cloud_gc_grace` of 3d is too short for mode B: readers would lose files; "
                "want at least 7d",
            ],
        ),
        (
            "defaults: {mode: B, history_retention: 30d}",
            [
                "4: `defaults`: `mode: B` is not in this version; write mode: A",
                "4: `defaults`: `gc.cloud_gc_grace` of 7d is shorter than `history_retention` of 30d; "
                "want at least 30d",
            ],
        ),
        (
            "defaults: {mode: B, history_retention: 30d, gc: {cloud_gc_grace: 30d}}",
            ["4: `defaults`: `mode: B` is not in this version; write mode: A"],
        ),
        ("defaults: {history_retention: 30d}", []),
        (
            "defaults: {level_orange_lag_seconds: 5m}",
            [
                "4: `defaults`: the lags of the levels do not rise: yellow 300, orange 300, red 3600; "
                "want yellow < orange < red"
            ],
        ),
        (
            "tables: [{name: a.b, level_red_lag_seconds: 600}]",
            [
                "4: `tables[0]`: the lags of the levels do not rise: yellow 300, orange 900, red 600; "
                "want yellow < orange < red"
            ],
        ),
    ],
)
def test_knobs_that_contradict_each_other(files: Files, lines: str, expected: list[str]) -> None:
    assert files.check_with(lines) == [f"lake.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["{name: a.b}", "{name: a.c}", "{match: 'a.*'}", "{match: '*'}"], []),
        (
            ["{k_min: 5}"],
            ["5: `tables[0]`: want either `name` or `match`; name: sales.orders, or match: sales.*"],
        ),
        (
            ["{name: a.b, match: 'a.*'}"],
            ["5: `tables[0]`: want either `name` or `match`; name: sales.orders, or match: sales.*"],
        ),
        (["{name: a.b, exclude: [x]}"], ["5: `tables[0].exclude` needs `match`; remove it"]),
        (
            ["{name: a.b}", "{name: a.c}", "{name: a.b}", "{name: a.b}"],
            [
                "7: `tables[2]`: a.b is listed before, at tables[0]; keep one of them",
                "8: `tables[3]`: a.b is listed before, at tables[0]; keep one of them",
            ],
        ),
        (
            ["{match: 'a.*'}", "{name: a.b}"],
            [
                "6: `tables[1]`: a.b is never reached, `a.*` at tables[0] takes it; "
                "move the exact name above the pattern"
            ],
        ),
        (["{match: 'a.*', exclude: [a.b]}", "{name: a.b}"], []),
        (
            ["{match: 'a.*'}", "{match: 'a.*'}"],
            ["6: `tables[1]`: `a.*` is listed before, at tables[0]; keep one of them"],
        ),
        (["{match: 'a.*', exclude: [a.b]}", "{match: 'a.*'}"], []),
    ],
)
def test_entries_that_take_nothing(files: Files, entries: list[str], expected: list[str]) -> None:
    lines = "tables:\n" + "".join(f"  - {entry}\n" for entry in entries)
    assert files.check_with(lines) == [f"lake.yaml:{line}" for line in expected]


def _both_sides(source: str, mirror: str, location: str, roots: str = "[]") -> str:
    return f"""\
        source:
          catalog: {source}
          roots: {roots}
        mirror:
          catalog: {mirror}
          location: {location}
        """


_SOURCE = "{name: a, type: sql, uri: 'sqlite:///a.db', warehouse: %s}"
_MIRROR = "{name: b, type: sql, uri: 'sqlite:///b.db'}"
_REST = "{name: %s, type: rest, uri: '%s', warehouse: %s}"
_APART = "choose a location apart from the source"


@pytest.mark.parametrize(
    ("warehouse", "roots", "location", "expected"),
    [
        ("lake", "[]", "mirror", []),
        ("lake", "[]", "lake2", []),
        ("lake", "[]", "lake/mirror", ["`mirror.location` lies inside `source.catalog.warehouse`"]),
        ("lake", "[]", "lake", ["`mirror.location` lies inside `source.catalog.warehouse`"]),
        ("mirror/lake", "[]", "mirror", ["`mirror.location` contains `source.catalog.warehouse`"]),
        ("lake", "[]", "x/../lake/", ["`mirror.location` lies inside `source.catalog.warehouse`"]),
        ("lake", "[{name: r, from: cold}]", "cold/m", ["`mirror.location` lies inside `source.roots[0].from`"]),
        ("s3://b/lake", "[]", "s3a://b/lake/m", ["`mirror.location` lies inside `source.catalog.warehouse`"]),
        (
            "s3://b/lake",
            "[{name: r, from: s3://b}]",
            "s3n://b/m",
            ["`mirror.location` lies inside `source.roots[0].from`"],
        ),
        ("s3://b/lake", "[]", "gs://b/lake", []),
    ],
)
def test_a_mirror_is_never_laid_over_its_source(
    files: Files, warehouse: str, roots: str, location: str, expected: list[str]
) -> None:
    found = files.check(_both_sides(_SOURCE % warehouse, _MIRROR, location, roots))
    assert found == [f"lake.yaml:6: {text}: the mirror would write into its own source; {_APART}" for text in expected]


def test_equal_buckets_of_two_stores_are_two_places(files: Files) -> None:
    source = "{name: a, type: sql, uri: 'sqlite:///a.db', warehouse: s3://b/lake, s3.endpoint: 'http://one'}"
    mirror = "{name: b, type: sql, uri: 'sqlite:///b.db', s3.endpoint: 'http://%s'}"
    assert files.check(_both_sides(source, mirror % "two", "s3://b/lake")) == []
    assert len(files.check(_both_sides(source, mirror % "one", "s3://b/lake"))) == 1


def test_the_warehouse_of_a_rest_catalog_is_a_name(files: Files) -> None:
    source = "{name: a, type: rest, uri: 'http://one', warehouse: mirror}"
    assert files.check(_both_sides(source, _MIRROR, "mirror")) == []


@pytest.mark.parametrize(
    ("source", "mirror", "is_same"),
    [
        ("{name: a, type: sql, uri: 'sqlite:///x.db'}", "{name: a, type: sql, uri: 'sqlite:///y/../x.db'}", True),
        ("{name: a, type: sql, uri: 'sqlite:///x.db'}", "{name: b, type: sql, uri: 'sqlite:///x.db'}", False),
        (_REST % ("a", "http://h/", "w"), _REST % ("b", "http://h", "w"), True),
        (_REST % ("a", "http://h", "w"), _REST % ("b", "http://h", "v"), False),
        ("{name: a, type: glue, glue.region: x}", "{name: b, type: glue, client.region: x}", True),
        ("{name: a, type: glue, glue.region: x}", "{name: b, type: glue, glue.region: y}", False),
        ("{name: a, type: hive, uri: 'thrift://h'}", "{name: a, type: sql, uri: 'sqlite:///x.db'}", False),
    ],
)
def test_the_mirror_never_commits_to_the_sources_catalog(files: Files, source: str, mirror: str, is_same: bool) -> None:
    problem = (
        "lake.yaml:5: `mirror.catalog` is the source's catalog: the mirror would be committed over the source; "
        "give the mirror a catalog of its own"
    )
    assert files.check(_both_sides(source, mirror, "mirror")) == ([problem] if is_same else [])


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_catalogs_that_need_an_address(files: Files, kind: str) -> None:
    assert files.check(f"mirror:\n  catalog: {{name: b, type: {kind}}}\n  location: m\n") == [
        f"lake.yaml:2: `mirror.catalog.uri` is required for type {kind}"
    ]


@pytest.mark.parametrize(
    ("properties", "missing"),
    [
        ("", ["warehouse", "header.x-goog-user-project"]),
        (", warehouse: 'gs://b'", ["header.x-goog-user-project"]),
        (", warehouse: 'gs://b', gcs.project-id: p", []),
        (", warehouse: 'gs://b', header.X-Goog-User-Project: p", []),
        (", conn_id: google", []),
    ],
)
def test_what_blms_cannot_be_asked_without(files: Files, properties: str, missing: list[str]) -> None:
    found = files.check(f"mirror:\n  catalog: {{name: b, type: blms{properties}}}\n  location: gs://b\n")
    assert [one.partition(" is required for type blms")[0] for one in found] == [
        f"lake.yaml:2: `mirror.catalog.{key}`" for key in missing
    ]


def test_roots_differ(files: Files) -> None:
    roots = "[{name: r, from: cold}, {name: r, from: ./cold/}]"
    assert files.check(_both_sides(_SOURCE % "lake", _MIRROR, "mirror", roots)) == [
        "lake.yaml:3: `source.roots[1].name` is the same as source.roots[0].name; keep one",
        "lake.yaml:3: `source.roots[1].from` is the same as source.roots[0].from; keep one",
    ]


_CONNECTED = "{name: %s, type: sql, conn_id: %s}"


@pytest.mark.parametrize(
    ("source", "mirror", "spark", "wrong", "other"),
    [
        ("lake", "cloud", "spark_default", None, None),
        ("lake", "lake", "spark_default", None, None),
        ("lake", "Lake", "spark_default", "mirror.catalog", "source.catalog"),
        ("Spark_default", "cloud", "spark_default", "source.catalog", "spark"),
        ("spark_default", "cloud", "spark_default", None, None),
    ],
)
def test_ids_that_the_environment_cannot_tell_apart(
    files: Files, source: str, mirror: str, spark: str, wrong: str | None, other: str | None
) -> None:
    text = _both_sides(_CONNECTED % ("a", source), _CONNECTED % ("b", mirror), "mirror")
    line = 2 if wrong == "source.catalog" else 5
    problem = (
        f"lake.yaml:{line}: `{wrong}.conn_id` differs from `{other}.conn_id` in nothing but upper and lower case; "
        "Airflow's variable AIRFLOW_CONN_<ID> cannot tell them apart: rename one of the connections"
    )
    assert files.check(f"{text}spark: {{conn_id: {spark}}}\n".replace(" " * 8, "")) == ([problem] if wrong else [])


@pytest.mark.parametrize("key", ["conn-id", "connId", "CONN_ID", "connection_id", "connection", "conn"])
def test_a_slip_in_conn_id_is_no_property(files: Files, key: str) -> None:
    text = f"mirror:\n  catalog: {{name: b, type: glue, {key}: cloud}}\n  location: s3://m\n"
    assert files.check(text) == [f"lake.yaml:2: unknown key `{key}` in `mirror.catalog`; did you mean `conn_id`?"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("cloud", None),
        ("'team/cloud-1.x:y#!(z)'", None),
        ("7", None),
        ("null", None),
        ("''", "want the id of an Airflow connection, got ''; up to 250 letters, digits and `_-.:/#!()`"),
        ("'a b'", "want the id of an Airflow connection, got 'a b'; up to 250 letters, digits and `_-.:/#!()`"),
        ("ü", "want the id of an Airflow connection, got 'ü'; up to 250 letters, digits and `_-.:/#!()`"),
        ("'${X}'", "want the id of an Airflow connection, got ***; up to 250 letters, digits and `_-.:/#!()`"),
        ("[cloud]", "want text, got a list"),
        ("{a: b}", "want text, got a map"),
    ],
)
def test_the_id_of_a_connection(files: Files, value: str, problem: str | None) -> None:
    text = f"mirror:\n  catalog: {{name: b, type: glue, conn_id: {value}}}\n  location: s3://m\n"
    found = files.check(text, {"X": "a hush"})
    assert found == ([f"lake.yaml:2: `mirror.catalog.conn_id`: {problem}"] if problem else [])
    if not problem:
        assert files.load(text).mirror.catalog.properties == {}

"""What no single key can tell: knobs that contradict each other, a mirror over its own source, entries never reached.

Rules look at values in force, and show them unless they are secret. A rule about a table is told at its entry if the
entry says something about it, and once, at `defaults:`, if not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

from lakemirror.config.knobs import Knobs
from lakemirror.config.locations import is_within
from lakemirror.config.models import Config
from lakemirror.config.problems import Finding, KeyPath, dotted
from lakemirror.config.quantities import format_duration
from lakemirror.config.sections import CatalogConfig, SourceConfig, TableEntry

Verdict = tuple[str, str] | None
_SHORTEST_GRACE = {"A": timedelta(hours=24), "B": timedelta(days=7), "C": timedelta(days=7)}
_NEEDS_URI = ("sql", "rest", "hive")
_BLMS_NEEDS = (
    (("warehouse",), "gs://<bucket> or bl://projects/<project>/catalogs/<catalog>"),
    (("header.x-goog-user-project", "gcs.project-id"), "the project that requests are charged to"),
)
_ALMOST_CONN_ID = re.compile(r"conn(ection)?([._-]?id)?", re.IGNORECASE)


def check_rules(config: Config) -> Iterator[Finding]:
    yield from _knob_findings(config)
    yield from _entry_findings(config)
    yield from _connection_findings(config)
    yield from _event_findings(config)
    yield from check_catalogs(config)
    if config.source is not None:
        yield from _root_findings(config.source)


def check_catalogs(config: Config) -> Iterator[Finding]:
    """What can be told of the catalogs and their places; the rest is told when their connections are known."""
    yield from _catalog_findings(config)
    if config.source is not None:
        yield from _overlap_findings(config, config.source)


def _sample_bounds(knobs: Knobs) -> Verdict:
    if knobs.k_min <= knobs.k_max:
        return None
    message = f"`k_min` ({knobs.shown('k_min')}) is larger than `k_max` ({knobs.shown('k_max')})"
    return message, "lower k_min or raise k_max"


def _mode_in_this_version(knobs: Knobs) -> Verdict:
    if knobs.mode == "A":
        return None
    return f"`mode: {knobs.shown('mode')}` is not in this version", "write mode: A"


def _quick_publish_in_this_version(knobs: Knobs) -> Verdict:
    if knobs.enable_L0_quick_publish:
        return None
    return "`enable_L0_quick_publish: false` needs L1, which is not in this version", "write true"


def _shortest_grace(knobs: Knobs) -> Verdict:
    shortest = _SHORTEST_GRACE[knobs.mode]
    if knobs.gc.cloud_gc_grace >= shortest:
        return None
    grace, mode = knobs.gc.shown("cloud_gc_grace"), knobs.shown("mode")
    message = f"`gc.cloud_gc_grace` of {grace} is too short for mode {mode}: readers would lose files"
    return message, f"want at least {format_duration(shortest)}"


def _grace_covers_history(knobs: Knobs) -> Verdict:
    retention = knobs.history_retention
    if knobs.mode != "B" or retention is None or knobs.gc.cloud_gc_grace >= retention:
        return None
    grace, shown = knobs.gc.shown("cloud_gc_grace"), knobs.shown("history_retention")
    return f"`gc.cloud_gc_grace` of {grace} is shorter than `history_retention` of {shown}", f"want at least {shown}"


def _level_order(knobs: Knobs) -> Verdict:
    if knobs.level_yellow_lag_seconds < knobs.level_orange_lag_seconds < knobs.level_red_lag_seconds:
        return None
    lags = ", ".join(f"{level} {knobs.shown(f'level_{level}_lag_seconds')}" for level in ("yellow", "orange", "red"))
    return f"the lags of the levels do not rise: {lags}", "want yellow < orange < red"


def _parts_fit(knobs: Knobs) -> Verdict:
    if 2 * knobs.copy_part_bytes <= knobs.copy_memory_bytes:
        return None
    part, memory = knobs.shown("copy_part_bytes"), knobs.shown("copy_memory_bytes")
    message = f"`copy_memory_bytes` ({memory}) does not hold two parts of `copy_part_bytes` ({part})"
    return message, "raise copy_memory_bytes or lower copy_part_bytes"


# Each with the knobs it looks at; the first that an entry sets is where the finding points.
_KNOB_RULES: tuple[tuple[Callable[[Knobs], Verdict], tuple[KeyPath, ...]], ...] = (
    (_sample_bounds, (("k_min",), ("k_max",))),
    (_parts_fit, (("copy_part_bytes",), ("copy_memory_bytes",))),
    (_mode_in_this_version, (("mode",),)),
    (_quick_publish_in_this_version, (("enable_L0_quick_publish",),)),
    (_shortest_grace, (("gc", "cloud_gc_grace"), ("mode",))),
    (_grace_covers_history, (("gc", "cloud_gc_grace"), ("history_retention",), ("mode",))),
    (
        _level_order,
        (("level_yellow_lag_seconds",), ("level_orange_lag_seconds",), ("level_red_lag_seconds",)),
    ),
)


def _knob_findings(config: Config) -> Iterator[Finding]:
    yield from _broken_rules(config.defaults, config.defaults, ("defaults",))
    for index, entry in enumerate(config.tables):
        yield from _broken_rules(config.defaults.overridden_by(entry.overrides), entry.overrides, ("tables", index))


def _broken_rules(in_force: Knobs, given: Knobs, where: KeyPath) -> Iterator[Finding]:
    for rule, names in _KNOB_RULES:
        own = [name for name in names if _is_given(given, name)]
        verdict = rule(in_force) if own else None
        if verdict is not None:
            about = tuple((*place, *name) for place in (where, ("defaults",)) for name in names)
            yield Finding((*where, *own[0]), f"`{dotted(where)}`: {verdict[0]}", verdict[1], about=about)


def _is_given(knobs: Knobs, name: KeyPath) -> bool:
    return name[-1] in (knobs.gc if len(name) == 2 else knobs).model_fields_set


def _entry_findings(config: Config) -> Iterator[Finding]:
    names: dict[str, int] = {}
    patterns: list[tuple[int, TableEntry]] = []
    for index, entry in enumerate(config.tables):
        where: KeyPath = ("tables", index)
        if (entry.name is None) == (entry.match is None):
            message = f"`{dotted(where)}`: want either `name` or `match`"
            hint = "name: sales.orders, or match: sales.*"
            yield Finding(where, message, hint, about=((*where, "name"), (*where, "match")))
            continue
        if entry.exclude and entry.match is None:
            yield Finding((*where, "exclude"), f"`{dotted(where)}.exclude` needs `match`", "remove it")
        yield from _never_reached(where, entry, names, patterns)
        if entry.name is None:
            patterns.append((index, entry))
        else:
            names.setdefault(entry.name, index)


def _never_reached(
    where: KeyPath, entry: TableEntry, names: dict[str, int], patterns: list[tuple[int, TableEntry]]
) -> Iterator[Finding]:
    """An entry that takes nothing, because those above it take all it could."""
    if entry.name is not None and entry.name in names:
        message = f"`{dotted(where)}`: {entry.shown('name')} is listed before, at tables[{names[entry.name]}]"
        yield Finding(where, message, "keep one of them")
        return
    for before, pattern in patterns:
        if entry.name is not None and pattern.covers(entry.name):
            name, taken_by = entry.shown("name"), f"`{pattern.shown('match')}` at tables[{before}]"
            message = f"`{dotted(where)}`: {name} is never reached, {taken_by} takes it"
            yield Finding(where, message, "move the exact name above the pattern")
            return
        if entry.match == pattern.match and not pattern.exclude:
            message = f"`{dotted(where)}`: `{entry.shown('match')}` is listed before, at tables[{before}]"
            yield Finding(where, message, "keep one of them")
            return


def _connection_findings(config: Config) -> Iterator[Finding]:
    """A slip in `conn_id` would be a property that nobody reads, and two ids may be one to the environment."""
    ids: dict[str, KeyPath] = {config.spark.conn_id: ("spark", "conn_id")}
    for side, catalog in _sides(config):
        for key in catalog.properties:
            if _ALMOST_CONN_ID.fullmatch(key):
                message = f"unknown key `{key}` in `{side}.catalog`"
                yield Finding((side, "catalog", key), message, "did you mean `conn_id`?")
        path = (side, "catalog", "conn_id")
        for other, where in ids.items():
            if catalog.conn_id is not None and catalog.conn_id != other and catalog.conn_id.upper() == other.upper():
                message = f"`{dotted(path)}` differs from `{dotted(where)}` in nothing but upper and lower case"
                hint = "Airflow's variable AIRFLOW_CONN_<ID> cannot tell them apart: rename one of the connections"
                yield Finding(path, message, hint, about=(where,))
        if catalog.conn_id is not None:
            ids.setdefault(catalog.conn_id, path)


def _event_findings(config: Config) -> Iterator[Finding]:
    """Whoever reads a queue must say which, and its bucket must be one that sends to such queues."""
    wanted = {"pubsub": ("gs://", "a bucket of GCS"), "sqs": ("s3", "a bucket of S3")}
    places: list[tuple[KeyPath, Knobs]] = [(("defaults",), config.defaults)]
    places += [(("tables", index), entry.overrides) for index, entry in enumerate(config.tables)]
    for where, knobs in places:
        kind = knobs.follow_trigger
        if "follow_trigger" not in knobs.model_fields_set or kind not in wanted:
            continue
        path: KeyPath = (*where, "follow_trigger")
        if getattr(config.events, kind) is None:
            message = f"`{dotted(path)}: {kind}` needs `events.{kind}`"
            yield Finding(path, message, "say there which queue it reads, or choose bucket", about=(("events", kind),))
        scheme, bucket = wanted[kind]
        if not config.mirror.location.startswith(scheme):
            message = f"`{dotted(path)}: {kind}` gets no notifications of `mirror.location`, which is not {bucket}"
            yield Finding(path, message, "choose bucket", about=(("mirror", "location"),))


def _sides(config: Config) -> list[tuple[str, CatalogConfig]]:
    source: list[tuple[str, CatalogConfig]] = [] if config.source is None else [("source", config.source.catalog)]
    return [*source, ("mirror", config.mirror.catalog)]


def _catalog_findings(config: Config) -> Iterator[Finding]:
    if config.source is not None:
        theirs, ours = _identity(config.source.catalog), _identity(config.mirror.catalog)
        if theirs is not None and theirs == ours:
            message = "`mirror.catalog` is the source's catalog: the mirror would be committed over the source"
            about: tuple[KeyPath, ...] = (("source", "catalog", "uri"), ("mirror", "catalog", "uri"))
            yield Finding(("mirror", "catalog"), message, "give the mirror a catalog of its own", about=about)
    for side, catalog in _sides(config):
        if catalog.type in _NEEDS_URI and not catalog.uri and catalog.says("uri"):
            message = f"`{side}.catalog.uri` is required for type {catalog.type}"
            yield Finding((side, "catalog"), message, about=((side, "catalog", "uri"),))
        if catalog.type == "blms":
            yield from _blms_findings(side, catalog)


def _blms_findings(side: str, catalog: CatalogConfig) -> Iterator[Finding]:
    """What Google's catalog cannot be asked without."""
    for keys, why in _BLMS_NEEDS:
        found = {key.lower() for key, value in catalog.properties.items() if value}
        if catalog.says(*keys) and not found & {key.lower() for key in keys}:
            message = f"`{side}.catalog.{keys[0]}` is required for type blms: {why}"
            yield Finding((side, "catalog"), message, about=tuple((side, "catalog", key) for key in keys))


def _identity(catalog: CatalogConfig) -> tuple[str | None, ...] | None:
    """Two catalogs of equal identity hold the same tables; None: a connection has a say in it."""
    get = catalog.properties.get
    if not catalog.says(*_IDENTITY.get(catalog.type, ("uri",))):
        return None
    if catalog.type == "sql":  # one database holds several catalogs, told apart by name
        return "sql", *_database(catalog.uri or ""), catalog.name
    if catalog.type == "glue":
        return "glue", get("glue.region") or get("client.region"), get("glue.id"), get("glue.endpoint")
    if catalog.type in ("rest", "blms"):
        return "rest", (catalog.uri or "").rstrip("/"), catalog.warehouse
    return catalog.type, catalog.uri


def _database(uri: str) -> tuple[str | None, ...]:
    """Which database an address means, whoever logs in and by whichever driver."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return (uri,)
    backend = parts.scheme.partition("+")[0]
    told = {name: value for name, value in parse_qsl(parts.query) if name in ("host", "port", "dbname", "options")}
    return backend, parts.hostname, str(port or _PORTS.get(backend)), parts.path, *map(str, sorted(told.items()))


_PORTS = {"postgresql": 5432}
_IDENTITY = {
    "glue": ("glue.region", "client.region", "glue.id", "glue.endpoint"),
    "rest": ("uri", "warehouse"),
    "blms": ("uri", "warehouse"),
}


def _overlap_findings(config: Config, source: SourceConfig) -> Iterator[Finding]:
    mirror = config.mirror.location
    places: list[tuple[KeyPath, str]] = [(("source", "roots", i, "from"), r.from_) for i, r in enumerate(source.roots)]
    if source.catalog.warehouse and "://" in source.catalog.warehouse:
        places.append((("source", "catalog", "warehouse"), source.catalog.warehouse))
    catalogs = (source.catalog, config.mirror.catalog)
    other_store = len({catalog.properties.get("s3.endpoint") for catalog in catalogs}) > 1
    is_told = all(catalog.says("s3.endpoint") for catalog in catalogs)
    for path, place in places:
        if mirror.startswith("s3") and (other_store or not is_told):
            continue
        if is_within(mirror, place) or is_within(place, mirror):
            relation = "lies inside" if is_within(mirror, place) else "contains"
            message = f"`mirror.location` {relation} `{dotted(path)}`: the mirror would write into its own source"
            yield Finding(("mirror", "location"), message, "choose a location apart from the source", about=(path,))


def _root_findings(source: SourceConfig) -> Iterator[Finding]:
    for index, root in enumerate(source.roots):
        for before, other in enumerate(source.roots[:index]):
            for key, one, two in (("name", root.name, other.name), ("from", root.from_, other.from_)):
                if one == two:
                    path: KeyPath = ("source", "roots", index, key)
                    yield Finding(path, f"`{dotted(path)}` is the same as source.roots[{before}].{key}", "keep one")

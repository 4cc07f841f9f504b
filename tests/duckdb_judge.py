"""DuckDB as a judge, in a process of its own: some files make it abort instead of raising.

It reads the metadata.json files of both sides. What it cannot read is listed in `Limit`: the judge tries nevertheless,
and takes a refusal only if it is of a listed kind that the test names, and of the same kind on both sides.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from enum import Enum
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tests.avro_bytes import records

P = ParamSpec("P")
T = TypeVar("T")
_CONNECTION: list[Any] = []  # the child's


@dataclass(frozen=True, slots=True)
class Time:
    """What was main then."""

    ms: int

    def __str__(self) -> str:
        return f"the time {self.ms}"


At = int | Time | None  # a snapshot, a time, or the head


class Limit(Enum):
    """What DuckDB does not read, by its own words. docs/fidelity.md lists them, tests/e2e/test_judge.py shows them."""

    V1_SNAPSHOTS = "required field 'sequence_number' is NULL"  # in a table that is v2 or v3 by now
    V1_MANIFESTS = "sequence_number' is only allowed to be NULL for ADDED entries"  # in a snapshot of v2 or v3
    DATA_FORMATS = "not supported, only supports 'parquet'"
    DELETE_FORMATS = "not supported for deletes, only supports 'parquet'"
    TYPES = "Unrecognized primitive type"  # timestamptz_ns, unknown
    CODECS = "File header contains an unknown codec"  # zstandard and bzip2 in a list; in a manifest it dies of it


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of reading both sides at one place."""

    source_refusal: str | None
    mirror_refusal: str | None
    rows: int = 0  # of the mirror
    lost: int = 0  # rows only in the source
    extra: int = 0  # rows only in the mirror

    @property
    def limit(self) -> Limit | None:
        """The known reason for which neither side was read."""
        ours, theirs = (_limit(said) for said in (self.source_refusal, self.mirror_refusal))
        return ours if ours is theirs else None


def _limit(refusal: str | None) -> Limit | None:
    return next((one for one in Limit if refusal is not None and one.value in refusal), None)


class DuckDbJudge:
    """Asks one child process, and starts another if that dies over a question."""

    def __init__(self) -> None:
        self.read = 0  # places that were compared
        self.unread: Counter[Limit] = Counter()  # places that were not, and why
        self.unjudged = 0  # of those: heads of tables made by hand that no other engine read either
        self._stores: dict[str, str] = {}  # what makes each known
        self._start()

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
        for secret in self._stores.values():
            self._ask(_execute, secret)

    def _ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._pool.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        self._pool.shutdown()

    def use_s3(self, bucket: str, endpoint: str, region: str, key: str, secret: str) -> None:
        """Let it read `s3://<bucket>/…` from this store."""
        host = endpoint.removeprefix("http://")
        options = f"KEY_ID '{key}', SECRET '{secret}', REGION '{region}', ENDPOINT '{host}'"
        options += f", URL_STYLE 'path', USE_SSL false, SCOPE 's3://{bucket}'"
        self._use(bucket, f"TYPE s3, PROVIDER config, {options}")

    def use_gcs(self, bucket: str, endpoint: str) -> None:
        """Let it read `gs://<bucket>/…` from this emulator, which checks no signature."""
        options = f"KEY_ID 'any', SECRET 'any', ENDPOINT '{endpoint.removeprefix('http://')}'"
        options += f", URL_STYLE 'path', USE_SSL false, SCOPE 'gs://{bucket}'"
        self._use(f"gcs_{bucket}", f"TYPE gcs, PROVIDER config, {options}")

    def _use(self, name: str, options: str) -> None:
        self._stores[name] = f'CREATE OR REPLACE SECRET "{name}" ({options})'
        self._ask(_execute, self._stores[name])

    def differences(
        self,
        source_uri: str | None,
        wanted: Mapping[str, Mapping[At, int]],
        limits: Collection[Limit] = (),
    ) -> list[tuple[str, str]]:
        """By metadata.json files, each mirror with what is wrong in it: at every place the source's rows, and so many.

        A place that neither side can be read at is no difference if the reason is one of `limits`; it is counted.
        Where codecs are one of them, each manifest is read as a mere Avro file first: over one in a snapshot DuckDB
        would die.
        """
        found = []
        tries = Limit.CODECS in limits
        for (mirror, at), answer in self._compare(str(source_uri), wanted, tries_manifests=tries).items():
            where = f"DuckDB at {at or 'the head'}"
            want, got = (wanted[mirror][at], 0, 0), (answer.rows, answer.lost, answer.extra)
            if answer.limit is not None and answer.limit in limits:
                self.unread[answer.limit] += 1
            elif answer.source_refusal or answer.mirror_refusal:
                sides = f"source: {answer.source_refusal}, mirror: {answer.mirror_refusal}"
                found.append((mirror, f"{where} does not read alike, or not for a reason that the test names: {sides}"))
            elif got != want:
                found.append((mirror, f"{where} (rows, only in source, in mirror): want {want}, got {got}"))
            else:
                self.read += 1
        return found

    def _compare(
        self, source_uri: str, wanted: Mapping[str, Mapping[At, int]], *, tries_manifests: bool
    ) -> dict[tuple[str, At], Answer]:
        places = {mirror: tuple(counts) for mirror, counts in wanted.items()}
        try:
            return self._ask(_compare, source_uri, places, tries_manifests=tries_manifests)
        except BrokenProcessPool:
            self._start()
            died = Answer(None, "DuckDB died over one of the reads")
            return {(mirror, at): died for mirror, counts in places.items() for at in counts}

    def told(self) -> str:
        """What it did, in a line; what it did not read is never passed over in silence."""
        unread = [f"{count} not read on either side ({limit.name})" for limit, count in self.unread.items()]
        alone = [f"{self.unjudged} heads read by the tests' own reader alone"] if self.unjudged else []
        return ", ".join([f"DuckDB: {self.read} heads, refs and snapshots compared", *unread, *alone])

    def holding(self, paths: list[str], text: str) -> list[str]:
        """Those Avro and Parquet files in which a value holds the text, once decoded."""
        return self._ask(_holding, paths, text)


# ------------------------------------------------------------------------------------------------------- in the child


def _execute(statement: str) -> None:
    _connection().execute(statement)


def _compare(
    source_uri: str, wanted: Mapping[str, Sequence[At]], *, tries_manifests: bool
) -> dict[tuple[str, At], Answer]:
    """Each side is read once, and compared in memory."""
    found = {}
    for at in dict.fromkeys(at for places in wanted.values() for at in places):
        of_source = _refusal("ours", source_uri, at, tries_manifests=tries_manifests)
        for mirror_uri in (mirror for mirror, places in wanted.items() if at in places):
            of_mirror = _refusal("theirs", mirror_uri, at, tries_manifests=tries_manifests)
            found[mirror_uri, at] = Answer(of_source, of_mirror)
            if not of_source and not of_mirror:
                found[mirror_uri, at] = _counted()
    return found


def _refusal(name: str, uri: str, at: At, *, tries_manifests: bool) -> str | None:
    """Read into a table in memory; what DuckDB says if it cannot."""
    import duckdb

    place = "" if at is None else f", snapshot_from_id => {at}::UBIGINT"
    if isinstance(at, Time):
        place = f", snapshot_from_timestamp => make_timestamp({1000 * at.ms})"
    try:
        if tries_manifests:
            _try_manifests(uri, at)
        _execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM iceberg_scan('{uri}'{place})")
    except duckdb.Error as err:
        return f"{type(err).__name__}: {err}"
    return None


def _try_manifests(uri: str, at: At) -> None:
    """Open the list and the manifests of a snapshot, by DuckDB alone; raises what it says of one that it cannot."""
    metadata = _metadata(uri)
    number = metadata.get("current-snapshot-id") if at is None else at
    if isinstance(at, Time):
        number = [one["snapshot-id"] for one in metadata["snapshot-log"] if one["timestamp-ms"] <= at.ms][-1]
    for snapshot in metadata["snapshots"]:
        if snapshot["snapshot-id"] == number:
            listed = _connection().execute("SELECT manifest_path FROM read_avro(?)", [snapshot["manifest-list"]])
            for (path,) in listed.fetchall():
                _connection().execute("SELECT count(*) FROM read_avro(?)", [path]).fetchall()


def _metadata(uri: str) -> dict[str, Any]:
    (data,) = _connection().execute("SELECT content FROM read_blob(?)", [uri]).fetchone()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found


def _counted() -> Answer:
    import duckdb

    tables = ("theirs", "(FROM ours EXCEPT ALL FROM theirs)", "(FROM theirs EXCEPT ALL FROM ours)")
    try:
        rows, lost, extra = (_connection().execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables)
    except duckdb.Error as err:  # columns that cannot be compared
        return Answer(None, f"{type(err).__name__}: {err}")
    return Answer(None, None, rows, lost, extra)


def _holding(paths: list[str], text: str) -> list[str]:
    return [path for path in paths if text in repr(_values(path))]


def _values(path: str) -> list[Any]:
    import duckdb

    reader = {".avro": "read_avro", ".parquet": "read_parquet"}[Path(path).suffix]
    try:
        found: list[Any] = _connection().execute(f"SELECT * FROM {reader}(?)", [path]).fetchall()
    except duckdb.Error as err:
        if Limit.CODECS.value not in str(err):
            raise
        return records(Path(path).read_bytes())
    return found


def _connection() -> Any:
    import duckdb

    if not _CONNECTION:
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_file_cache = false")  # it would take a file for what it was before
        for name in ("avro", "httpfs", "iceberg"):
            spec = importlib.util.find_spec(f"duckdb_extension_{name}")
            assert spec is not None
            assert spec.submodule_search_locations
            folder = Path(spec.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"LOAD '{folder / f'{name}.duckdb_extension'}'")
        _CONNECTION.append(connection)
    return _CONNECTION[0]

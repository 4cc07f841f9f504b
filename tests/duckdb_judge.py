"""DuckDB as a judge, in a process of its own: some files make it abort instead of raising."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

_CONNECTION: list[Any] = []  # the child's


class DuckDbJudge:
    """Asks one child process; `BrokenProcessPool` if that dies over a question."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))

    def close(self) -> None:
        self._pool.shutdown()

    def use_s3(self, bucket: str, endpoint: str, region: str, key: str, secret: str) -> None:
        """Let it read `s3://<bucket>/…` from this store."""
        self._pool.submit(_use_s3, bucket, endpoint, region, key, secret).result()

    def use_gcs(self, bucket: str, endpoint: str) -> None:
        """Let it read `gs://<bucket>/…` from this emulator, which checks no signature."""
        self._pool.submit(_use_gcs, bucket, endpoint).result()

    def compare(self, source_uri: str | None, mirror_uri: str | None) -> tuple[int, int, int]:
        """By two metadata.json files: rows of the mirror, rows only in the source, rows only in the mirror."""
        return self._pool.submit(_compare, str(source_uri), str(mirror_uri)).result()

    def holding(self, paths: list[str], text: str) -> list[str]:
        """Those Avro and Parquet files in which a value holds the text, once decoded."""
        return self._pool.submit(_holding, paths, text).result()


def _use_s3(bucket: str, endpoint: str, region: str, key: str, secret: str) -> None:
    host = endpoint.removeprefix("http://")
    options = f"KEY_ID '{key}', SECRET '{secret}', REGION '{region}', ENDPOINT '{host}'"
    options += f", URL_STYLE 'path', USE_SSL false, SCOPE 's3://{bucket}'"
    _connection().execute(f'CREATE OR REPLACE SECRET "{bucket}" (TYPE s3, PROVIDER config, {options})')


def _use_gcs(bucket: str, endpoint: str) -> None:
    options = f"KEY_ID 'any', SECRET 'any', ENDPOINT '{endpoint.removeprefix('http://')}'"
    options += f", URL_STYLE 'path', USE_SSL false, SCOPE 'gs://{bucket}'"
    _connection().execute(f'CREATE OR REPLACE SECRET "gcs_{bucket}" (TYPE gcs, PROVIDER config, {options})')


def _compare(source_uri: str, mirror_uri: str) -> tuple[int, int, int]:
    ours, theirs = (f"(SELECT * FROM iceberg_scan('{uri}'))" for uri in (source_uri, mirror_uri))
    rows = f"SELECT count(*) FROM {theirs}"
    lost = f"SELECT count(*) FROM ({ours} EXCEPT ALL {theirs})"
    extra = f"SELECT count(*) FROM ({theirs} EXCEPT ALL {ours})"
    counts = [int(_connection().execute(query).fetchall()[0][0]) for query in (rows, lost, extra)]
    return counts[0], counts[1], counts[2]


def _holding(paths: list[str], text: str) -> list[str]:
    readers = {".avro": "read_avro", ".parquet": "read_parquet"}
    queries = {path: f"SELECT * FROM {readers[Path(path).suffix]}(?)" for path in paths}
    return [path for path, query in queries.items() if text in repr(_connection().execute(query, [path]).fetchall())]


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

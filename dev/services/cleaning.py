"""Empties what runs, for the next test: buckets, catalogs, the state's database, moto, the emulator of GCS.

It goes the way of a client where there is one, and by SQL where a client would have to ask for each table. Topics of
Pub/Sub and jobs of Spark are not touched: tests use names of their own.
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from dev.services import gcsemu, hms, moto
from dev.services.endpoints import STATE_DATABASE, Services
from dev.services.layout import DATABASES
from dev.services.postgres import Postgres
from dev.services.seaweed import S3Store
from dev.services.trouble import ServicesError
from dev.services.waiting import status

SCHEMA_IS_NEW = ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
HMS_IS_NEW = (
    'TRUNCATE "TBLS", "PARTITIONS", "NOTIFICATION_LOG", hive_locks, txns, txn_components CASCADE',
    """DELETE FROM "DATABASE_PARAMS" WHERE "DB_ID" IN (SELECT "DB_ID" FROM "DBS" WHERE "NAME" <> 'default')""",
    """DELETE FROM "DBS" WHERE "NAME" <> 'default'""",
)


def clean(services: Services) -> None:
    """Returns when all is as after the first `up`."""
    steps = [
        lambda: empty_bucket(services.source_store),
        lambda: empty_bucket(services.mirror_store),
        lambda: _empty_databases(services.postgres, has_hms=services.hms_uri is not None),
        lambda: _reset_moto(services.aws_mock_endpoint),
    ]
    if services.gcs_endpoint is not None:
        endpoint = services.gcs_endpoint
        steps.append(lambda: empty_gcs(endpoint))
    with ThreadPoolExecutor(len(steps)) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()


def empty_bucket(store: S3Store) -> None:
    """All objects, all unfinished uploads; the bucket stays. Other buckets of the store are removed."""
    client = store.client()
    try:
        for bucket in [one["Name"] for one in client.list_buckets()["Buckets"]]:
            _empty(client, bucket)
            if bucket != store.bucket:
                client.delete_bucket(Bucket=bucket)
    finally:
        client.close()


def remove_below(store: S3Store, prefix: str) -> None:
    """All objects whose keys begin so; other keys stay."""
    client = store.client()
    try:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket, Prefix=prefix):
            if keys := [{"Key": one["Key"]} for one in page.get("Contents", [])]:
                _delete(client, store.bucket, keys)
    finally:
        client.close()


def _empty(client: Any, bucket: str) -> None:
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        keys = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
        if keys:
            _delete(client, bucket, keys)


def _delete(client: Any, bucket: str, keys: list[dict[str, str]]) -> None:
    answer = client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
    if errors := answer.get("Errors"):
        raise ServicesError(f"empty bucket {bucket}: {len(errors)} objects stay, the first is {errors[0]}")


def _empty_databases(postgres: Postgres, *, has_hms: bool) -> None:
    # Dropping tables that a catalog server made at its start would break it: these are emptied instead.
    for database in DATABASES.values():
        postgres.execute(database, "TRUNCATE iceberg_tables, iceberg_namespace_properties")
    postgres.execute(STATE_DATABASE, *SCHEMA_IS_NEW)
    if has_hms:
        postgres.execute(hms.DATABASE, *HMS_IS_NEW)


def _reset_moto(endpoint: str) -> None:
    if not moto.reset(endpoint):
        raise ServicesError(f"reset moto at {endpoint}: it does not answer 200; `make up` starts it anew")


def empty_gcs(endpoint: str) -> None:
    """All objects of all buckets; our bucket stays, others are removed."""
    for bucket in _items(f"{endpoint}/storage/v1/b?project={gcsemu.PROJECT_ID}"):
        name = quote(str(bucket["name"]), safe="")
        while found := _items(f"{endpoint}/storage/v1/b/{name}/o?maxResults=1000"):
            for one in found:
                _remove(f"{endpoint}/storage/v1/b/{name}/o/{quote(str(one['name']), safe='')}")
        if bucket["name"] != gcsemu.BUCKET:
            _remove(f"{endpoint}/storage/v1/b/{name}")


def _items(url: str) -> list[dict[str, Any]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read()).get("items", [])
    return found


def _remove(url: str) -> None:
    if (got := status(url, method="DELETE")) not in (200, 204, 404):
        raise ServicesError(f"remove {url}: want 204, got {got}")

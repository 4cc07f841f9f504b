"""Source and mirror on one S3 server under one account: it copies by itself, and we send no byte of a data file.

SeaweedFS does not sum what it copies: then the size of a copy is all that is compared. Amazon's S3 would tell the sum.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from dev.services import Services
from lakemirror.app import App
from lakemirror.model.results import MirrorResult
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from tests.faults.proxy import FaultProxy
from tests.faults.rules import CutRequest, Reset, Rule

pytestmark = pytest.mark.integration
NAME = "shop.orders"
TABLE = TableRef.parse(NAME)
APPENDS = 3
DATA = r"/data/.*\.parquet"


def _catalog(services: Services, folder: Path, bucket: str, name: str, **changes: str) -> dict[str, str]:
    """In SQLite beside the test, its files on the mirror's store, in a folder of the bucket."""
    place = {"type": "sql", "uri": f"sqlite:///{folder}/{name}.db", "warehouse": f"s3://{bucket}/{name}"}
    return {**place, **services.mirror_store.properties, **changes}


def _mirror(services: Services, folder: Path, source_bucket: str, endpoint: str) -> MirrorResult:
    """One run with both sides at this endpoint."""
    login = {"s3.endpoint": endpoint, "s3.secret-access-key": "${MIRROR_S3_SECRET_ACCESS_KEY}"}
    places = ((source_bucket, "onprem"), ("mirror", "cloud"))
    source, mirror = (_catalog(services, folder, *place, **login) for place in places)
    document: dict[str, Any] = {
        "source": {"catalog": {"name": "onprem", **source}},
        "mirror": {"catalog": {"name": "cloud", **mirror}, "location": "s3://mirror/cloud"},
        "tables": [{"name": NAME}],
    }
    config = folder / "lake.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    with App.load(str(config)) as app:
        result = app.mirror(TABLE, engine=LocalEngine(2))
        app.follow(TABLE)
    return result


@pytest.mark.parametrize("bucket", ["mirror", "another"])
def test_the_store_copies_by_itself(
    clean_services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    """Within the mirror's bucket, and from another one."""
    services = clean_services
    monkeypatch.setenv("MIRROR_S3_SECRET_ACCESS_KEY", services.mirror_store.secret_access_key)
    if bucket != "mirror":
        services.mirror_store.client().create_bucket(Bucket=bucket)
    onprem = load_catalog("onprem", **_catalog(services, tmp_path, bucket, "onprem"))
    onprem.create_namespace("shop")
    table = onprem.create_table(NAME, pa.schema([("id", pa.int64()), ("text", pa.string())]))
    for number in range(APPENDS):
        table.append(pa.table({"id": [number], "text": [f"row {number}"]}))
    fetched = Rule(Reset(), method="GET", target=f"/onprem/.*{DATA}", times=None)
    sent = Rule(CutRequest(1), method="PUT", target=DATA, times=None)
    with FaultProxy(services.mirror_store.endpoint) as proxy:
        proxy.rules += [fetched, sent]
        result = _mirror(services, tmp_path, bucket, proxy.url)
        summed = [target for method, target in proxy.requests if method == "GET" and re.search(DATA, target)]

    assert result.copied_files == APPENDS
    assert result.requests["mirror"]["copy"] > APPENDS, "those of the probe are counted, too"
    assert fetched.met == 0, "nobody asks the source for bytes"
    assert summed == [], "nor the mirror: SeaweedFS tells no sum of a copy, so its size is what there is to compare"
    assert sent.met == APPENDS, "and what is sent has no body, or it would have been cut"
    ours, theirs = (
        load_catalog(name, **_catalog(services, tmp_path, place, name)).load_table(NAME).scan().to_arrow().sort_by("id")
        for place, name in ((bucket, "onprem"), ("mirror", "cloud"))
    )
    assert theirs == ours
    again = onprem.load_table(NAME)
    again.append(pa.table({"id": [APPENDS], "text": ["one more"]}))
    later = _mirror(services, tmp_path, bucket, services.mirror_store.endpoint)
    assert later.copied_files == 1
    assert later.requests["mirror"]["copy"] > 1, "by another address it is probed again"

"""What real servers are found to do, that they are asked once, and that a run refuses one that cannot create only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
import yaml

from dev.services import Services, gcsemu
from dev.services.cleaning import clean
from lakemirror.app import App
from lakemirror.errors import PermanentError
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.abilities import Abilities, abilities_from
from lakemirror.storage.probe import LOOK_THEN_WRITE
from tests.contract.s3_double import S3Double, s3_double
from tests.faults.scene import TABLE, FaultyLake, faulty_lake

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
SEAWEEDFS = Abilities(
    conditional_create=True,
    conditional_replace=True,
    conditional_copy=True,
    conditional_delete=True,
    conditional_finish=True,
    atomic_finish=False,
    checks_crc32c=True,
    checks_part_crc32c=True,
    checks_md5=True,
    tags_parts_md5=True,
    keeps_crc32c=True,
    tags=True,
    copies_across_buckets=False,  # nothing to try it with: the source is another store
    spoiled="\\",
)
GCSEMU = Abilities(
    conditional_create=True,
    conditional_replace=True,
    conditional_copy=True,
    conditional_delete=True,
    conditional_finish=True,
    atomic_finish=True,
    checks_crc32c=True,
    checks_part_crc32c=True,
    checks_md5=False,  # not used there
    tags_parts_md5=False,
    keeps_crc32c=True,
    tags=False,
    copies_across_buckets=False,
    spoiled="",
)


@pytest.fixture(params=["seaweedfs", "gcsemu"])
def lake(
    request: pytest.FixtureRequest, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyLake]:
    is_on_gcs = request.param == "gcsemu"
    here = request.getfixturevalue("gcs_services") if is_on_gcs else services
    clean(here)
    for name, value in here.environment().items():
        monkeypatch.setenv(name, value)
    with faulty_lake(here, tmp_path, is_on_gcs=is_on_gcs) as lake:
        lake.append(10)
        yield lake


def recorded(lake: FaultyLake) -> Abilities | None:
    """What the record in the bucket says, read without our own code."""
    if lake.is_on_gcs:
        url = f"{lake.services.gcs_endpoint}/storage/v1/b/{gcsemu.BUCKET}/o"
        items = requests.get(url, params={"prefix": "warehouse/_probe/"}, timeout=30).json()["items"]
        keys = [item["name"] for item in items]
        texts = [requests.get(f"{lake.services.gcs_endpoint}/{gcsemu.BUCKET}/{key}", timeout=30).text for key in keys]
    else:
        store = lake.services.mirror_store
        client = store.client()
        try:
            listed = client.list_objects_v2(Bucket=store.bucket, Prefix="warehouse/_probe/")["Contents"]
            bodies = [client.get_object(Bucket=store.bucket, Key=one["Key"])["Body"].read() for one in listed]
        finally:
            client.close()
        texts = [body.decode() for body in bodies]
    assert len(texts) == 1, "the record, and nothing else"
    return abilities_from(json.loads(texts[0])["abilities"])


def probing(lake: FaultyLake) -> list[str]:
    """The methods of all requests about the probe since the last time."""
    requests = lake.proxies["mirror store"].requests
    methods = [method for method, target in requests if "_probe" in target or "%5Fprobe" in target]
    requests.clear()
    return methods


def test_a_server_is_asked_once(lake: FaultyLake) -> None:
    assert lake.run() == "ok"
    assert len(probing(lake)) > 50
    found = recorded(lake)
    assert found is not None
    if not lake.is_on_gcs:  # of sixteen that finish at once several win in most rounds, and the probe may be lucky
        found = replace(found, atomic_finish=False)
    assert found == (GCSEMU if lake.is_on_gcs else SEAWEEDFS)
    lake.append(10)
    assert lake.run() == "ok"
    assert probing(lake) == ["GET"]


@pytest.fixture
def careless() -> Iterator[S3Double]:
    """A server that answers 200 to conditions that it ignores."""
    with s3_double() as double:
        double.ignores_conditions = True
        yield double


@pytest.mark.parametrize("lake", ["seaweedfs"], indirect=True)
def test_a_run_refuses_a_store_that_cannot_create_only(lake: FaultyLake, careless: S3Double) -> None:
    config = lake.write("careless.yaml", mirror_store=careless.endpoint)
    with App.load(str(config)) as app, pytest.raises(PermanentError, match="two writers could both win") as refused:
        app.mirror(TABLE, engine=LocalEngine(2))
    assert refused.value.hint.endswith(f"mirror.weaker_create: {LOOK_THEN_WRITE}")
    assert [key for key in careless.objects if "/_probe/" not in key] == []

    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document["mirror"]["weaker_create"] = LOOK_THEN_WRITE
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    with App.load(str(config)) as app:
        assert app.mirror(TABLE, engine=LocalEngine(2)).version == 1
    assert "warehouse/shop/orders/_ready/v1.ready.json" in careless.objects

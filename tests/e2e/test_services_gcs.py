"""From S3 to GCS: three tables on SeaweedFS, their mirrors on the emulator of GCS; judged there by both engines."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dev.services import Services
from dev.services.cleaning import clean
from lakemirror.app import App
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from tests.e2e.services_rounds import TABLES, Rounds
from tests.judge import Judge
from tests.judged_stores import GcsStore

ROUNDS = 3
LOCATION = "gs://mirror/warehouse"


@pytest.fixture
def config(gcs_services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clean(gcs_services)
    variables = {**gcs_services.environment(), "GCE_METADATA_HOST": "127.0.0.1:1", "GCE_METADATA_IP": "127.0.0.1:1"}
    for name, value in variables.items():  # nobody asks a cloud who we are
        monkeypatch.setenv(name, value)
    mirror = {key: value for key, value in gcs_services.configured("mirror").items() if not key.startswith("s3.")}
    document = {
        "source": {"catalog": {"name": "onprem", **gcs_services.configured("source")}},
        "mirror": {
            "catalog": {"name": "cloud", **mirror, "gcs.service.host": "${GCS_ENDPOINT}"},
            "location": LOCATION,
        },
        "tables": [{"name": name} for name in TABLES],
    }
    path = tmp_path / "lake.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.mark.timeout(180)
def test_from_s3_to_gcs(gcs_services: Services, config: Path, judge: Judge) -> None:
    """The catalog keeps the mirrors under `gs://`; Spark reads them by Iceberg's GCSFileIO, DuckDB by the XML API."""
    assert gcs_services.gcs_endpoint is not None
    judge.open_rest("rest_source", gcs_services.source_catalog, gcs_services.source_store)
    judge.open_rest("gcs_mirror", gcs_services.mirror_catalog, GcsStore(gcs_services.gcs_endpoint))
    rounds = Rounds(judge, gcs_services.source_catalog, gcs_services.mirror_catalog, "gcs_mirror")
    rounds.create()
    for number in range(1, ROUNDS + 1):
        rounds.write(number)
        _sync(config)
        rounds.check(*(TABLES if number == ROUNDS else ()))
    places = [rounds.theirs(name).metadata_uri for name in TABLES]
    assert [str(place).rpartition("/metadata/")[0] for place in places] == [
        f"{LOCATION}/{TableRef.parse(name).folder}" for name in TABLES
    ]


def _sync(config: Path) -> None:
    with App.load(str(config)) as app:
        for name in TABLES:
            app.mirror(TableRef.parse(name), engine=LocalEngine(2))
            app.follow(TableRef.parse(name))

"""What each kind of mirror catalog can do, as it is opened by its type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.catalogs.open import open_mirror
from lakemirror.config.sections import CatalogConfig
from tests.glue_double import glue_double
from tests.google_account import TokenServer, key_file
from tests.rest_double import rest_double

# How large a metadata.json may be. The history budget keeps it below: `Workbench` takes it from here.
MAX_METADATA_BYTES = {"sql": None, "rest": None, "blms": 1_000_000, "glue": 20_000_000}


@pytest.fixture
def properties(tmp_path: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Enough to open one of each kind."""
    with rest_double() as rest, glue_double() as glue:
        rest.signer, rest.google = lambda *request: True, TokenServer(f"{rest.uri}/token")
        key = json.dumps(key_file(f"{rest.uri}/token"))
        login = {"warehouse": "gs://bucket", "gcs.project-id": "shop-project", "gcp.auth.credentials-json": key}
        yield {
            "sql": {"uri": f"sqlite:///{tmp_path}/mirror.db"},
            "rest": {"uri": rest.uri},
            "blms": {"uri": rest.uri, **login},
            "glue": glue.properties,
        }


def abilities(kind: str, properties: dict[str, str]) -> CatalogAbilities:
    return open_mirror(CatalogConfig.model_validate({"name": "cloud", "type": kind, **properties})).abilities()


@pytest.mark.parametrize(("kind", "want"), MAX_METADATA_BYTES.items())
def test_how_large_metadata_may_be(properties: dict[str, dict[str, str]], kind: str, want: int | None) -> None:
    can = abilities(kind, properties[kind])
    assert (can.type, can.max_metadata_bytes) == (kind, want)


def test_a_rest_catalog_is_told_its_limit(properties: dict[str, dict[str, str]]) -> None:
    given = {**properties["rest"], "rest.max-metadata-bytes": "5000"}
    assert abilities("rest", given).max_metadata_bytes == 5000

"""A lake on the services profile whose servers are reached through fault proxies; its writer goes straight to them.

Its mirror lies on S3, or on the emulator of GCS.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import requests
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from dev.services import Services, gcsemu
from lakemirror.app import App
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import Engine, LocalEngine
from tests.faults.proxy import FaultProxy

NAME = "shop.orders"
TABLE = TableRef.parse(NAME)
SERVERS = ("source store", "mirror store", "source catalog", "mirror catalog")
PATIENCE_S = 6  # of a request without an answer; the first write of a fresh store takes 3 s
ANSWER_TIMES = 2  # as long as a server may be silent may a whole answer take
PART_BYTES = 5 << 20
SPLIT_BYTES = 8 << 20
PARTS = {"copy_part_bytes": PART_BYTES, "copy_whole_bytes": PART_BYTES, "copy_split_bytes": SPLIT_BYTES}
GCS_LOCATION = f"gs://{gcsemu.BUCKET}/warehouse"
Row = tuple[int, int]  # id, and a sum of the text


@dataclass
class FaultyLake:
    """`append` commits on the source, `run` mirrors and follows, `mirrored` is what a reader of the mirror sees."""

    services: Services
    folder: Path
    proxies: Mapping[str, FaultProxy]
    knobs: Mapping[str, int] = field(default_factory=dict)
    patience_s: int = PATIENCE_S
    is_on_gcs: bool = False
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = _catalog(self.services.source_properties)
        self.mirror = _catalog({**self.services.mirror_properties, **(self._gcs if self.is_on_gcs else {})})
        self.source.create_namespace("shop")
        self.source.create_table(NAME, pa.schema([("id", pa.int64()), ("text", pa.string())]))
        self.config = self.write("lake.yaml")
        self._chance = random.Random(7)

    @property
    def _gcs(self) -> dict[str, str]:
        """The emulator lets everybody in; with a token, pyarrow asks nobody who we are."""
        token = {"gcs.oauth2.token": "none", "gcs.oauth2.token-expires-at": "4102444800000"}
        return {"gcs.service.host": str(self.services.gcs_endpoint), **token}

    def write(
        self, file: str, *, patience_s: int | None = None, knobs: Mapping[str, int] | None = None, **changes: str
    ) -> Path:
        """A configuration that goes through the proxies; `changes` are endpoints by server, as `mirror_store=…`."""
        patience_s = patience_s or self.patience_s
        at = {name.replace(" ", "_"): proxy.url for name, proxy in self.proxies.items()} | changes
        source = {
            **_short("s3", patience_s),
            "uri": at["source_catalog"],
            "s3.endpoint": at["source_store"],
        }
        mirror = {
            **_short("gcs" if self.is_on_gcs else "s3", patience_s),
            "uri": at["mirror_catalog"],
            "oauth2-server-uri": f"{at['mirror_catalog']}/v1/oauth/tokens",
            "gcs.service.host" if self.is_on_gcs else "s3.endpoint": at["mirror_store"],
        }
        cloud = self.services.configured("mirror", mirror)
        if self.is_on_gcs:
            cloud = {key: value for key, value in cloud.items() if not key.startswith("s3.")}
        document: dict[str, Any] = {
            "source": {"catalog": {"name": "onprem", **self.services.configured("source", source)}},
            "mirror": {
                "catalog": {"name": "cloud", **cloud},
                "location": GCS_LOCATION if self.is_on_gcs else self.services.mirror_location,
            },
            "defaults": {**PARTS, **self.knobs, **(knobs or {})},
            "tables": [{"name": NAME}],
        }
        path = self.folder / file
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def append(self, rows: int = 100, row_bytes: int = 800) -> None:
        """One file of about rows × row_bytes: texts that do not shrink, so that it has a middle."""
        ids = [len(self.rows) + number for number in range(rows)]
        texts = [self._chance.randbytes(row_bytes).hex() for _ in ids]
        self.source.load_table(NAME).append(pa.table({"id": ids, "text": texts}))
        self.rows += [(number, crc32(text.encode())) for number, text in zip(ids, texts, strict=True)]

    def run(self, config: Path | None = None, engine: Engine | None = None) -> str:
        """`ok`, or `transient`; any other error is the test's failure."""
        try:
            with App.load(str(config or self.config)) as app:
                app.mirror(TABLE, engine=engine or LocalEngine(2))
                app.follow(TABLE)
        except TransientError as err:
            return f"transient: {err}"
        return "ok"

    def mirrored(self) -> list[Row]:
        """Read by pyiceberg from the mirror's own catalog, with nothing in between."""
        table = self.mirror.load_table(NAME).scan().to_arrow().sort_by("id")
        texts = table["text"].to_pylist()
        return [(number, crc32(text.encode())) for number, text in zip(table["id"].to_pylist(), texts, strict=True)]

    def unfinished_uploads(self) -> int:
        if self.is_on_gcs:
            url = f"{self.services.gcs_endpoint}/{gcsemu.BUCKET}?uploads"
            return requests.get(url, timeout=30).text.count("<UploadId>")
        store = self.services.mirror_store
        client = store.client()
        try:
            return len(client.list_multipart_uploads(Bucket=store.bucket).get("Uploads", []))
        finally:
            client.close()


def _short(family: str, patience_s: int) -> dict[str, str]:
    """Of silence, and of an answer as a whole."""
    return {
        f"{family}.connect-timeout": str(min(2, patience_s)),
        f"{family}.request-timeout": str(patience_s),
        f"{family}.answer-timeout": str(ANSWER_TIMES * patience_s),
        "rest.timeout-s": str(patience_s),
    }


def _catalog(properties: Mapping[str, str]) -> RestCatalog:
    catalog = load_catalog("direct", **properties)
    assert isinstance(catalog, RestCatalog)
    return catalog


@contextmanager
def faulty_lake(
    services: Services,
    folder: Path,
    *,
    knobs: Mapping[str, int] | None = None,
    patience_s: int = PATIENCE_S,
    is_on_gcs: bool = False,
) -> Iterator[FaultyLake]:
    urls = (
        services.source_store.endpoint,
        str(services.gcs_endpoint) if is_on_gcs else services.mirror_store.endpoint,
        services.source_catalog.uri,
        services.mirror_catalog.uri,
    )
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(FaultProxy(url)) for name, url in zip(SERVERS, urls, strict=True)}
        yield FaultyLake(services, folder, proxies, knobs or {}, patience_s, is_on_gcs)

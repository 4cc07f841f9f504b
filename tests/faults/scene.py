"""A lake on the services profile whose servers are reached through fault proxies; its writer goes straight to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from dev.services import Services
from lakemirror.app import App
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from tests.faults.proxy import FaultProxy

NAME = "shop.orders"
TABLE = TableRef.parse(NAME)
SERVERS = ("source store", "mirror store", "source catalog", "mirror catalog")
PATIENCE_S = 6  # of a request without an answer; the first write of a fresh store takes 3 s
Row = tuple[int, int]  # id, and a sum of the text


@dataclass
class FaultyLake:
    """`append` commits on the source, `run` mirrors and follows, `mirrored` is what a reader of the mirror sees."""

    services: Services
    folder: Path
    proxies: Mapping[str, FaultProxy]
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = _catalog(self.services.source_properties)
        self.mirror = _catalog(self.services.mirror_properties)
        self.source.create_namespace("shop")
        self.source.create_table(NAME, pa.schema([("id", pa.int64()), ("text", pa.string())]))
        self.config = self.write("lake.yaml")
        self._chance = random.Random(7)

    def write(self, file: str, **changes: str) -> Path:
        """A configuration that goes through the proxies; `changes` are endpoints by server, as `mirror_store=…`."""
        at = {name.replace(" ", "_"): proxy.url for name, proxy in self.proxies.items()} | changes
        short = {"s3.request-timeout": str(PATIENCE_S), "s3.connect-timeout": "2", "rest.timeout-s": str(PATIENCE_S)}
        source = {
            **short,
            "uri": at["source_catalog"],
            "s3.endpoint": at["source_store"],
        }
        mirror = {
            **short,
            "uri": at["mirror_catalog"],
            "oauth2-server-uri": f"{at['mirror_catalog']}/v1/oauth/tokens",
            "s3.endpoint": at["mirror_store"],
        }
        document: dict[str, Any] = {
            "source": {"catalog": {"name": "onprem", **self.services.configured("source", source)}},
            "mirror": {
                "catalog": {"name": "cloud", **self.services.configured("mirror", mirror)},
                "location": self.services.mirror_location,
            },
            "defaults": {"copy_part_bytes": 5 << 20},
            "tables": [{"name": NAME}],
        }
        path = self.folder / file
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def append(self, rows: int = 100) -> None:
        """Texts that do not shrink, so that a file has a middle."""
        ids = [len(self.rows) + number for number in range(rows)]
        texts = [self._chance.randbytes(800).hex() for _ in ids]
        self.source.load_table(NAME).append(pa.table({"id": ids, "text": texts}))
        self.rows += [(number, crc32(text.encode())) for number, text in zip(ids, texts, strict=True)]

    def run(self, config: Path | None = None) -> str:
        """`ok`, or `transient`; any other error is the test's failure."""
        try:
            with App.load(str(config or self.config)) as app:
                app.mirror(TABLE, engine=LocalEngine(2))
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
        store = self.services.mirror_store
        client = store.client()
        try:
            return len(client.list_multipart_uploads(Bucket=store.bucket).get("Uploads", []))
        finally:
            client.close()


def _catalog(properties: Mapping[str, str]) -> RestCatalog:
    catalog = load_catalog("direct", **properties)
    assert isinstance(catalog, RestCatalog)
    return catalog


@contextmanager
def faulty_lake(services: Services, folder: Path) -> Iterator[FaultyLake]:
    urls = (
        services.source_store.endpoint,
        services.mirror_store.endpoint,
        services.source_catalog.uri,
        services.mirror_catalog.uri,
    )
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(FaultProxy(url)) for name, url in zip(SERVERS, urls, strict=True)}
        yield FaultyLake(services, folder, proxies)

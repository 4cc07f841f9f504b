"""One hostile input: which file of which table, its new bytes, and what is done with it. `make` is a pure function."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Literal

from tests.fuzz import fitting, mutate_avro, mutate_bytes, mutate_json, readers, seeds
from tests.fuzz.memory_lake import ROOT, MemoryLake, Start

Side = Literal["source", "mirror", "follower", "reader"]


@dataclass(frozen=True, slots=True)
class Case:
    """`uri` of a table's lake gets `data`; with `fits`, what others say of the file is made to agree."""

    table: str
    start: Start
    side: Side
    uri: str
    data: bytes
    fits: bool = True

    @property
    def name(self) -> str:
        return f"{self.table}/{self.start}/{self.side}/{self.uri.rsplit('/', 1)[-1]}"

    def lake(self) -> MemoryLake:
        lake = MemoryLake(self.table, self.start)
        store = lake.source if self.side == "source" else lake.mirror
        store.objects[self.uri] = self.data
        if self.fits and self.side == "source":
            fitting.fit_source(store.objects, self.uri)
        elif self.fits:
            fitting.fit_mirror(store.objects, self.uri, ROOT)
        return lake

    def run(self) -> None:
        """Raises what the application raises, or BrokenPromise."""
        if self.side == "reader":
            readers.read(self.uri, self.data)
        elif self.side == "follower":
            self.lake().follow()
        else:
            self.lake().run()


@lru_cache(maxsize=4)
def _places() -> list[tuple[str, Start, Side, str]]:
    """Every file that somebody could make hostile."""
    found: list[tuple[str, Start, Side, str]] = []
    for table, files in seeds.tables().items():
        found += [(table, start, "source", uri) for uri in files for start in ("empty", "mirrored") if _is_read(uri)]
        sides: tuple[tuple[Start, Side], ...] = (
            ("mirrored", "mirror"),
            ("mirrored", "follower"),
            ("planned", "mirror"),
        )
        for start, side in sides:
            objects = MemoryLake(table, start).mirror.objects
            found += [(table, start, side, uri) for uri in objects if _is_read(uri)]
    return found


def _is_read(uri: str) -> bool:
    """Data files are only copied; a few of them are enough."""
    return "/data/" not in uri or "deletes" in uri


def make(seed: int, index: int) -> Case:
    """Most go straight to a reader; every tenth goes through a whole lake."""
    rng = Random(f"{seed}:{index}")
    is_whole = index % 10 == 0
    places = [place for place in _places() if is_whole or place[2] != "follower"]
    kinds = sorted({_kind(uri) for *_, uri in places})
    wanted = rng.choice(kinds)
    table, start, side, uri = rng.choice([place for place in places if _kind(place[3]) == wanted])
    lake = MemoryLake(table, start)
    data = (lake.source if side == "source" else lake.mirror).objects[uri]
    other = rng.choice([*(lake.source.objects.values()), *lake.mirror.objects.values()])
    data = mutate(uri, data, other, rng, lake.location)
    return Case(table, start, side if is_whole else "reader", uri, data, rng.random() < 0.9)


def make_avro(seed: int, index: int) -> Case:
    """A manifest or a list, for its reader."""
    rng = Random(f"avro:{seed}:{index}")
    table = rng.choice([*seeds.tables()])
    files = [(uri, data) for uri, data in seeds.tables()[table].items() if _is_walked(uri)]
    (uri, data), (_, other) = rng.choice(files), rng.choice(files)
    home = uri.rpartition("/metadata/")[0]
    return Case(table, "empty", "reader", uri, mutate(uri, data, other, rng, home))


def _is_walked(uri: str) -> bool:
    return uri.endswith(".avro") and "/metadata/" in uri


def _kind(uri: str) -> str:
    """Files of one kind share one chance, however many they are."""
    name = uri.rsplit("/", 1)[-1]
    if "deletes" in name:
        return f"deletes {name.rpartition('.')[2]}"
    if name.startswith("snap-"):
        return "list"
    for folder in ("_ready", "_plan", "_ledger/index", "_ledger", "_tables"):
        if f"/{folder}/" in uri:
            return f"{folder} {name.rpartition('.')[2]}"
    return name.partition(".")[2] if "metadata.json" in name else name.rpartition(".")[2]


def mutate(uri: str, data: bytes, other: bytes, rng: Random, home: str) -> bytes:
    """By what the file is, or as mere bytes."""
    if rng.random() < 0.2:
        return mutate_bytes.mutate(data, other, rng)
    if uri.endswith(".json"):
        return _json(data, rng, home)
    if data.startswith(b"Obj\x01"):
        return mutate_avro.mutate(data, other, rng, home)
    if data.startswith(b"PFA1"):
        return _puffin(data, other, rng, home)
    if data.startswith(b"PAR1") and b"lakemirror." in data:
        return _our_parquet(data, other, rng, home)
    return mutate_bytes.mutate(data, other, rng)


def _json(data: bytes, rng: Random, home: str) -> bytes:
    is_packed = data[:2] == b"\x1f\x8b"
    text = mutate_json.mutate(json.loads(gzip.decompress(data) if is_packed else data), rng, home)
    if not is_packed:
        return text
    packed = gzip.compress(text, 1, mtime=0)
    return packed if rng.random() < 0.8 else mutate_bytes.mutate(packed, packed, rng)


def _puffin(data: bytes, other: bytes, rng: Random, home: str) -> bytes:
    size = int.from_bytes(data[-12:-8], "little")
    body, payload = data[: -16 - size], data[-12 - size : -12]
    if rng.random() < 0.5:
        payload = mutate_json.mutate(json.loads(payload), rng, home)
    else:  # a vector whose guard fits
        blob = rng.choice(json.loads(payload)["blobs"])
        start, length = blob["offset"], blob["length"]
        guarded = mutate_bytes.mutate(body[start + 4 : start + length - 4], other, rng)[: length - 8].ljust(
            length - 8, b"\0"
        )
        guard = struct.pack(">I", zlib.crc32(guarded))
        body = body[:start] + struct.pack(">I", length - 8) + guarded + guard + body[start + length :]
    return body + b"PFA1" + payload + struct.pack("<i", len(payload)) + bytes(4) + b"PFA1"


def _our_parquet(data: bytes, other: bytes, rng: Random, home: str) -> bytes:
    """Control objects: the document in their metadata, and their rows."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    metadata = dict(table.schema.metadata or {})
    way = rng.random()
    if way < 0.5:
        key = rng.choice([*metadata])
        metadata[key] = mutate_json.mutate(json.loads(metadata[key]), rng, home)
        metadata = {} if way < 0.05 else metadata
        table = table.replace_schema_metadata(metadata)
    elif way < 0.8 and table.num_rows:
        rows: list[dict[str, Any]] = table.to_pylist()
        row = rng.choice(rows)
        name = rng.choice([*row])
        if isinstance(row[name], str):
            row[name] = mutate_json.text_like(row[name], rng, home)
        elif isinstance(row[name], int) and not isinstance(row[name], bool):
            row[name] = rng.choice(mutate_avro.LONGS)
        else:
            row[name] = None
        schema = pa.schema([field.with_nullable(True) for field in table.schema], metadata)
        try:
            table = pa.Table.from_pylist(rows, schema)
        except (pa.ArrowException, UnicodeError):
            return mutate_bytes.mutate(data, other, rng)
    else:
        name = rng.choice(table.schema.names)
        table = rng.choice((table.drop([name]), table.slice(0, 0), pa.concat_tables([table] * 2), table.select([])))
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()

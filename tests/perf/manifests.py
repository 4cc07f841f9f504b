"""Manifests to measure with: 20 columns of statistics with random values, in blocks as Java's writer makes them.

Written as a stream, so that a million entries fit through a small process. The same number gives the same records.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isal import isal_zlib

from lakemirror.formats.iceberg import avro
from lakemirror.formats.iceberg.avro_values import write_bytes, write_long
from lakemirror.model.paths import PrefixMap
from tests.avro_bytes import MAGIC, SYNC, encode
from tests.iceberg_files import POSITION_DELETES, entry, manifest_schema

COLUMNS = 20
JAVA_BLOCK_BYTES = 64_000  # Avro's default, which Iceberg's writer leaves as it is
_NUMBER = 12_345_678  # stands for others in an entry that is a pattern
_POOL = 2_000  # more than fit into the window of deflate, so that repetition is no help
HOME = "s3://lake/warehouse/db/table"
PATHS = PrefixMap.of({HOME: "gs://mirror/lake/db/table"})


def _statistics(value: Callable[[], bytes]) -> bytes:
    items = b"".join(write_long(column) + value() for column in range(1, COLUMNS + 1))
    return write_long(1) + write_long(COLUMNS) + items + write_long(0)


def entries(count: int, home: str = HOME) -> Iterator[bytes]:
    """Encoded entries of data files."""
    chance = random.Random(count)
    numbers = [_statistics(lambda: write_long(chance.randrange(1 << 22))) for _ in range(_POOL)]
    bounds = [_statistics(lambda: write_bytes(chance.randbytes(8))) for _ in range(_POOL)]
    null, some = write_long(0), write_long(1)
    head = write_long(1) + some + write_long(chance.getrandbits(62)) + null + null + write_long(0)
    tail = null + some + write_long(1) + write_long(4) + write_long(0) + null + some + write_long(0) + null
    parquet = write_bytes(b"PARQUET")
    for number in range(count):
        path = f"{home}/data/{number % 997:03d}/{number:08d}-{chance.getrandbits(96):024x}-00001.parquet"
        sizes = write_long(chance.randrange(1 << 20)) + write_long(chance.randrange(1 << 28))
        counts = chance.choice(numbers) + chance.choice(numbers) + chance.choice(numbers) + null
        limits = chance.choice(bounds) + chance.choice(bounds)
        yield b"".join((head, write_bytes(path.encode()), parquet, sizes, counts, limits, tail))


def vectors(count: int, home: str = HOME) -> Iterator[bytes]:
    """Encoded entries of deletion vectors, a thousand in each Puffin file, as v3 has them."""
    data_file, puffin = f"{home}/data/{_NUMBER:08d}.parquet", f"{home}/data/{_NUMBER:08d}.puffin"
    where: dict[str, Any] = {"referenced_data_file": data_file, "content_offset": 4, "content_size_in_bytes": 44}
    one = entry(puffin, content=POSITION_DELETES, file_format="PUFFIN", size=1 << 16, **where)
    encoded = encode(manifest_schema(version=3), one)
    before, between, after = encoded.split(f"{_NUMBER:08d}".encode())
    for number in range(count):
        yield b"%b%08d%b%08d%b" % (before, number // 1000, between, number, after)


def blocks(
    count: int, home: str = HOME, block_bytes: int = JAVA_BLOCK_BYTES, *, are_vectors: bool = False
) -> Iterator[avro.Block]:
    held: list[bytes] = []
    size = 0
    for encoded in (vectors if are_vectors else entries)(count, home):
        held.append(encoded)
        size += len(encoded)
        if size >= block_bytes:
            yield avro.Block(len(held), b"".join(held))
            held, size = [], 0
    if held:
        yield avro.Block(len(held), b"".join(held))


def pieces(
    count: int, home: str = HOME, block_bytes: int = JAVA_BLOCK_BYTES, *, are_vectors: bool = False
) -> Iterator[bytes]:
    """The manifest, block by block."""
    schema, content = manifest_schema(version=3 if are_vectors else 2), "deletes" if are_vectors else "data"
    meta = {"avro.schema": json.dumps(schema), "avro.codec": "deflate", "content": content}
    items = b"".join(write_bytes(key.encode()) + write_bytes(value.encode()) for key, value in meta.items())
    yield MAGIC + write_long(len(meta)) + items + write_long(0) + SYNC
    for block in blocks(count, home, block_bytes, are_vectors=are_vectors):
        body: bytes = isal_zlib.compress(block.data, 2, -15)
        yield write_long(block.count) + write_bytes(body) + SYNC


def write(path: Path, count: int, home: str = HOME, *, are_vectors: bool = False) -> int:
    with path.open("wb") as out:
        return sum(out.write(piece) for piece in pieces(count, home, are_vectors=are_vectors))

"""Bombs: small files that claim, or unpack to, more than a machine can hold. By name, with the file name they go by."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests import avro_bytes
from tests.fuzz.seeds import PLACE
from tests.iceberg_files import DELETES_SCHEMA, PATH_ID, POS_ID, entry, list_entry, list_schema, manifest_schema
from tests.orc_files import orc_deletes
from tests.puffin_bytes import footer, puffin

HOME = f"{PLACE}/v2"
LIST, MANIFEST = "metadata/snap-1.avro", "metadata/x-m0.avro"
AVRO, ORC, PARQUET, PUFFIN = (f"data/deletes.{name}" for name in ("avro", "orc", "parquet", "puffin"))
DELETES_AVRO = {
    "type": "record",
    "name": "deletes",
    "fields": [
        {"name": "file_path", "type": "string", "field-id": PATH_ID},
        {"name": "pos", "type": "long", "field-id": POS_ID},
    ],
}


def _avro(schema: Any, bodies: list[tuple[int, bytes]], codec: str = "deflate", **meta: str) -> bytes:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return avro_bytes.raw_container({"avro.schema": text, "avro.codec": codec, **meta}, bodies, level=9)


def _records(schema: Any, record: dict[str, Any], count: int, claimed: int | None = None) -> bytes:
    """The same record again and again: it packs to a thousandth."""
    return _avro(schema, [(count if claimed is None else claimed, avro_bytes.encode(schema, record) * count)])


def _tiny_list(count: int) -> bytes:
    fields = [field for field in list_schema()["fields"] if field["name"] in ("manifest_path", "manifest_length")]
    return _records({**list_schema(), "fields": fields}, {"manifest_path": "a", "manifest_length": 1}, count)


def _schema_of(fields: list[Any]) -> bytes:
    return _avro({"type": "record", "name": "r", "fields": fields}, [(1, b"\x00")])


def _header(entries: int) -> bytes:
    body = b"".join(avro_bytes.sized(str(number).encode()) + b"\x00" for number in range(entries))
    return avro_bytes.MAGIC + avro_bytes.long(entries) + body + b"\x00" + avro_bytes.SYNC


def _union_of(branches: int) -> bytes:
    kind = [{"type": "fixed", "name": f"f{number}", "size": 1} for number in range(branches)]
    schema = {**manifest_schema(), "fields": [*manifest_schema()["fields"], {"name": "u", "type": kind}]}
    body = avro_bytes.encode(manifest_schema(), entry(f"{HOME}/a")) + avro_bytes.long(branches - 1) + b"x"
    return _avro(schema, [(10_000, body * 10_000)])


def _named_types(levels: int) -> bytes:
    """Each type holds the one before twice: a thousand bytes that are two to the power of `levels` fields."""
    fields: list[Any] = [
        {"name": "a0", "type": {"type": "record", "name": "t0", "fields": [{"name": "x", "type": "int"}]}}
    ]
    for level in range(1, levels):
        twice = [{"name": name, "type": f"t{level - 1}"} for name in ("x", "y")]
        fields.append({"name": f"a{level}", "type": {"type": "record", "name": f"t{level}", "fields": twice}})
    return _avro({"type": "record", "name": "r", "fields": fields}, [(1, b"\x00" * 1000)])


def _orc_message(fields: int) -> bytes:
    """A message of empty fields, plain, as an ORC file's footer."""
    body = b"\x08\x00" * fields
    postscript = b"\x08" + _varint(len(body)) + b"\x10\x00\x18\x80\x80\x10\x28\x00\x82\xf4\x03\x03ORC"
    return b"ORC" + body + postscript + bytes([len(postscript)])


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _orc_chunks() -> bytes:
    """A footer of millions of empty chunks of zstd."""
    body = b"\x00\x00\x00" * 3_000_000
    postscript = b"\x08" + _varint(len(body)) + b"\x10\x05\x18\x80\x80\x10\x28\x00\x82\xf4\x03\x03ORC"
    return b"ORC" + body + postscript + bytes([len(postscript)])


def _parquet(rows: int, path: str) -> bytes:
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([path]))
    table = pa.table([paths, pa.repeat(pa.scalar(7, pa.int64()), rows)], ["file_path", "pos"])
    table = table.cast(
        pa.schema(
            [pa.field("file_path", paths.type, metadata=DELETES_SCHEMA.field(0).metadata), DELETES_SCHEMA.field(1)]
        )
    )
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", row_group_size=rows, store_schema=False)
    return out.getvalue()


def _bitmap(bitmaps: int) -> bytes:
    """Bitmaps of 65,536 run containers each, which say nearly nothing."""
    size = 1 << 16
    cookie = struct.pack("<I", 12347 | (size - 1) << 16) + b"\xff" * (size // 8)
    headers = b"".join(struct.pack("<HH", key, 0) for key in range(size))
    at = len(cookie) + len(headers) + 4 * size
    offsets = b"".join(struct.pack("<I", at + 6 * key) for key in range(size))
    one = cookie + headers + offsets + struct.pack("<HHH", 1, 0, 0) * size
    return struct.pack("<Q", bitmaps) + b"".join(struct.pack("<I", key) + one for key in range(bitmaps))


def _vectors(bitmaps: int) -> bytes:
    guarded = b"\xd1\xd3\x39\x64" + _bitmap(bitmaps)
    blob = struct.pack(">I", len(guarded)) + guarded + struct.pack(">I", zlib.crc32(guarded))
    properties = {"referenced-data-file": f"{HOME}/a", "cardinality": str(bitmaps << 16)}
    return puffin([({"type": "deletion-vector-v1", "fields": [], "properties": properties}, blob)])


def _many_vectors(count: int) -> bytes:
    return puffin([({"type": "deletion-vector-v1", "offset": 4, "length": 0, "properties": {}}, b"")] * count)


def _position_deletes(rows: int, codec: str) -> bytes:
    return _avro(DELETES_AVRO, [(rows, avro_bytes.encode(DELETES_AVRO, {"file_path": "a", "pos": 1}) * rows)], codec)


def _zeros(size: int, codec: str) -> bytes:
    return _avro(manifest_schema(), [(1, bytes(size))], codec)


def _snappy_that_claims(size: int) -> bytes:
    said = avro_bytes.long(size // 2)  # Avro's numbers are those of snappy, doubled
    block = avro_bytes.sized(said + b"\xfe\x01\x00" * 100 + bytes(4))
    return _avro(manifest_schema(), [], "snappy") + avro_bytes.long(1) + block + avro_bytes.SYNC


ENTRY = entry(f"{HOME}/a")
FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "list of ten million": (LIST, lambda: _tiny_list(10_000_000)),
    "list of a million": (LIST, lambda: _tiny_list(1_000_000)),
    "list of one gigabyte": (LIST, lambda: _avro(list_schema(), [(1, bytes(1 << 28))] * 5)),
    "list that claims 2^62": (LIST, lambda: _records(list_schema(), list_entry(f"{HOME}/m", 1), 1, 1 << 62)),
    "manifest of half a million entries": (MANIFEST, lambda: _records(manifest_schema(), ENTRY, 500_000)),
    "manifest that claims 2^62": (MANIFEST, lambda: _records(manifest_schema(), ENTRY, 1, 1 << 62)),
    "manifest of zeros": (MANIFEST, lambda: _zeros(1 << 29, "deflate")),
    **{f"manifest of zeros in {codec}": (MANIFEST, partial(_zeros, 3 << 27, codec)) for codec in avro_bytes.CODECS[2:]},
    "manifest in snappy that claims 4 GB": (MANIFEST, lambda: _snappy_that_claims((1 << 32) - 2)),
    "manifest in snappy that claims all there is room for": (MANIFEST, lambda: _snappy_that_claims(1 << 28)),
    "manifest of empty blocks": (MANIFEST, lambda: _avro(manifest_schema(), [(0, b"")] * 300_000, "null")),
    "schema of a million fields": (
        MANIFEST,
        lambda: _schema_of([{"name": f"f{n}", "type": "int"} for n in range(10**6)]),
    ),
    "schema of 60,000 fields": (
        MANIFEST,
        lambda: _schema_of([{"name": f"f{n}", "type": "int"} for n in range(60_000)]),
    ),
    "schema of 40,000 fields": (
        MANIFEST,
        lambda: _schema_of([{"name": f"f{n}", "type": ["null", "int"]} for n in range(15_000)]),
    ),
    "schema of empty lists": (MANIFEST, lambda: _avro("[" + "[]," * 10_000_000 + "0]", [(1, b"")])),
    "schema that is deep": (MANIFEST, lambda: _avro('{"type":' * 100_000, [(1, b"")])),
    "schema that is deep and whole": (MANIFEST, lambda: _avro('{"type":' * 500 + '"int"' + "}" * 500, [(1, b"")])),
    "union of 20,000 branches": (MANIFEST, lambda: _union_of(20_000)),
    "types that double": (MANIFEST, lambda: _named_types(60)),
    "header of five million entries": (MANIFEST, lambda: _header(5_000_000)),
    "header that claims 2^62": (MANIFEST, lambda: avro_bytes.MAGIC + avro_bytes.long(1 << 62)),
    "deletes of 100 million rows": (AVRO, lambda: _position_deletes(60_000_000, "deflate")),
    "deletes in zstd": (AVRO, lambda: _position_deletes(60_000_000, "zstandard")),
    "deletes in snappy": (AVRO, lambda: _position_deletes(60_000_000, "snappy")),
    "deletes in ORC with a long footer": (ORC, lambda: _orc_message(8_000_000)),
    "deletes in ORC of empty chunks": (ORC, _orc_chunks),
    "deletes in ORC of a million paths": (ORC, lambda: orc_deletes([(f"{HOME}/{n}", n) for n in range(1_100_000)])),
    "deletes in Parquet of many rows": (PARQUET, lambda: _parquet(30_000_000, f"{HOME}/a")),
    "deletes in Parquet of too many rows": (PARQUET, lambda: _parquet(70_000_000, f"{HOME}/a")),
    "puffin of run containers": (PUFFIN, lambda: _vectors(20)),
    "puffin of a million blobs": (PUFFIN, lambda: _many_vectors(200_000)),
    "puffin with a footer of lists": (PUFFIN, lambda: b"PFA1" + footer(b"[" + b"[]," * 20_000_000 + b"0]")),
    "puffin with a footer of objects": (
        PUFFIN,
        lambda: b"PFA1" + footer(b'{"blobs":[' + b'{"":0},' * 8_000_000 + b"0]}"),
    ),
}

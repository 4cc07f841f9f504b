"""Avro files made hostile from within: schemas, header entries, records and counts, packed again to get far."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests import avro_bytes
from tests.fuzz import mutate_bytes, mutate_json

LONGS = (0, -1, 1, 2, 3, 99, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
KINDS: tuple[Any, ...] = (
    *("null", "int", "long", "string", "bytes", "boolean", "double", "manifest_entry", "r2", "nowhere", "", 0, None),
    *([], ["null"], ["null", "string"], [["null", "int"], "int"], ["null"] * 300, ["int", "int"]),
    {"type": "array", "items": "null"},
    {"type": "map", "values": "bytes"},
    {"type": "fixed", "name": "f", "size": 2**31},
    {"type": "fixed", "name": "f", "size": -1},
    {"type": "fixed", "name": "f", "size": "x"},
    {"type": "enum", "name": "e", "symbols": []},
    {"type": "record", "name": "manifest_entry", "fields": []},
    {"type": "record", "name": "own", "fields": [{"name": "again", "type": "own"}]},
    {"type": {"type": {"type": "string"}}},
    {"type": "string", "logicalType": "nobody-knows"},
    {"type": "bytes", "logicalType": "decimal", "precision": -5},
    {},
)


def mutate(data: bytes, other: bytes, rng: Random, home: str) -> bytes:
    try:
        header, bodies = avro_bytes.header_of(data), avro_bytes.block_bodies(data)
        return rng.choice(_WAYS)(header, bodies, rng, home)
    except Exception:  # noqa: BLE001 - not a file that this could take apart: the bytes are changed
        return mutate_bytes.mutate(data, other, rng)


Header = dict[str, str]
Bodies = list[tuple[int, bytes]]


def _pack(header: Header, bodies: Bodies, rng: Random) -> bytes:
    if rng.random() < 0.3:
        header = {
            **header,
            "avro.codec": rng.choice((*avro_bytes.CODECS, "xz", "")),
        }
    return avro_bytes.raw_container(header, bodies)


def _schema(header: Header, bodies: Bodies, rng: Random, home: str) -> bytes:
    schema = json.loads(header["avro.schema"])
    if rng.random() < 0.5:
        return _pack({**header, "avro.schema": _text(mutate_json.mutate(schema, rng, home))}, bodies, rng)
    places = [slot for slot in mutate_json.slots(schema) if slot[1] in ("type", "items", "values")]
    part, key = rng.choice(places)
    part[key] = rng.choice(KINDS)
    return _pack({**header, "avro.schema": json.dumps(schema)}, bodies, rng)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _header(header: Header, bodies: Bodies, rng: Random, home: str) -> bytes:
    key = rng.choice([*header, "schema", "content", "extra"])
    old = header.get(key, "{}")
    try:
        new = _text(mutate_json.mutate(json.loads(old), rng, home))
    except ValueError:
        new = (
            rng.choice((*mutate_json.TEXTS, *mutate_json.ELSEWHERE, "deletes", "data"))
            .encode("utf-8", "replace")
            .decode()
        )
    changed = {**header, key: new}
    if rng.random() < 0.1:
        changed.pop(key)
    if rng.random() < 0.05:
        changed.update({f"k{number}": "" for number in range(5000)})
    return _pack(changed, bodies, rng)


def _bytes(header: Header, bodies: Bodies, rng: Random, home: str) -> bytes:
    number = rng.randrange(len(bodies))
    count, body = bodies[number]
    bodies[number] = count, mutate_bytes.mutate(body, body, rng)
    return _pack(header, bodies, rng)


def _counts(header: Header, bodies: Bodies, rng: Random, home: str) -> bytes:
    number = rng.randrange(len(bodies))
    _, body = bodies[number]
    bodies[number] = rng.choice(LONGS), body
    return _pack(header, bodies * rng.choice((1, 1, 2, 50)), rng)


def _records(header: Header, bodies: Bodies, rng: Random, home: str) -> bytes:
    """Records that fit their schema and hold what no writer would."""
    schema = json.loads(header["avro.schema"])
    found = avro_bytes.records(avro_bytes.raw_container({**header, "avro.codec": "null"}, bodies))
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = [place for place in mutate_json.slots(found) if place[1] != "partition"]
        texts = [place for place in places if isinstance(place[0][place[1]], str)]
        part, key = rng.choice(texts if texts and rng.random() < 0.6 else places)
        value = part[key]
        if isinstance(value, str):
            part[key] = mutate_json.text_like(value, rng, home).encode("utf-8", "replace").decode()
        elif isinstance(value, bool | None):
            continue
        elif isinstance(value, int):
            part[key] = rng.choice(LONGS)
        elif isinstance(value, bytes):
            part[key] = rng.choice((b"", b"\xff\xfe", home.encode() + b"/../x", b"file:///etc/passwd", b"x" * 5000))
    body = b"".join(avro_bytes.encode(schema, record) for record in found)
    return _pack(header, [(len(found), body)], rng)


_WAYS: tuple[Callable[[Header, Bodies, Random, str], bytes], ...] = (
    *(_schema, _schema, _header, _bytes, _bytes, _counts, _records, _records, _records),
)

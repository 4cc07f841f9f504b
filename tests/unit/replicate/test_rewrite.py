"""Rewritten objects are put create-only: equal records are adopted with their own length, others are a stop."""

from __future__ import annotations

import google_crc32c
import pytest

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.formats.iceberg import avro
from lakemirror.replicate.rewrite import Stored, put_or_adopt, read_source
from tests.avro_bytes import container
from tests.unit.replicate.conftest import Bench

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string", "field-id": 1}]}


def made(text: str, level: int) -> bytes:
    return container(SCHEMA, [[{"a": text * 50}]], level=level)


def put(bench: Bench, data: bytes) -> Stored:
    uri = bench.target("m.avro")
    return put_or_adopt(bench.store, uri, data, lambda left, right: avro.same_records(left, right, uri))


def stored(data: bytes) -> Stored:
    return Stored(len(data), google_crc32c.value(data))


def test_a_new_object_is_created(bench: Bench) -> None:
    assert put(bench, made("x", 9)) == stored(made("x", 9))
    assert bench.objects() == {"m.avro": made("x", 9)}


def test_the_same_bytes_are_the_same_object(bench: Bench) -> None:
    put(bench, made("x", 9))
    assert put(bench, made("x", 9)) == stored(made("x", 9))


def test_equal_records_compressed_otherwise_are_adopted_with_their_length(bench: Bench) -> None:
    there = made("x", 0)
    assert len(there) != len(made("x", 9))
    put(bench, there)
    assert put(bench, made("x", 9)) == stored(there)
    assert bench.objects() == {"m.avro": there}


@pytest.mark.parametrize("there", [made("y", 9), b"garbage", b""])
def test_other_records_are_a_stop_and_stay(bench: Bench, there: bytes) -> None:
    bench.store.put(bench.target("m.avro"), there)
    with pytest.raises(PermanentError, match="another object with other records lies under this key") as caught:
        put(bench, made("x", 9))
    assert caught.value.subject == bench.target("m.avro")
    assert bench.objects() == {"m.avro": there}


def test_a_source_object_that_is_gone_is_transient(bench: Bench) -> None:
    with pytest.raises(SourceVanishedError) as caught:
        read_source(bench.store, bench.source("m.avro"))
    assert caught.value.kind == "transient"

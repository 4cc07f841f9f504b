"""Messages: what is not touched is written again as it was."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.orc.wire import parse, read_varint, write_varint


def test_a_message_that_protobuf_wrote() -> None:
    made = descriptor_pb2.FieldDescriptorProto(name="n", number=300, extendee="e")
    made.options.CopyFrom(descriptor_pb2.FieldOptions(packed=True))
    data = made.SerializeToString()
    message = parse(data)
    assert message.encode() == data
    assert (message.parts(1), message.number(3), message.parts(2)) == ([b"n"], 300, [b"e"])
    assert [one.number(2) for one in message.messages(8)] == [1]
    changed = message.with_number(3, 7).with_parts(2, [b"other"]).without(8)
    want = descriptor_pb2.FieldDescriptorProto(name="n", number=7, extendee="other")
    assert descriptor_pb2.FieldDescriptorProto.FromString(changed.encode()) == want


def test_fixed_numbers_are_carried() -> None:
    data = bytes([1 << 3 | 1]) + b"12345678" + bytes([2 << 3 | 5]) + b"1234" + bytes([3 << 3]) + b"\x05"
    assert parse(data).encode() == data
    assert parse(data).number(3) == 5


def test_repeated_fields() -> None:
    message = parse(b"\x0a\x01a\x10\x05\x0a\x01b")
    assert message.parts(1) == [b"a", b"b"]
    assert message.with_parts(1, [b"x", b"y", b"z"]).encode() == b"\x0a\x01x\x0a\x01y\x0a\x01z\x10\x05"
    assert message.with_parts(1, []).encode() == b"\x10\x05"
    assert message.with_parts(3, [b"c"]).encode() == message.encode() + b"\x1a\x01c"
    assert (message.has(2), message.has(9)) == (True, False)
    assert parse(b"\x10\x05\x10\x06").number(2) == 6  # the last one counts
    assert parse(b"\x08\x01\x0a\x02\x02\x03").numbers(1) == [1, 2, 3]  # packed or not
    assert parse(b"").with_packed(1, [1, 300]).encode() == b"\x0a\x03\x01\xac\x02"


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05abc", b"\x08", b"\x08\xff", b"\x0b", b"\x09123", b"\x80" * 11])
def test_damage(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse(data)


def test_another_kind_of_field_than_asked_for() -> None:
    message = parse(b"\x0a\x01a\x10\x05")
    with pytest.raises(Malformed, match="field 1 is not a number"):
        message.number(1)
    with pytest.raises(Malformed, match="field 2 is not a byte string"):
        message.parts(2)


@given(value=st.integers(0, (1 << 64) - 1))
def test_numbers(value: int) -> None:
    assert read_varint(write_varint(value), 0) == (value, len(write_varint(value)))


def test_numbers_beyond_64_bits() -> None:
    with pytest.raises(Malformed):
        read_varint(write_varint(1 << 64), 0)


@settings(max_examples=500)
@given(data=st.binary(max_size=80))
def test_anything_at_all(data: bytes) -> None:
    try:
        message = parse(data)
    except Malformed:
        return
    assert parse(message.encode()) == message

"""Protocol buffer messages as lists of fields: what is not touched is written again as it was, known or not.

Only what ORC's messages need: numbers and byte strings can be looked up and replaced, other fields are carried raw.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.formats.iceberg.avro_walk import Malformed

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_NUMBER = 1 << 64
MAX_FIELDS = 1 << 17  # of one message


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message in their order, each a number with its wire type and its value."""

    fields: tuple[tuple[int, int, int | bytes], ...]

    def number(self, field: int, default: int = 0) -> int:
        """A number; the last one counts, as the format has it."""
        found = default
        for name, wire, value in self.fields:
            if name == field:
                if wire != _VARINT or not isinstance(value, int):
                    raise Malformed(f"field {field} is not a number")
                found = value
        return found

    def parts(self, field: int) -> list[bytes]:
        """All byte strings of a repeated field."""
        found = []
        for name, wire, value in self.fields:
            if name == field:
                if wire != _BYTES or not isinstance(value, bytes):
                    raise Malformed(f"field {field} is not a byte string")
                found.append(value)
        return found

    def numbers(self, field: int) -> list[int]:
        """All numbers of a repeated field, packed or not."""
        found: list[int] = []
        for name, wire, value in self.fields:
            if name == field and wire == _VARINT and isinstance(value, int):
                found.append(value)
            elif name == field and isinstance(value, bytes):
                at = 0
                while at < len(value):
                    number, at = read_varint(value, at)
                    found.append(number)
        return found

    def has(self, field: int) -> bool:
        return any(name == field for name, _, _ in self.fields)

    def messages(self, field: int) -> list[Message]:
        return [parse(part) for part in self.parts(field)]

    def with_number(self, field: int, value: int) -> Message:
        return self._with(field, _VARINT, [value])

    def with_parts(self, field: int, values: list[bytes]) -> Message:
        """The byte strings of a field replaced, from where its first one stands."""
        return self._with(field, _BYTES, values)

    def with_packed(self, field: int, values: list[int]) -> Message:
        return self._with(field, _BYTES, [b"".join(write_varint(value) for value in values)])

    def without(self, field: int) -> Message:
        return Message(tuple(one for one in self.fields if one[0] != field))

    def _with(self, field: int, wire: int, values: list[int] | list[bytes]) -> Message:
        place = next((at for at, one in enumerate(self.fields) if one[0] == field), len(self.fields))
        before = tuple(one for one in self.fields[:place] if one[0] != field)
        after = tuple(one for one in self.fields[place:] if one[0] != field)
        return Message((*before, *((field, wire, value) for value in values), *after))

    def encode(self) -> bytes:
        out = []
        for field, wire, value in self.fields:
            out.append(write_varint(field << 3 | wire))
            if isinstance(value, int):
                out.append(write_varint(value))
            elif wire == _BYTES:
                out += [write_varint(len(value)), value]
            else:
                out.append(value)
        return b"".join(out)


def parse(data: bytes) -> Message:
    fields: list[tuple[int, int, int | bytes]] = []
    at = 0
    while at < len(data):
        if len(fields) >= MAX_FIELDS:
            raise Malformed(f"a message of more than {MAX_FIELDS} fields")
        key, at = read_varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            number, at = read_varint(data, at)
            fields.append((field, wire, number))
            continue
        if wire == _BYTES:
            size, at = read_varint(data, at)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise Malformed(f"a message has a field of wire type {wire}")
        if size > len(data) - at:
            raise Malformed("a field of a message is cut")
        fields.append((field, wire, data[at : at + size]))
        at += size
    return Message(tuple(fields))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >= _MAX_NUMBER:
                break
            return result, at
        shift += 7
    raise Malformed("a number is cut or too long")


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""Statistics of a path column, made to fit paths that were mapped without changing their order."""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.delete_facts import MappedPaths
from lakemirror.formats.iceberg.orc.wire import Message, parse

_VALUES, _STRINGS, _BYTES_ON_DISK = 1, 4, 11
_MINIMUM, _MAXIMUM, _SUM, _LOWER_BOUND, _UPPER_BOUND = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the paths of a file: where each went, and by how many bytes all of them grew, if equally."""

    targets: dict[str, str]
    lowest: bytes
    highest: bytes
    growth: int | None

    @classmethod
    def of(cls, mapped: MappedPaths) -> Change:
        seen = mapped.seen
        growths = {len(target.encode()) - len(path.encode()) for path, target in seen.items()}
        bounds = (min(seen.values()), max(seen.values())) if seen else ("", "")
        return cls(seen, bounds[0].encode(), bounds[1].encode(), growths.pop() if len(growths) == 1 else None)

    def apply_to(self, message: Message, field: int, number: int, growth_on_disk: int) -> Message:
        """A message whose repeated `field` holds statistics of columns: those of column `number` are changed."""
        all_of_them = message.parts(field)
        if not all_of_them:
            return message
        if number >= len(all_of_them):
            raise Malformed(f"no statistics of column {number}")
        new = self._applied(parse(all_of_them[number]), growth_on_disk).encode()
        return message.with_parts(field, [*all_of_them[:number], new, *all_of_them[number + 1 :]])

    def _applied(self, statistics: Message, growth_on_disk: int) -> Message:
        if statistics.has(_BYTES_ON_DISK):
            size = statistics.number(_BYTES_ON_DISK) + growth_on_disk
            if size < 0:
                raise Malformed("a column takes less room than its streams")
            statistics = statistics.with_number(_BYTES_ON_DISK, size)
        strings = [self._mapped(one, statistics.number(_VALUES)).encode() for one in statistics.messages(_STRINGS)]
        return statistics.with_parts(_STRINGS, strings)

    def _mapped(self, strings: Message, values: int) -> Message:
        """Minimum and maximum are paths of the file. What is not (a cut bound, say) gives way to a bound of all."""
        for exact, bound, all_of_them in (
            (_MINIMUM, _LOWER_BOUND, self.lowest),
            (_MAXIMUM, _UPPER_BOUND, self.highest),
        ):
            found = [self.targets.get(text.decode(errors="replace")) for text in strings.parts(exact)]
            is_there = strings.has(exact) or strings.has(bound)
            strings = strings.without(bound)
            if len(found) == 1 and found[0] is not None:
                strings = strings.with_parts(exact, [found[0].encode()])
            else:
                strings = strings.without(exact).with_parts(bound, [all_of_them] if is_there else [])
        if not strings.has(_SUM):
            return strings
        zigzag = strings.number(_SUM)
        total = (zigzag >> 1) ^ -(zigzag & 1)
        if self.growth is None or total + values * self.growth < 0:
            return strings.without(_SUM)  # lengths changed unequally, and the number of each is not known here
        return strings.with_number(_SUM, (total + values * self.growth) << 1)

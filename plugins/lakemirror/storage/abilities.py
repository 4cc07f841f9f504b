"""What a store can do, as data: of Amazon's S3 and GCS it is known, of others `lakemirror.storage.probe` finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from lakemirror.errors import PermanentError
from lakemirror.storage.keys import Address


@dataclass(frozen=True, slots=True)
class Abilities:
    """Powers in which servers of one protocol differ."""

    conditional_create: bool
    """A put that must create never replaces, and one of many at once wins."""
    conditional_replace: bool
    """A put that names an e_tag replaces only that content."""
    conditional_copy: bool
    """A server-side copy that must create never replaces."""
    conditional_delete: bool
    """A delete that names an e_tag removes only that content."""
    conditional_finish: bool
    """An upload in parts that must create does not replace what is there; on GCS a conditional rewrite finishes it."""
    atomic_finish: bool
    """And of many such uploads that finish at once, one wins."""
    checks_crc32c: bool
    """Bytes that do not have the CRC32C sent with them are refused, if they are a whole object."""
    checks_part_crc32c: bool
    """And if they are a part of one: a server may check the one and not the other."""
    checks_md5: bool
    """Bytes that do not have the MD5 sent with them are refused, also where a CRC32C goes along."""
    tags_parts_md5: bool
    """What the store answers to a part names the MD5 of the bytes that came, as its ETag."""
    keeps_crc32c: bool
    """The CRC32C of a stored object can be asked for."""
    tags: bool
    copies_across_buckets: bool
    spoiled: str
    """Characters that the store does not keep in keys as they are written; keys with them are refused by name."""

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, value in asdict(self).items() if value is False)

    def as_json(self) -> dict[str, bool | str]:
        return asdict(self)

    def check(self, op: str, address: Address) -> None:
        """PermanentError if the store would keep this key under another spelling."""
        for character in self.spoiled:
            if character in address.key:
                why = f"the store cannot hold this key: it does not keep {character!r}"
                raise PermanentError(op, address.uri, why, "rename the object, or move the table to another store")


LOCAL: Final = Abilities(True, True, True, True, True, True, True, True, False, False, False, False, True, "")
"""Of files and memory, as the adapters here have them."""
AMAZON: Final = Abilities(True, True, True, True, True, True, True, True, False, False, True, True, True, "")
"""Without what was never tried there."""
GOOGLE: Final = Abilities(True, True, True, True, True, True, True, True, False, False, True, False, True, "")


def abilities_from(document: Mapping[str, Any]) -> Abilities | None:
    """What a record says; None if it was written by a version that knew other abilities."""
    names = [field.name for field in fields(Abilities)]
    if sorted(document) != sorted(names):
        return None
    if not all(isinstance(document[name], str if name == "spoiled" else bool) for name in names):
        return None
    return Abilities(**document)

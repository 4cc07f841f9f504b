"""Shows what would be written: reads pass, writes are noted down and not done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lakemirror.storage.checksum import Tally
from lakemirror.storage.keys import check_key
from lakemirror.storage.port import CREATE, Condition, ObjectInfo, ObjectStore, Written, check_copy_condition
from lakemirror.storage.wrappers.forward import ForwardingStore


@dataclass(frozen=True, slots=True)
class NotedWrite:
    """A write that was not done; the size of a delete is 0."""

    verb: Literal["put", "copy", "delete"]
    uri: str
    size_bytes: int


class DryRunStore(ForwardingStore):
    """Notes writes down in `writes`, in order; it does not show them to later reads, nor check their conditions.

    Keys are checked as for a real write, and a body is read to its end, so that size and checksum are real.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.writes: list[NotedWrite] = []

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        address = check_key(uri, "put")
        tally = Tally()
        for _ in tally.over(iter((body,)) if isinstance(body, bytes) else body):
            pass
        self.writes.append(NotedWrite("put", address.uri, tally.size_bytes))
        return Written(address.uri, tally.size_bytes, tally.crc32c, None)

    def delete(self, uris: Sequence[str]) -> None:
        self.writes.extend([NotedWrite("delete", check_key(uri, "delete").uri, 0) for uri in uris])

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        target = check_key(target_uri, "copy")
        check_copy_condition(target.uri, condition)
        source = self.head(source_uri)
        self.writes.append(NotedWrite("copy", target.uri, source.size_bytes))
        return ObjectInfo(target.uri, source.size_bytes, None, source.modified_at)

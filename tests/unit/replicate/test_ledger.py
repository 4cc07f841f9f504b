"""The ledger: rows are written down whole, and none is lost because writing it failed or was cut off."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lakemirror.errors import TransientError
from lakemirror.replicate.ledger import DONE, LedgerWriter, read_ledger
from lakemirror.storage.port import CREATE, Condition, ObjectStore, Written
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.unit.replicate.conftest import Bench


class Halting(ForwardingStore):
    """Its first put fails, once `go` is set."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.puts, self.begun, self.go = 0, threading.Event(), threading.Event()

    def put(self, uri: str, body: object, condition: Condition = CREATE) -> Written:
        self.puts += 1
        if self.puts == 1:
            self.begun.set()
            assert self.go.wait(5)
            raise TransientError("put", uri, "the line is cut", "run again")
        return super().put(uri, body, condition)  # type: ignore[arg-type]


def row(name: str) -> dict[str, object]:
    return {"target": name, "size": 1, "crc32c": 7}


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_rows_whose_writing_fails_are_written_with_the_next(bench: Bench, is_cancelled: bool) -> None:
    store, folder = Halting(bench.store), f"{bench.layout.root}/ledger"
    ledger = LedgerWriter(store, folder, DONE, flush_rows=2)

    async def work() -> None:
        await ledger.add(row("a"))
        writing = asyncio.create_task(ledger.add(row("b")))
        await asyncio.to_thread(store.begun.wait, 5)
        await ledger.add(row("c"))
        if is_cancelled:
            writing.cancel()
        store.go.set()
        with pytest.raises(asyncio.CancelledError if is_cancelled else TransientError):
            await writing
        await ledger.flush()

    asyncio.run(work())
    assert sorted(one["target"] for one in read_ledger(bench.store, folder)) == ["a", "b", "c"]

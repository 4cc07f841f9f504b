"""Whole bodies to GCS with their CRC32C, for the synchronous port: obstore cannot send one.

They go over the wire, on one event loop for all threads of this process, so that connections and tokens are kept from
one write to the next. GCS refuses bytes that do not have the sum that was sent with them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lakemirror.errors import TransientError
from lakemirror.storage.checksum import as_base64, crc32c_of
from lakemirror.storage.clients import answer_timeout
from lakemirror.storage.keys import Address
from lakemirror.storage.port import Condition, Create, IfMatch

if TYPE_CHECKING:
    from lakemirror.storage.wires.gcs import GcsWire

_lock: Final = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process, as obstore's threads: a forked one has none


class SummedPuts:
    """Conditional writes of one set of properties; safe to share between threads. Pickles without its connections."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._wires: dict[int, GcsWire] = {}

    def put(self, address: Address, data: bytes, condition: Condition) -> str | None:
        """The generation of what was written, by one request that is not repeated here."""
        headers = {"x-goog-hash": f"crc32c={as_base64(crc32c_of(data))}"}
        if isinstance(condition, Create):
            headers["x-goog-if-generation-match"] = "0"
        elif isinstance(condition, IfMatch):
            headers["x-goog-if-generation-match"] = condition.e_tag
        wire, patience_s = self._wire(), answer_timeout(self._properties, "gcs")

        async def send() -> str | None:
            try:
                async with asyncio.timeout(patience_s):
                    answer = await wire.ask("put", address, "PUT", headers, body=data)
            except TimeoutError as err:
                why = f"the answer was not whole after {patience_s:g} s"
                raise TransientError("put", address.uri, why, "run again") from err
            return answer.headers.get("x-goog-generation")

        sent = asyncio.run_coroutine_threadsafe(send(), _loop())
        try:
            return sent.result()
        except BaseException:
            sent.cancel()
            raise

    def _wire(self) -> GcsWire:
        from lakemirror.storage.wires.gcs import GcsWire

        with _lock:
            wire = self._wires.get(os.getpid())
            if wire is None:
                wire = self._wires[os.getpid()] = GcsWire(self._properties)
                weakref.finalize(self, _close, wire, os.getpid()).atexit = False
            return wire

    def __getstate__(self) -> dict[str, object]:
        return {"_properties": self._properties, "_wires": {}}


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process; its thread ends with the process."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="lakemirror-puts", daemon=True).start()
        return loop


def _close(wire: GcsWire, pid: int) -> None:
    loop = _loops.get(os.getpid())
    if loop is not None and pid == os.getpid():
        asyncio.run_coroutine_threadsafe(wire.close(), loop)

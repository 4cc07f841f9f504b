"""A server of a few lines for what no well-behaved one does: each connection is served by the test's own coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lakemirror.storage.abilities import Abilities
from lakemirror.storage.wire import Wire, open_wire

T = TypeVar("T")
Serve = Callable[["Line"], Awaitable[None]]


@dataclass(frozen=True)
class Asked:
    """The head of a request; its body is still to be read."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))


@dataclass
class Line:
    """One connection; `number` counts them from 0."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> Asked:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines if line)
        return Asked(method, target, {name.lower(): value.strip() for name, _, value in pairs})

    async def request(self) -> Asked:
        asked = await self.head()
        await self.reader.readexactly(asked.length)
        return asked

    async def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        length = "" if "content_length" in headers else f"content-length: {len(body)}\r\n"
        self.writer.write(f"HTTP/1.1 {status} Told\r\n{named}{length}\r\n".encode() + body)
        await self.writer.drain()


def run_against(
    serve: Serve, work: Callable[[Wire], Awaitable[T]], *, abilities: Abilities | None = None, **more: str
) -> T:
    """What `work` makes of a wire to a server whose connections `serve` serves; `more` are properties of S3."""
    lines: set[asyncio.Task[None]] = set()

    async def served(line: Line) -> None:
        try:
            await serve(line)
        except asyncio.IncompleteReadError:
            pass  # the client has gone
        finally:
            line.writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(asyncio.get_running_loop().create_task(served(Line(len(lines), reader, writer))))

    async def opened() -> T:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        keys = {"s3.access-key-id": "testing", "s3.secret-access-key": "testing"}  # pragma: allowlist secret
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        properties = {**keys, "s3.endpoint": endpoint, "s3.region": "eu-test-1"}
        wire = open_wire(
            properties | {f"s3.{name.replace('_', '-')}": value for name, value in more.items()}, abilities=abilities
        )
        try:
            return await asyncio.wait_for(work(wire), 30)
        finally:
            await wire.close()
            server.close()
            for line in lines:
                line.cancel()
            await asyncio.gather(*lines, return_exceptions=True)

    return asyncio.run(opened())

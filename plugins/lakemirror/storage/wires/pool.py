"""Connections to the places that requests go to, kept for the next request; through a proxy where one is set."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from lakemirror.storage.wires.connection import Connection, RawAnswer

if TYPE_CHECKING:
    from ssl import SSLContext

_IDLE_S: Final = 15.0  # servers close what is idle for longer, and a request that meets that has to be made again
_PORTS: Final = {"http": 80, "https": 443}


class AddressError(ValueError):
    """No address that could be connected to."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests go: `scheme://host`, the host as the signature names it, and the time they may take."""

    origin: str
    host: str
    proxy: str | None
    connect_timeout_s: float
    read_timeout_s: float


class Pool:
    """Connections of one event loop, made as needed; the caller decides how many at once."""

    def __init__(self) -> None:
        self._idle: dict[Place, list[Connection]] = {}
        self._routes: dict[Place, _Route] = {}
        self._context: SSLContext | None = None

    async def ask(
        self, place: Place, method: str, target: str, headers: Mapping[str, str], body: bytes | None, most_bytes: int
    ) -> RawAnswer:
        """The answer to a request whose target and headers go out as they are; OSError or AddressError if none."""
        route = self._routes.get(place)
        if route is None:
            route = self._routes[place] = _Route.to(place)
        head = route.head(method, target, headers, body)
        connection = self._kept(place) or await self._connected(place, route)
        answer = await connection.exchange(method, head, body or b"", most_bytes, place.read_timeout_s)
        if connection.is_usable:
            self._idle.setdefault(place, []).append(connection)
        return answer

    async def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # for the transports to end

    def _kept(self, place: Place) -> Connection | None:
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if connection.is_usable and asyncio.get_running_loop().time() - connection.idle_since < _IDLE_S:
                return connection
            connection.abort()
        return None

    async def _connected(self, place: Place, route: _Route) -> Connection:
        loop = asyncio.get_running_loop()
        end = route.proxy or route.end
        try:
            async with asyncio.timeout(place.connect_timeout_s):
                tls = self._tls() if end.is_tls else None
                _, connection = await loop.create_connection(Connection, end.host, end.port, ssl=tls)
                if route.proxy is not None and route.end.is_tls:
                    await self._tunnelled(connection, route, place.connect_timeout_s)
                return connection
        except TimeoutError as err:
            raise TimeoutError(f"no connection to {end.host}:{end.port} within {place.connect_timeout_s:g} s") from err

    async def _tunnelled(self, connection: Connection, route: _Route, patience_s: float) -> None:
        answer = await connection.exchange("CONNECT", route.connect_head(), b"", 0, patience_s, is_tunnel=True)
        transport = connection.transport
        if answer.status != 200 or transport is None:
            connection.abort()
            raise ConnectionError(f"the proxy answered {answer.status}")
        secured = await asyncio.get_running_loop().start_tls(
            transport, connection, self._tls(), server_hostname=route.end.host
        )
        if secured is None:
            raise ConnectionResetError("the connection was closed before it was secured")
        connection.connection_made(secured)

    def _tls(self) -> SSLContext:
        if self._context is None:
            import ssl

            self._context = ssl.create_default_context()
        return self._context


@dataclass(frozen=True, slots=True)
class _End:
    host: str
    port: int
    is_tls: bool

    @classmethod
    def of(cls, address: str) -> _End:
        try:
            parts = urlsplit(address)
            port = parts.port or _PORTS[parts.scheme]
            if not parts.hostname:
                raise ValueError("no host")
            parts.hostname.encode("idna")
        except (ValueError, KeyError) as err:
            raise AddressError("no address to ask") from err
        return cls(parts.hostname, port, parts.scheme == "https")


@dataclass(frozen=True, slots=True)
class _Route:
    """The way to a place, taken apart once."""

    end: _End
    proxy: _End | None
    before_target: str
    named: str
    admitted: str

    @classmethod
    def to(cls, place: Place) -> _Route:
        end = _End.of(place.origin)
        proxy = None if place.proxy is None else _End.of(place.proxy)
        admitted = "" if place.proxy is None else _proxy_authorization(place.proxy)
        if proxy is None or end.is_tls:
            return cls(end, proxy, urlsplit(place.origin).path, f"host: {place.host}\r\n", admitted)
        return cls(end, proxy, place.origin, f"host: {place.host}\r\n{admitted}", admitted)

    def head(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        listed = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if listed.count("\n") != len(headers):
            raise AddressError("a header has a line break")
        length = "" if body is None else f"content-length: {len(body)}\r\n"
        return f"{method} {self.before_target}{target} HTTP/1.1\r\n{self.named}{listed}{length}\r\n".encode()

    def connect_head(self) -> bytes:
        host = f"[{self.end.host}]" if ":" in self.end.host else self.end.host
        to = f"{host}:{self.end.port}"
        return f"CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n{self.admitted}\r\n".encode()


def _proxy_authorization(proxy: str) -> str:
    parts = urlsplit(proxy)
    if not parts.username:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"proxy-authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"

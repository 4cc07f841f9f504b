"""A mirror catalog that keeps metadata itself: the real REST adapter over the tests' REST server, without a line.

A request that meets `fail` or `fail after` is told as the line, or the server, would: cut, or answered with 503, before
or after the server has done it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakemirror.catalogs.rest import RestCatalog
from lakemirror.catalogs.rest_commits import WithLease
from lakemirror.catalogs.rest_transport import Answer, UnknownOutcomeError
from lakemirror.errors import TransientError
from lakemirror.storage.port import ThrottledError
from tests.rest_double import RestDouble
from tests.simulation.remembered import Stages
from tests.simulation.world import World

URI = "http://mirror.invalid"
PATH = "namespaces/shop/tables/orders"
TOKEN = "token-1"
Json = dict[str, Any]


class Files(dict[str, Json]):
    """The metadata files that lie in the bucket, for the server to register."""

    def __init__(self, read: Callable[[str], Json]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, uri: str) -> Json:
        return self._read(uri)


class RestServer:
    """The double of a server; `moved` is told of every new head, and of None when there is no more."""

    def __init__(self, read: Callable[[str], Json], moved: Callable[[Json | None], None], *, swaps: bool) -> None:
        self._double = RestDouble(0)
        self._double.files = Files(read)
        self._double.overwrite = 200 if swaps else 406
        self._moved = moved

    @property
    def head(self) -> tuple[str, Json] | None:
        return self._double.tables.get(PATH)

    def show(self, metadata: Json) -> None:
        """As if somebody had committed it."""
        self._double.asked.append("somebody else's")
        self._double.tables[PATH] = f"mem://server/{len(self._double.asked)}.metadata.json", metadata
        self._moved(metadata)

    def answer(self, verb: str, target: str, data: bytes) -> tuple[int, Json, dict[str, str]]:
        before = self.head
        self._double.asked.append(f"{verb} {target}")  # the names of the server's own files are counted by it
        found = self._double.answer(verb, target, data, {"Authorization": f"Bearer {TOKEN}"})
        if self.head is not before:
            self._moved(None if self.head is None else self.head[1])
        return found


class Line:
    """In place of the adapter's transport."""

    name, timeout_s = "mirror", 60.0

    def __init__(self, stages: Stages, world: World) -> None:
        self._stages, self._world = stages, world

    def exchange(
        self,
        verb: str,
        url: str,
        op: str,
        subject: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] = {},
        query: Mapping[str, str] = {},
        auth: Any = None,
    ) -> Answer:
        try:
            status, body, told = self._stages.perform((verb, url.removeprefix(URI), data or b""))
        except ThrottledError:
            return Answer(429, {}, error_type="Throttled", message="simulated", retry_after_s=1.0)
        except TransientError as err:
            if self._world.choices.of(2):
                return Answer(503, {}, error_type="Unavailable", message=err.message)
            kind = TransientError if verb == "GET" else UnknownOutcomeError
            raise kind(op, subject, err.message, "run again") from err
        error = body.get("error") or {}
        return Answer(status, body, told.get("ETag"), str(error.get("type", "")), str(error.get("message", "")))

    def words(self, answer: Answer) -> str:
        return f"the catalog answered {answer.status} ({answer.error_type}: {answer.message})"


def rest_face(stages: Stages, world: World, with_lease: WithLease) -> RestCatalog:
    properties = {"uri": URI, "token": TOKEN, "rest.retries": "1", "rest.retry-pause-s": "0"}
    catalog = RestCatalog("mirror", properties, with_lease=with_lease)
    catalog._client._transport = Line(stages, world)  # type: ignore[assignment]
    catalog._client._sleep = lambda seconds: stages.perform(("sleep", seconds))
    return catalog

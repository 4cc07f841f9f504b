"""A table in a REST catalog that can be told to misbehave, and followers with a real lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.catalogs.rest_commits import Turn
from lakemirror.config.knobs import Knobs
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.replicate.fence import Held
from lakemirror.storage.objects import ObstoreStore
from lakemirror.usecases.fencing import swapping
from tests.published_tables import Table
from tests.rest_double import RestDouble

T = TableRef.parse("shop.orders")
PATH = "namespaces/shop/tables/orders"
LEASES = ObstoreStore({})


class World:
    """A table of two published versions, the first of which is committed."""

    def __init__(self, double: RestDouble) -> None:
        self.double = double
        self.properties = {"uri": double.uri, "token": "token-1", "rest.retry-pause-s": "0"}
        self.catalog = RestCatalog("cloud", self.properties)
        self.made = Table("mem://m/t", 2)
        self.made.append(1)
        self.first = self.publish()
        self.catalog.commit(T, None, self.first)
        self.made.append(2)
        self.second = self.publish()
        self.made.append(3)
        self.third = self.publish()

    def publish(self) -> Published:
        metadata = self.made.publish()
        new = Published(f"mem://m/t/{self.made.published_count}.json", metadata)
        self.double.files[new.metadata_uri] = metadata
        return new

    def head(self) -> MirrorHead:
        head = self.catalog.load(T)
        assert head is not None
        return head

    @property
    def version(self) -> str:
        return str(self.double.tables[PATH][1]["properties"]["lakemirror.version"])


def on_commit(fault: int | str) -> object:
    return lambda verb, path: fault if (verb, path) == ("POST", f"/v1/{PATH}") else None


class Clock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def later(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def layout_of(double: RestDouble) -> TableLayout:
    return TableLayout(f"memory://{double.uri.rpartition(':')[2]}/shop/orders")


class Watched:
    """A lease that is held; something happens right before anybody looks whether it is over."""

    def __init__(self, held: Held, meanwhile: Callable[[], None]) -> None:
        self.renew = held.renew
        self._held, self._meanwhile = held, meanwhile

    def is_over(self) -> bool:
        self._meanwhile()
        return self._held.is_over()


def leased(double: RestDouble, name: str, clock: Clock, meanwhile: Callable[[], None] = lambda: None) -> RestCatalog:
    """A follower with the real lease; `meanwhile` is done when it has looked for the last time."""

    @contextmanager
    def with_lease(table: TableRef) -> Iterator[Turn]:
        with swapping(LEASES, layout_of(double), Knobs(), clock, name) as held:
            yield Watched(held, meanwhile)

    properties = {"uri": double.uri, "token": "token-1", "rest.retry-pause-s": "0"}
    return RestCatalog("cloud", properties, with_lease=with_lease)

"""The ports of one installation, made from its configuration when they are first needed.

Each side has its own store with its own credentials. A follower has no source at all, and asking for it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from lakemirror.catalogs.open import open_mirror, open_source
from lakemirror.catalogs.ports import MirrorCatalog, SourceCatalog
from lakemirror.config.connect import Sides, connect
from lakemirror.config.connections import ResolveConnection, environment_connection
from lakemirror.config.models import Config
from lakemirror.config.sections import SourceConfig
from lakemirror.errors import UsageError
from lakemirror.model.layout import TableLayout
from lakemirror.model.paths import is_relative
from lakemirror.model.table import TableRef
from lakemirror.observe.state import StateDatabase
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.probe import ProbedAbilities
from lakemirror.storage.wrappers.retry import RetryingStore

WrapStore = Callable[[str, ObjectStore], ObjectStore]


def as_it_is(side: str, store: ObjectStore) -> ObjectStore:
    return store


@dataclass
class Ports:
    """Stores and catalogs of both sides; `wrap_store` lets a test stand between the library and a store.

    `connections` is asked once, for all connections that the configuration names, by the first port that opens.
    """

    config: Config
    wrap_store: WrapStore = field(default=as_it_is)
    connections: ResolveConnection = field(default=environment_connection)

    @cached_property
    def source_store(self) -> ObjectStore:
        return self._store("source", self._source.catalog.properties)

    @cached_property
    def source_catalog(self) -> SourceCatalog:
        return open_source(self._source.catalog)

    @cached_property
    def roots(self) -> dict[str, str]:
        return {root.name: root.from_ for root in self._source.roots}

    @cached_property
    def private_places(self) -> tuple[str, ...]:
        """Places of the source besides the roots; a REST catalog's warehouse may be a mere name, which is none."""
        warehouse = self._source.catalog.warehouse
        return () if warehouse is None or is_relative(warehouse) else (warehouse,)

    @cached_property
    def mirror_store(self) -> ObjectStore:
        store = ObstoreStore(self._sides.mirror.catalog.properties, abilities=self.mirror_abilities)
        return RetryingStore(self.wrap_store("mirror", store))

    @cached_property
    def mirror_abilities(self) -> ProbedAbilities:
        """What the mirror's store can do, found out by the first write; refused there if it cannot create only."""
        mirror = self._sides.mirror
        return ProbedAbilities(mirror.catalog.properties, mirror.location, mirror.weaker_create)

    @cached_property
    def mirror_catalog(self) -> MirrorCatalog:
        return open_mirror(self._sides.mirror.catalog)

    @cached_property
    def state(self) -> StateDatabase | None:
        return None if self.config.state is None else StateDatabase(self.config.state.uri)

    @property
    def has_source(self) -> bool:
        return self.config.source is not None

    @cached_property
    def _sides(self) -> Sides:
        return connect(self.config, self.connections)

    def layout(self, table: TableRef) -> TableLayout:
        return TableLayout.of(self.config.mirror.location, table)

    @property
    def _source(self) -> SourceConfig:
        source = self._sides.source
        if source is None:
            raise UsageError(
                "open source", self.config.path, "the configuration has no source", "only follow and status work here"
            )
        return source

    def _store(self, side: str, properties: dict[str, str]) -> ObjectStore:
        return RetryingStore(self.wrap_store(side, ObstoreStore(properties)))

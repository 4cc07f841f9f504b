"""The ports of one installation, made from its configuration when they are first needed.

Each side has its own store with its own credentials. A follower has no source at all, and asking for it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lakemirror.catalogs.open import open_mirror, open_source
from lakemirror.catalogs.pins import SourcePins
from lakemirror.catalogs.ports import MirrorCatalog, SourceCatalog
from lakemirror.config.connect import Sides, connect
from lakemirror.config.connections import ResolveConnection, environment_connection
from lakemirror.config.models import Config
from lakemirror.config.sections import SourceConfig
from lakemirror.copying.model import OpenWire, wire_to
from lakemirror.errors import UsageError
from lakemirror.model.layout import TableLayout
from lakemirror.model.paths import is_relative
from lakemirror.model.table import TableRef
from lakemirror.observe.state import StateDatabase
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.probe import ProbedAbilities
from lakemirror.storage.wrappers.retry import RetryingStore

if TYPE_CHECKING:
    from lakemirror.catalogs.rest_commits import WithLease

WrapStore = Callable[[str, ObjectStore], ObjectStore]
WrapWire = Callable[[str, OpenWire], OpenWire]
# what tells whether two sides are one store under one account, which may then copy by itself
_ONE_STORE = (
    *("s3.endpoint", "s3.region", "s3.access-key-id", "client.region", "client.access-key-id"),
    *("gcs.service.host", "gcs.project-id", "gcs.oauth2.token"),
)


def as_it_is(side: str, store: ObjectStore) -> ObjectStore:
    return store


def wire_as_it_is(side: str, wire: OpenWire) -> OpenWire:
    return wire


@dataclass
class Ports:
    """Stores and catalogs of both sides; `wrap_store` and `wrap_wire` let a test stand between them and the library.

    `with_lease` holds a table's followers apart where its catalog cannot. `connections` is asked once, for all
    connections that the configuration names, by the first port that opens.
    """

    config: Config
    wrap_store: WrapStore = field(default=as_it_is)
    connections: ResolveConnection = field(default=environment_connection)
    wrap_wire: WrapWire = field(default=wire_as_it_is)
    with_lease: WithLease | None = None  # lets a REST catalog commit what it cannot compare, where nothing else can

    @cached_property
    def source_wire(self) -> OpenWire:
        return self.wrap_wire("source", wire_to(self.source_catalog.file_io()))

    @cached_property
    def mirror_wire(self) -> OpenWire:
        return self.wrap_wire("mirror", wire_to(self.mirror_io, self.mirror_abilities))

    @cached_property
    def is_one_store(self) -> bool:
        """Both sides are the same buckets' store by the same account; files of this machine do not count as one.

        On S3 the account must be told by its keys. On GCS it may also be that of the machine, which is one for both.
        """
        sides = (self.source_catalog.file_io(), self.mirror_io)
        theirs, ours = ({key: side.get(key) for key in _ONE_STORE} for side in sides)
        location = self.config.mirror.location
        if location.startswith("gs://"):
            is_told = any(place.startswith("gs://") for place in self.private_places)
        else:
            has_keys = ours["s3.access-key-id"] is not None or ours["client.access-key-id"] is not None
            is_told = has_keys and location.startswith("s3")
        return theirs == ours and is_told

    @cached_property
    def source_store(self) -> ObjectStore:
        return self._store("source", self.source_catalog.file_io())

    @cached_property
    def source_catalog(self) -> SourceCatalog:
        return open_source(self._source.catalog)

    @cached_property
    def source_pins(self) -> SourcePins:
        return SourcePins(self._source.catalog)

    @cached_property
    def roots(self) -> dict[str, str]:
        return {root.name: root.from_ for root in self._source.roots}

    @cached_property
    def private_places(self) -> tuple[str, ...]:
        """Places of the source besides the roots; a REST catalog's warehouse may be a mere name, which is none."""
        warehouse = self._source.catalog.warehouse
        return () if warehouse is None or is_relative(warehouse) else (warehouse,)

    @cached_property
    def mirror_io(self) -> Mapping[str, str]:
        """Properties of the mirror's store; the catalog is asked for its own once."""
        return self.mirror_catalog.file_io()

    @cached_property
    def mirror_store(self) -> ObjectStore:
        store = ObstoreStore(self.mirror_io, abilities=self.mirror_abilities, retries=False)
        return RetryingStore(self.wrap_store("mirror", store))

    @cached_property
    def mirror_abilities(self) -> ProbedAbilities:
        """What the mirror's store can do, found out by the first write; refused there if it cannot create only."""
        mirror = self._sides.mirror
        return ProbedAbilities(self.mirror_io, mirror.location, mirror.weaker_create, elsewhere=self._source_object)

    def _source_object(self) -> str | None:
        """An object of the source, if both sides are one store: the probe tries whether that copies from there."""
        if not self.has_source or not self.is_one_store:
            return None
        heads = (self.source_catalog.head(table) for table in self.source_catalog.tables())
        return next((head for head in heads if head is not None), None)

    @cached_property
    def mirror_catalog(self) -> MirrorCatalog:
        return open_mirror(self._sides.mirror.catalog, self.with_lease)

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

    def _store(self, side: str, properties: Mapping[str, str]) -> ObjectStore:
        return RetryingStore(self.wrap_store(side, ObstoreStore(properties, retries=False)))

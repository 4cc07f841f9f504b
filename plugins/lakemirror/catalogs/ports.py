"""What Lakemirror asks of a catalog: on the source side who is head, on the mirror side a compare-and-set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakemirror.catalogs.abilities import CatalogAbilities, CatalogDemands
from lakemirror.model.table import TableRef

Json = dict[str, Any]


class SourceCatalog(Protocol):
    """Read only. Errors: TransientError if the catalog cannot be reached, PermanentError if it is not a catalog."""

    def head(self, table: TableRef) -> str | None:
        """The current metadata location in one call, or None if there is no such table."""

    def tables(self) -> tuple[TableRef, ...]:
        """All tables, by name."""

    def file_io(self) -> Mapping[str, str]:
        """Properties of the store that holds the tables: those of the configuration and what the catalog hands out."""


@dataclass(frozen=True, slots=True)
class MirrorHead:
    """What the mirror catalog shows of a table.

    A catalog of pointers knows nothing but the place of a metadata file, which is ours. One that keeps metadata itself
    (REST) tells it; the file is then the server's own.
    """

    metadata_uri: str
    metadata: Json | None = field(default=None, repr=False)
    problem: str | None = None  # why a catalog that keeps metadata itself cannot show it
    token: str | None = None  # what the catalog itself compares, if that is not the place


@dataclass(frozen=True, slots=True)
class Published:
    """A version that lies in the mirror bucket, whole: its metadata file and what stands in it.

    `follows_drop`: readers have seen none of ours since the mirror was dropped, so that drop may still be on its way.
    """

    metadata_uri: str
    metadata: Json = field(repr=False)
    follows_drop: bool = False


class MirrorCatalog(Protocol):
    """The mirror's heads. `commit` is the only way a head moves; it is atomic and of many there is one winner."""

    def demands(self) -> CatalogDemands:
        """What versions must keep to; asks nobody."""

    def abilities(self) -> CatalogAbilities:
        """What this catalog can do; a server is asked once. Changes nothing."""

    def load(self, table: TableRef) -> MirrorHead | None:
        """The head in one call, or None if there is no such table."""

    def tables(self) -> tuple[TableRef, ...]:
        """All tables, by name."""

    def file_io(self) -> Mapping[str, str]:
        """Properties of the store that holds the tables: those of the configuration and what the catalog hands out."""

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        """Make `new` the head, from `expected` (None: there is no such table).

        Errors: LostRaceError if the head is another by now; TransientError if nothing was committed and may be later;
        PermanentError if the catalog will never take it (it names `unsupported_by_catalog` where no way leads there).
        A commit whose outcome nobody told is looked up, never guessed. The caller reads back: success proves nothing.
        """

    def drop(self, table: TableRef, expected: MirrorHead) -> None:
        """Take the table out of the catalog if its head is still `expected`. No object is deleted, ever.

        A table that is gone already is fine. Errors: LostRaceError if the head is another by now; PermanentError if
        the catalog cannot do it; TransientError as above. Only SQL compares and drops in one step: elsewhere the head
        is looked at right before. On REST that, and the first commit after it, is done by one at a time.
        """

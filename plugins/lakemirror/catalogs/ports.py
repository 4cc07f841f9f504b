"""What Lakemirror asks of a catalog: on the source side who is head, on the mirror side a compare-and-set."""

from __future__ import annotations

from typing import Protocol

from lakemirror.model.table import TableRef


class SourceCatalog(Protocol):
    """Read only. Errors: TransientError if the catalog cannot be reached, PermanentError if it is not a catalog."""

    def head(self, table: TableRef) -> str | None:
        """The current metadata location in one call, or None if there is no such table."""

    def tables(self) -> tuple[TableRef, ...]:
        """All tables, by name."""


class MirrorCatalog(Protocol):
    """The mirror's pointers. `swap` is the only way a pointer moves; both writes are atomic and create one winner."""

    def head(self, table: TableRef) -> str | None:
        """The current metadata location in one call, or None if there is no such table."""

    def tables(self) -> tuple[TableRef, ...]:
        """All tables, by name."""

    def register(self, table: TableRef, metadata_uri: str) -> None:
        """Make the table point at `metadata_uri`; LostRaceError if the table is there already."""

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        """Move the pointer from `expected` to `metadata_uri`; LostRaceError if it is not at `expected`."""

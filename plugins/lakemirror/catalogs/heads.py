"""The heads of many source tables: in one query where the catalog has one, else in one cheap call per table.

Bounded: never more than `workers` calls at once. A table that the catalog refuses to tell of has its PermanentError as
the answer, and one of which it cannot tell now has failed; neither keeps anybody else back. A catalog that is away
fails for a few tables, and is then not asked for the others; one that is asked for all at once raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from lakemirror.catalogs.asking import Answers, ask_all
from lakemirror.catalogs.ports import SourceCatalog
from lakemirror.errors import PermanentError
from lakemirror.model.table import TableRef

Head = str | PermanentError | None


@runtime_checkable
class TellsAllHeads(Protocol):
    """A catalog that knows the heads of all its tables in one go."""

    def heads(self) -> Mapping[TableRef, str]:
        """The metadata location of every table. Errors as of SourceCatalog."""


def read_heads(catalog: SourceCatalog, tables: Sequence[TableRef], workers: int) -> Answers[TableRef, Head]:
    """The head of each of these tables; None if there is no such table."""
    if isinstance(catalog, TellsAllHeads):
        known = catalog.heads()
        return Answers({table: known.get(table) for table in tables}, {})

    def head(table: TableRef) -> Head:
        try:
            return catalog.head(table)
        except PermanentError as err:
            return err

    return ask_all(head, tables, workers)

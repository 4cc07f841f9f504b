"""Names of tables and where they live: the vocabulary every other module speaks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakemirror.errors import UsageError

# What Airflow refuses in an id, the escape sign itself, and each `_` that could be taken for a part of the separator.
_ESCAPED_IN_DAG_ID = re.compile(r"[^A-Za-z0-9_.]|\A_|_\Z|_(?=_)|(?<=_)_")


@dataclass(frozen=True, slots=True, order=True)
class TableRef:
    """A table by namespace and name; the same on both sides of the mirror."""

    namespace: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> TableRef:
        parts = text.split(".")
        if len(parts) < 2 or not all(parts):
            raise UsageError("parse table name", repr(text), "want <namespace>.<table>", "name it like sales.orders")
        for part in parts:
            if "/" in part or part in ("..", ".") or part.startswith("_"):
                raise UsageError(
                    "parse table name", repr(text), f"{part!r} cannot be a folder of the mirror", "rename the table"
                )
        return cls(tuple(parts[:-1]), parts[-1])

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))

    @property
    def folder(self) -> str:
        """The table's folder below the mirror location: nested namespaces are joined by a dot."""
        return f"{'.'.join(self.namespace)}/{self.name}"

    def dag_id(self, concern: str) -> str:
        """`<concern>__<ns>__<table>`, of no other table: what Airflow refuses is escaped by `-XX`.

        So is each `_` next to another one or at an end of either part: `__` stands only between the parts.
        """
        return f"{concern}__{_escape('.'.join(self.namespace))}__{_escape(self.name)}"


def _escape(text: str) -> str:
    return _ESCAPED_IN_DAG_ID.sub(lambda found: "".join(f"-{byte:02x}" for byte in found[0].encode()), text)

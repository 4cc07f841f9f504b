"""Names of tables and where they live: the vocabulary every other module speaks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakemirror.errors import UsageError

_SAFE_IN_DAG_ID = re.compile(r"[A-Za-z0-9_.]")


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
        """`<concern>__<ns>__<table>`; characters Airflow refuses are escaped by `-XX`, injectively."""
        return f"{concern}__{_escape('.'.join(self.namespace))}__{_escape(self.name)}"


def _escape(text: str) -> str:
    return "".join(
        char if _SAFE_IN_DAG_ID.match(char) else "".join(f"-{byte:02x}" for byte in char.encode()) for char in text
    )

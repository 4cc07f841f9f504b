"""AWS Glue: the pointer that Iceberg keeps in a table's parameters, moved by Glue's own version of the table.

pyiceberg brings the client, from its property names. A pointer moves by UpdateTable with the VersionId that was read:
whoever comes second is told so. If no answer came, or the client had asked more than once by itself, where the
pointer is then decides what became of the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lakemirror.catalogs.abilities import CatalogAbilities, CatalogDemands
from lakemirror.catalogs.hive import POINTER, is_iceberg, pointer_of
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.storage.amazon_errors import code_of, kinds, passes, reading, wordless, words_of

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

MAX_METADATA_BYTES: Final = 20_000_000  # what Glue's own Iceberg endpoint reads
RETRIES: Final = 3
_MISSING: Final = "EntityNotFoundException"
_DENIED: Final = "AccessDeniedException"
_THERE: Final = "AlreadyExistsException"
_METHODS: Final = {"CreateTable": "create_table", "UpdateTable": "update_table", "DeleteTable": "delete_table"}
_RACED: Final = ("ConcurrentModificationException", "VersionMismatchException")
Found = TypeVar("Found")


class GlueCatalog:
    """Both ports over one Glue data catalog."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._properties = dict(properties)
        self._client: Any = None

    def __repr__(self) -> str:
        return f"GlueCatalog({self._name!r})"

    def file_io(self) -> Mapping[str, str]:
        return self._properties

    def head(self, table: TableRef) -> str | None:
        found = self._table(table)
        return None if found is None else pointer_of(found.get("Parameters") or {}, table)

    def tables(self) -> tuple[TableRef, ...]:
        def ask(client: Any) -> list[TableRef]:
            found = []
            for database, _ in _listed(client, "get_databases", "DatabaseList"):
                tables = _listed(client, "get_tables", "TableList", DatabaseName=database)
                found += [TableRef((database,), name) for name, parameters in tables if is_iceberg(parameters)]
            return found

        return tuple(sorted(self._asked("list tables", self._name, ask)))

    def load(self, table: TableRef) -> MirrorHead | None:
        found = self._table(table)
        if found is None:
            return None
        return MirrorHead(pointer_of(found.get("Parameters") or {}, table), token=found.get("VersionId"))

    def demands(self) -> CatalogDemands:
        return CatalogDemands(max_metadata_bytes=MAX_METADATA_BYTES)

    def abilities(self) -> CatalogAbilities:
        return CatalogAbilities("glue", "pointer", has_namespace_levels=False, max_metadata_bytes=MAX_METADATA_BYTES)

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        if len(table.namespace) != 1:
            hint = "mirror it to another catalog, or rename its namespace"
            message = "unsupported_by_catalog: Glue has namespaces of one level"
            raise PermanentError("commit", str(table), message, hint)
        if expected is None:
            self._register(table, new)
        else:
            self._swap(table, expected, new)

    def _register(self, table: TableRef, new: Published) -> None:
        from botocore.exceptions import ClientError

        def ask(client: Any) -> None:
            refused = _refused_database(client, table.namespace[0])
            given = {"DatabaseName": table.namespace[0], "TableInput": _input(table, new, {})}
            try:
                _change(client, "CreateTable", "register", table, given)
            except ClientError as err:
                if code_of(err) == _MISSING and refused is not None:
                    raise refused from None
                if code_of(err) != _THERE:
                    raise
                message = "somebody registered it first"
                raise LostRaceError("register", str(table), message, "run again") from err

        self._settled("register", table, None, new, ask)

    def _swap(self, table: TableRef, expected: MirrorHead, new: Published) -> None:
        from botocore.exceptions import ClientError

        found = self._table(table)
        place = None if found is None else pointer_of(found.get("Parameters") or {}, table)
        version = None if found is None else found.get("VersionId")
        if found is None or place != expected.metadata_uri or version != expected.token:
            raise self._moved(table, expected, place)
        old = found.get("Parameters") or {}

        def ask(client: Any) -> None:
            given = {
                "DatabaseName": table.namespace[0],
                "TableInput": _input(table, new, old),
                "VersionId": expected.token,
                "SkipArchive": self._properties.get("glue.skip-archive", "true").lower() == "true",
            }
            try:
                _change(client, "UpdateTable", "commit", table, given)
            except ClientError as err:
                if code_of(err) not in (*_RACED, _MISSING):
                    raise
                raise self._moved(table, expected, None) from err

        self._settled("commit", table, expected, new, ask)

    def _settled(
        self, op: str, table: TableRef, expected: MirrorHead | None, new: Published, ask: Callable[[Any], None]
    ) -> None:
        try:
            self._asked(op, str(table), ask)
        except LostRaceError:
            raise
        except TransientError as err:
            now = self.load(table)
            if now is not None and now.metadata_uri == new.metadata_uri:
                return
            if now != expected:
                want, got = (None if one is None else one.metadata_uri for one in (expected, now))
                message = f"{err.message}; then the head had moved (want {want}, got {got})"
                raise LostRaceError(op, str(table), message, "run again: it re-plans") from err
            raise TransientError(op, str(table), f"{err.message}; the head is as before", err.hint) from err

    def drop(self, table: TableRef, expected: MirrorHead) -> None:
        """Glue deletes what it knows of the table, never its files; it has no conditional delete."""
        from botocore.exceptions import ClientError

        now = self.load(table)
        if now is None:
            return
        if (now.metadata_uri, now.token) != (expected.metadata_uri, expected.token):
            raise self._moved(table, expected, now.metadata_uri, "drop")

        def ask(client: Any) -> None:
            try:
                _change(client, "DeleteTable", "drop", table, {"DatabaseName": table.namespace[0], "Name": table.name})
            except ClientError as err:
                if code_of(err) != _MISSING:
                    raise

        try:
            self._asked("drop", str(table), ask)
        except TransientError:
            if self.load(table) is not None:
                raise

    def _moved(self, table: TableRef, expected: MirrorHead, got: str | None, op: str = "commit") -> LostRaceError:
        told = f"head moved (want {expected.metadata_uri}, got {got or 'another'})"
        return LostRaceError(op, str(table), told, "run again: it re-plans")

    def _table(self, table: TableRef) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        if len(table.namespace) != 1:
            return None

        def ask(client: Any) -> dict[str, Any] | None:
            try:
                with reading():
                    found: dict[str, Any] = client.get_table(DatabaseName=table.namespace[0], Name=table.name)["Table"]
            except ClientError as err:
                if code_of(err) == _MISSING:
                    return None
                raise
            return found

        return self._asked("read head", str(table), ask)

    def _asked(self, op: str, subject: str, ask: Callable[[Any], Found]) -> Found:
        try:
            return ask(self._connected())
        except kinds() as err:
            if words := words_of(err, self._client):
                told = f"answered {code_of(err)} ({words})"
                hint = "check glue.region, its credentials and what they may do"
            else:
                told = f"{'did not answer' if passes(err) else 'cannot be asked'} ({wordless(err)})"
                hint = "check glue.region, glue.endpoint and credentials"
            message = f"Glue of catalog {self._name} {told}"
            if passes(err):
                raise TransientError(op, subject, message, "run again") from None
            raise PermanentError(op, subject, message, hint) from None

    def _connected(self) -> Any:
        from pyiceberg.catalog.glue import GlueCatalog as PyicebergCatalog

        if self._client is None:
            properties: dict[str, Any] = dict(self._properties)
            try:
                with reading(ValueError):
                    # botocore wants a number
                    properties["glue.max-retries"] = int(properties.get("glue.max-retries", RETRIES))
                    self._client = PyicebergCatalog(self._name, **properties).glue
            except ValueError as err:
                message = f"Glue of catalog {self._name} cannot be asked ({type(err).__name__})"
                raise PermanentError("open catalog", self._name, message, "check glue.*") from None
        return self._client


def _listed(client: Any, operation: str, key: str, **given: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Name and parameters of each, page by page."""
    pages: Iterator[Any] | None = None
    while True:
        with reading():
            pages = iter(client.get_paginator(operation).paginate(**given)) if pages is None else pages
            page = next(pages, None)
            found = [(one["Name"], one.get("Parameters") or {}) for one in ([] if page is None else page[key])]
        if page is None:
            return
        yield from found


def _refused_database(client: Any, name: str) -> ClientError | None:
    """Make it if it is not there. Whoever may not may still use one that is: making a table tells whether it is."""
    from botocore.exceptions import ClientError

    try:
        with reading():
            client.create_database(DatabaseInput={"Name": name})
    except ClientError as err:
        if code_of(err) == _DENIED:
            return err
        if code_of(err) != _THERE:
            raise
    return None


def _change(client: Any, operation: str, op: str, table: TableRef, given: Mapping[str, Any]) -> None:
    """Ask for it; TransientError if what is answered need not be about the first time that it was asked for.

    The client repeats by itself what went wrong, and logs in again for that: the first time may have been the one
    that counted, whatever is told of the second.
    """
    from botocore.exceptions import ClientError

    try:
        with reading():
            getattr(client, _METHODS[operation])(**given)
    except ClientError as err:
        retries = int(err.response.get("ResponseMetadata", {}).get("RetryAttempts", 0))
        if retries > 0 or err.operation_name != operation:
            message = f"Glue answered {code_of(err)} when asked again"
            raise TransientError(op, str(table), message, "run again") from None
        raise


def _input(table: TableRef, new: Published, old: Mapping[str, str]) -> dict[str, Any]:
    """Glue's columns are for its own pages; readers of Iceberg take them from the metadata file."""
    parameters = {"table_type": "ICEBERG", POINTER: new.metadata_uri}
    if POINTER in old:
        parameters[f"previous_{POINTER}"] = old[POINTER]
    return {
        "Name": table.name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "StorageDescriptor": {"Location": new.metadata["location"], "Columns": []},
    }

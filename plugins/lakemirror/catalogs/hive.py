"""Hive metastores as a source: the pointer that Iceberg keeps in a table's parameters, in one thrift call.

pyiceberg brings the thrift client; calls are made here, because its catalog would read the metadata file as well and
waits for ever where nobody answers. Nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from lakemirror.errors import PermanentError, TransientError, UnsupportedError
from lakemirror.model.table import TableRef

TIMEOUT_S: Final = 60.0
PAGE: Final = 500  # tables asked for at once
POINTER: Final = "metadata_location"
Found = TypeVar("Found")


class HiveCatalog:
    """The source port over one metastore, or several that serve the same tables (`uri` with commas)."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._properties = dict(properties)
        if properties.get("hive.kerberos-authentication", "false").lower() == "true":
            raise UnsupportedError("open catalog", name, "hive.kerberos-authentication is not in this version", "")

    def __repr__(self) -> str:
        return f"HiveCatalog({self._name!r})"

    def file_io(self) -> Mapping[str, str]:
        return self._properties

    def head(self, table: TableRef) -> str | None:
        """None also for a namespace of several levels: a metastore has no such thing."""
        from hive_metastore.ttypes import NoSuchObjectException

        if len(table.namespace) != 1:
            return None

        def ask(client: Any) -> Any:
            try:
                return client.get_table(dbname=table.namespace[0], tbl_name=table.name)
            except NoSuchObjectException:
                return None

        found = self._asked("read head", str(table), ask)
        return None if found is None else pointer_of(found.parameters or {}, table)

    def tables(self) -> tuple[TableRef, ...]:
        def ask(client: Any) -> list[TableRef]:
            found = []
            for database in client.get_all_databases():
                names = client.get_all_tables(db_name=database)
                for start in range(0, len(names), PAGE):
                    page = client.get_table_objects_by_name(dbname=database, tbl_names=names[start : start + PAGE])
                    found += [TableRef((database,), one.tableName) for one in page if is_iceberg(one.parameters or {})]
            return found

        return tuple(sorted(self._asked("list tables", self._name, ask)))

    def _asked(self, op: str, subject: str, ask: Callable[[Any], Found]) -> Found:
        """The first metastore that can be reached answers."""
        from hive_metastore.ttypes import MetaException
        from thrift.Thrift import TException
        from thrift.transport.TTransport import TTransportException

        trouble: Exception | None = None
        for uri in self._properties["uri"].split(","):
            try:
                with self._open(uri.strip()) as client:
                    return ask(client)
            except (TTransportException, OSError, EOFError) as err:
                trouble = err
            except (MetaException, TException) as err:
                message = f"the metastore of catalog {self._name} said no ({type(err).__name__}: {err})"
                raise PermanentError(op, subject, message, "check catalog.uri and the metastore's log") from err
        message = f"the metastore of catalog {self._name} did not answer ({type(trouble).__name__}: {trouble})"
        raise TransientError(op, subject, message, "run again") from trouble

    @contextmanager
    def _open(self, uri: str) -> Iterator[Any]:
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol import TBinaryProtocol
        from thrift.transport import TSocket, TTransport

        parts = urlsplit(uri)
        socket = TSocket.TSocket(parts.hostname, parts.port)
        socket.setTimeout(1000 * float(self._properties.get("hive.timeout-s", TIMEOUT_S)))
        transport = TTransport.TBufferedTransport(socket)
        transport.open()
        try:
            client = Client(TBinaryProtocol.TBinaryProtocol(transport))
            if ugi := self._properties.get("ugi"):
                client.set_ugi(*ugi.split(":"))
            yield client
        finally:
            transport.close()


def is_iceberg(parameters: Mapping[str, str]) -> bool:
    return parameters.get("table_type", "").lower() == "iceberg"


def pointer_of(parameters: Mapping[str, str], table: TableRef) -> str:
    """What Iceberg keeps in the parameters of a table, in Hive and in Glue alike."""
    place = parameters.get(POINTER)
    if not is_iceberg(parameters) or not place:
        raise PermanentError("read head", str(table), "it is not an Iceberg table", "check its name")
    return place

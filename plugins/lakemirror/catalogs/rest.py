"""Iceberg REST catalogs: the head in one call on the source side, both ports over one server.

After the first commit the head file is one that the server wrote, and what was committed is told by the metadata.
How heads move is in rest_commits.py, how a server is spoken to in rest_client.py, what one kind of server demands
besides the protocol in dialect.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lakemirror.catalogs.abilities import CatalogAbilities, CatalogDemands
from lakemirror.catalogs.dialect import REST, Dialect
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest_client import RestClient
from lakemirror.catalogs.rest_commits import REGISTER, UNSUPPORTED, RestCommits, WithLease
from lakemirror.catalogs.rest_login import MakeLogin, login_of
from lakemirror.catalogs.rest_transport import Answer, number_of
from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import metadata_shape
from lakemirror.formats.iceberg.avro_values import Malformed
from lakemirror.model.table import TableRef

MAX_PAGES: Final = 10_000
_TABLE: Final = "namespaces/{namespace}/tables/{table}"
_TRANSACTION: Final = "transactions/commit"
_NOT_MODIFIED: Final = 304
_NOT_FOUND: Final = 404
_FILE_IS_GONE: Final = "NotFoundException"  # the table is there: Iceberg's server says so of the file of its head
UNKNOWN_PLACE: Final = "(a file that is gone)"

__all__ = ["UNSUPPORTED", "RestCatalog", "WithLease"]


class RestCatalog:
    """Both ports over one server. Without `with_lease` nothing is ever sent that it does not compare."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        dialect: Dialect = REST,
        *,
        make_login: MakeLogin = login_of,
        with_lease: WithLease | None = None,
    ) -> None:
        self._client = RestClient(name, properties, make_login=make_login)
        limit = int(number_of(properties, "rest.max-metadata-bytes", dialect.max_metadata_bytes or 0))
        self._dialect = replace(dialect, max_metadata_bytes=limit or None)
        self._commits = RestCommits(self._client, self._dialect, self.load, with_lease)
        self._seen: dict[TableRef, tuple[str, str]] = {}  # ETag and place of the head, as last told

    def __repr__(self) -> str:
        return f"RestCatalog({self._client.name!r})"

    def file_io(self) -> Mapping[str, str]:
        return self._client.properties()

    # -------------------------------------------------------------------------------------------------------- source

    def head(self, table: TableRef) -> str | None:
        seen = self._seen.get(table)
        headers = {} if seen is None else {"If-None-Match": seen[0]}
        answer = self._load(table, "read head", headers, {"snapshots": "refs"})
        if answer is None:
            self._seen.pop(table, None)
            return None
        if answer.status == _NOT_MODIFIED and seen is not None:
            return seen[1]
        place = self._place(answer, table, "read head")
        if answer.e_tag:
            self._seen[table] = answer.e_tag, place
        return place

    def tables(self) -> tuple[TableRef, ...]:
        found: set[TableRef] = set()
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            parent = waiting.pop()
            query = {"parent": self._client.namespace_text(parent)} if parent else {}
            for inner in self._pages("namespaces", "namespaces", query):
                waiting.append(tuple(map(str, inner)))
            if parent:
                path = f"namespaces/{self._client.namespace_path(parent)}/tables"
                entries = self._pages(path, "identifiers", {})
                found |= {TableRef(tuple(map(str, one["namespace"])), str(one["name"])) for one in entries}
        return tuple(sorted(found, key=lambda one: (".".join(one.namespace), one.name)))

    def _pages(self, path: str, key: str, query: Mapping[str, str]) -> list[Any]:
        """A list, page by page; a namespace that vanished meanwhile has nothing."""
        found: list[Any] = []
        token = ""
        for _ in range(MAX_PAGES):
            answer = self._client.get(path, "list tables", self._client.name, query={**query, "pageToken": token})
            if answer.says_missing:
                return []
            if not answer.is_ok:
                raise self._client.explained(answer, "list tables", self._client.name)
            found += answer.body.get(key) or ()
            token = str(answer.body.get("next-page-token") or "")
            if not token:
                return found
        raise PermanentError("list tables", self._client.name, f"more than {MAX_PAGES} pages", "check the catalog")

    def _load(
        self, table: TableRef, op: str, headers: Mapping[str, str] = {}, query: Mapping[str, str] = {}
    ) -> Answer | None:
        path = self._client.table_path(table)
        answer = self._client.get(path, op, str(table), headers=headers, query=query)
        if answer.says_missing:
            return None
        if not answer.is_ok and answer.status != _NOT_MODIFIED:
            raise self._client.explained(answer, op, str(table))
        return answer

    def _place(self, answer: Answer, table: TableRef, op: str) -> str:
        place = answer.body.get("metadata-location")
        if not isinstance(place, str) or not place:
            raise PermanentError(op, str(table), "the catalog names no metadata file of it", "check the catalog")
        return place

    # -------------------------------------------------------------------------------------------------------- mirror

    def demands(self) -> CatalogDemands:
        return CatalogDemands(
            self._dialect.formats, self._dialect.max_metadata_bytes, has_server_logs=True, has_requirements=True
        )

    def abilities(self) -> CatalogAbilities:
        has, dialect = self._client.has_endpoint, self._dialect
        can_register = has("POST", REGISTER)
        return CatalogAbilities(
            dialect.type,
            "updates",
            has_namespace_levels=dialect.has_namespace_levels,
            has_register=can_register,
            has_whole_swap=self._commits.has_whole_swap,
            has_drop=has("DELETE", _TABLE),
            has_multi_table_commit=has("POST", _TRANSACTION),
            has_idempotency_keys=self._client.has_idempotency_keys,
            formats=dialect.formats,
            preview_formats=dialect.preview_formats,
            max_metadata_bytes=dialect.max_metadata_bytes,
        )

    def load(self, table: TableRef) -> MirrorHead | None:
        """What the server shows but nobody can read is a head with a `problem`: an operator may end that."""
        path = self._client.table_path(table)
        answer = self._client.get(path, "read head", str(table))
        if answer.says_missing:
            return None
        if answer.status == _NOT_FOUND and answer.error_type == _FILE_IS_GONE:
            return MirrorHead(UNKNOWN_PLACE, problem=self._client.words(answer))
        if not answer.is_ok:
            raise self._client.explained(answer, "read head", str(table))
        place, metadata = self._place(answer, table, "read head"), answer.body.get("metadata")
        if not isinstance(metadata, dict) or "format-version" not in metadata:
            return MirrorHead(place, problem="the catalog shows no table metadata")
        try:
            metadata_shape.check(metadata)
        except Malformed as err:
            return MirrorHead(place, problem=f"it is not whole: {err}")
        return MirrorHead(place, metadata)

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        self._commits.commit(table, expected, new)

    def drop(self, table: TableRef, expected: MirrorHead) -> None:
        if not self._client.has_endpoint("DELETE", _TABLE):
            message = f"{UNSUPPORTED}: the catalog cannot drop tables"
            raise PermanentError("drop", str(table), message, "see what the catalog offers; nothing was changed")
        self._commits.drop(table, expected)

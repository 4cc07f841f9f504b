"""Iceberg REST catalogs: the head in one call on the source side, commits by requirements and updates on the mirror's.

The first commit registers our metadata file. Later ones are our own JSON (no library's model stands between: those drop
fields that they do not know). The head file is then one that the server wrote, and what was committed is told by the
metadata itself. A 200 proves nothing, so callers read back; after a 409 or an answer that never came this module reads
back too, and says whether it was done, was not done, or was overtaken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakemirror.catalogs.comparison import differing
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest_client import Answer, RestClient, UnknownOutcomeError
from lakemirror.catalogs.updates import Inexpressible, commit_of
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.formats.iceberg import metadata_shape
from lakemirror.formats.iceberg.avro_values import Malformed
from lakemirror.model.table import TableRef

UNSUPPORTED: Final = "unsupported_by_catalog"
MAX_PAGES: Final = 10_000
_REGISTER: Final = "namespaces/{namespace}/register"
_NO_SUCH_ENDPOINT: Final = (404, 405, 406, 501)
_CONFLICT: Final = 409
_NOT_MODIFIED: Final = 304


class RestCatalog:
    """Both ports over one server."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._client = RestClient(name, properties)
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

    def load(self, table: TableRef) -> MirrorHead | None:
        answer = self._load(table, "read head")
        if answer is None:
            return None
        metadata = answer.body.get("metadata")
        if not isinstance(metadata, dict) or "format-version" not in metadata:
            raise PermanentError("read head", str(table), "the catalog shows no table metadata", "check the catalog")
        try:
            metadata_shape.check(metadata)
        except Malformed as err:
            raise PermanentError("read head", str(table), f"its metadata is not whole ({err})", "check it") from err
        return MirrorHead(self._place(answer, table, "read head"), metadata)

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        try:
            answer = self._register(table, new) if expected is None else self._update(table, expected.metadata, new)
        except UnknownOutcomeError as err:
            self._settle(table, expected, new, err)
            return
        if answer.is_ok:
            return
        if answer.status == _CONFLICT or answer.says_missing:
            raise self._refused(table, expected, answer)
        raise self._client.explained(answer, "commit", str(table))

    def _register(self, table: TableRef, new: Published) -> Answer:
        self._ensure_namespaces(table)
        if self._client.has_endpoint("POST", _REGISTER):
            path = _REGISTER.format(namespace=self._client.namespace_path(table.namespace))
            body = {"name": table.name, "metadata-location": new.metadata_uri}
            answer = self._client.post(path, body, "register", str(table))
            if answer.status not in _NO_SUCH_ENDPOINT:
                return answer
        return self._update(table, None, new)

    def _update(self, table: TableRef, old: dict[str, Any] | None, new: Published) -> Answer:
        try:
            commit = commit_of(old, new.metadata)
        except Inexpressible as err:
            hint = "drop the table from the mirror's catalog without deleting its files, and follow again"
            raise PermanentError("commit", str(table), f"{UNSUPPORTED}: {err}", hint) from err
        body = {"identifier": {"namespace": list(table.namespace), "name": table.name}, **commit.as_json()}
        return self._client.post(self._client.table_path(table), body, "commit", str(table))

    def _ensure_namespaces(self, table: TableRef) -> None:
        """All levels, outermost first; one that is there already is fine."""
        for depth in range(1, len(table.namespace) + 1):
            body = {"namespace": list(table.namespace[:depth]), "properties": {}}
            answer = self._client.post("namespaces", body, "make namespace", ".".join(table.namespace[:depth]))
            if not answer.is_ok and answer.status != _CONFLICT:
                raise self._client.explained(answer, "make namespace", ".".join(table.namespace[:depth]))

    def _refused(self, table: TableRef, expected: MirrorHead | None, answer: Answer) -> LostRaceError | PermanentError:
        """409: if the head has moved somebody was first; if it has not, the catalog will say the same for ever."""
        now = self.load(table)
        if _moved(expected, now):
            want, got = (None if one is None else one.metadata_uri for one in (expected, now))
            return LostRaceError("commit", str(table), f"head moved (want {want}, got {got})", "run again: it re-plans")
        told = self._client.explained(answer, "commit", str(table))
        message = f"{UNSUPPORTED}: the head has not moved, and {told.message}"
        return PermanentError("commit", str(table), message, "see what the catalog says; nothing was changed")

    def _settle(self, table: TableRef, expected: MirrorHead | None, new: Published, err: UnknownOutcomeError) -> None:
        """Nobody told what became of the commit: what the catalog shows now decides."""
        now = self.load(table)
        if now is not None and now.metadata is not None and not differing(new.metadata, now.metadata):
            return
        if _moved(expected, now):
            raise LostRaceError("commit", str(table), f"{err.message}; then the head had moved", "run again") from err
        raise TransientError("commit", str(table), f"{err.message}; it was not made", "run again") from err


def _moved(expected: MirrorHead | None, now: MirrorHead | None) -> bool:
    if expected is None or now is None:
        return (expected is None) != (now is None)
    return expected.metadata_uri != now.metadata_uri

"""A store that writes down what is asked of it, to be put between an App and its real stores.

recorder = Recorder()
lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
assert recorder.uris("source", "get") == [...]
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemirror.storage.port import Blob, ObjectInfo, ObjectStore, Written
from lakemirror.storage.wrappers.forward import ForwardingStore

READS = ("get", "stream", "head", "list")
WRITES = ("put", "delete", "copy")


@dataclass
class Recorder:
    """All calls in order, as (side, verb, uri); a delete or copy of several URIs is one call for each."""

    calls: list[tuple[str, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wrap(self, side: str, store: ObjectStore) -> ObjectStore:
        return RecordingStore(store, self, side)

    def note(self, side: str, verb: str, *uris: str) -> None:
        with self.lock:
            self.calls.extend((side, verb, uri) for uri in uris)

    def uris(self, side: str, *verbs: str) -> list[str]:
        """What was asked of a side by these verbs (all, if none is named), in order of time."""
        return [uri for where, verb, uri in self.calls if where == side and (not verbs or verb in verbs)]


class RecordingStore(ForwardingStore):
    def __init__(self, inner: ObjectStore, recorder: Recorder, side: str) -> None:
        super().__init__(inner)
        self._recorder, self._side = recorder, side

    def get(self, uri: str, **options: Any) -> Blob:
        self._recorder.note(self._side, "get", uri)
        return super().get(uri, **options)

    def stream(self, uri: str, **options: Any) -> Iterator[bytes]:
        self._recorder.note(self._side, "stream", uri)
        return super().stream(uri, **options)

    def put(self, uri: str, *args: Any, **options: Any) -> Written:
        self._recorder.note(self._side, "put", uri)
        return super().put(uri, *args, **options)

    def head(self, uri: str) -> ObjectInfo:
        self._recorder.note(self._side, "head", uri)
        return super().head(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        self._recorder.note(self._side, "list", prefix_uri)
        return super().list(prefix_uri)

    def delete(self, uris: Sequence[str]) -> None:
        self._recorder.note(self._side, "delete", *uris)
        super().delete(uris)

    def copy(self, source_uri: str, target_uri: str, *args: Any, **options: Any) -> ObjectInfo:
        self._recorder.note(self._side, "copy", source_uri, target_uri)
        return super().copy(source_uri, target_uri, *args, **options)

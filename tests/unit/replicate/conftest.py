"""A source and a mirror folder with a real store, and the context that stages work in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lakemirror.copying.model import CopySettings
from lakemirror.copying.ports import CopyPorts
from lakemirror.model.layout import TableLayout
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate.stage import StageContext
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from tests.wires import wire_over


@dataclass
class Bench:
    """Two folders below one file store; `source()` and `target()` are URIs in them."""

    store: ObjectStore
    folder: str
    memory: MemoryBuckets = field(default_factory=MemoryBuckets)

    @property
    def layout(self) -> TableLayout:
        return TableLayout(f"{self.folder}/mirror")

    @property
    def paths(self) -> PrefixMap:
        return PrefixMap.of({f"{self.folder}/source": self.layout.root})

    def source(self, name: str) -> str:
        return f"{self.folder}/source/{name}"

    def target(self, name: str) -> str:
        return f"{self.folder}/mirror/{name}"

    def copying(self, source: ObjectStore | None = None, mirror: ObjectStore | None = None, **bounds: Any) -> CopyPorts:
        """Wires over these stores, or this bench's own; uploads are shared between them."""
        return CopyPorts(
            lambda: wire_over(source or self.store, self.memory),
            lambda: wire_over(mirror or self.store, self.memory),
            CopySettings(**{"concurrency": 4, **bounds}),
        )

    def context(self, **changes: Any) -> StageContext:
        made = StageContext(
            source=self.store,
            mirror=self.store,
            paths=self.paths,
            plan_uri=self.layout.plan("p"),
            ledger_uri=self.layout.ledger("p"),
            copying=self.copying(),
            bin_files=1000,
            bin_bytes=1 << 30,
            split_bytes=1 << 40,
            ledger_flush_files=2,
        )
        return replace(made, **changes)

    def objects(self) -> dict[str, bytes]:
        """The mirror's objects by name."""
        return {
            info.uri.removeprefix(f"{self.layout.root}/"): self.store.get(info.uri).data
            for info in self.store.list(self.layout.root)
        }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(ObstoreStore({}), f"file://{tmp_path}")

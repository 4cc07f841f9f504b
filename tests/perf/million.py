"""One large manifest through planning or rewriting, in a process of its own: prints entries, seconds, peak memory.

    python -m tests.perf.million read|plan|rewrite FOLDER

FOLDER holds `source/m.avro`, made by `tests.perf.manifests` for that place. `read` takes its entries from the stage
that reads them and lets them go; `plan` makes the whole plan of a change that added it, as a run in the task lane does:
all entries at once, joined with none, packed into segments.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa

from lakemirror.copying.model import CopySettings, WireTo
from lakemirror.copying.ports import CopyPorts
from lakemirror.model.layout import TableLayout
from lakemirror.model.paths import PrefixMap
from lakemirror.model.table import TableRef
from lakemirror.replicate import plan as planning
from lakemirror.replicate.change import MANIFESTS, Change
from lakemirror.replicate.plan import TO_READ, ReadEntries
from lakemirror.replicate.rewrite import RewriteManifests
from lakemirror.replicate.stage import LocalEngine, StageContext
from lakemirror.storage.objects import ObstoreStore


def main(what: str, folder: Path) -> int:
    source = folder / "source" / "m.avro"
    layout = TableLayout((folder / "mirror").as_uri())
    store = ObstoreStore({})
    paths = PrefixMap.of({(folder / "source").as_uri(): layout.root})
    ports = CopyPorts(WireTo(()), WireTo(()), CopySettings())
    plan, ledger = layout.plan("p"), layout.ledger("p")
    context = StageContext(store, store, paths, plan, ledger, ports, 1000, 1 << 40, 1 << 40, 1000)
    uri, length = source.as_uri(), source.stat().st_size
    before_mb = _peak_mb()
    start = time.perf_counter()
    if what == "read":
        rows = pa.RecordBatch.from_pylist([{"uri": uri, "length": length, "is_source": True}], TO_READ)
        answer = sum(batch.num_rows for batch in ReadEntries(context)(iter([rows])))
    elif what == "plan":
        answer = planning.make(added(uri, length, f"{layout.root}/m.avro", paths), context, LocalEngine()).files
    else:
        row = {"source": uri, "target": f"{layout.root}/m.avro", "has_deletes": False, "entries": None}
        rows = pa.RecordBatch.from_pylist([{**row, "source_length": length}])
        answer = sum(batch["target_length"][0].as_py() for batch in RewriteManifests(context, ())(iter([rows])))
    spent = time.perf_counter() - start
    print(json.dumps({"answer": answer, "seconds": spent, "peak_mb": _peak_mb(), "before_mb": before_mb}))
    return 0


def added(uri: str, length: int, target: str, paths: PrefixMap) -> Change:
    """A first version that has nothing but this manifest."""
    row = {"source": uri, "target": target, "source_length": length, "has_deletes": True, "carries_over": False}
    manifests = pa.Table.from_pylist([{**row, "state": "added", "snapshots": [1]}], MANIFESTS)
    return Change(
        table=TableRef.parse("db.t"),
        plan_id="p",
        epoch="e",
        version=1,
        from_version=None,
        parent_checksum=None,
        demoted=(),
        dropped=0,
        lift=0,
        source_metadata_location=uri,
        source_fingerprint="f",
        head=1,
        retained=(1,),
        referenced=(1,),
        new_lists=(),
        dangling=(),
        statistics=(),
        known_statistics=frozenset(),
        files_at_most=0,
        lane="task",
        rules=paths.rules,
        private=paths.private,
        generation="g",
        left_out=(),
        manifests=manifests,
    )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

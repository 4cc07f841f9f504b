"""One large manifest through planning or rewriting, in a process of its own: prints entries, seconds, peak memory.

    python -m tests.perf.million read|rewrite FOLDER

FOLDER holds `source/m.avro`, made by `tests.perf.manifests` for that place.
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
from lakemirror.replicate.plan import TO_READ, ReadEntries
from lakemirror.replicate.rewrite import RewriteManifests
from lakemirror.replicate.stage import StageContext
from lakemirror.storage.objects import ObstoreStore


def main(what: str, folder: Path) -> int:
    source = folder / "source" / "m.avro"
    layout = TableLayout((folder / "mirror").as_uri())
    store = ObstoreStore({})
    paths = PrefixMap.of({(folder / "source").as_uri(): layout.root})
    ports = CopyPorts(WireTo(()), WireTo(()), CopySettings())
    plan, ledger = layout.plan("p"), layout.ledger("p")
    context = StageContext(store, store, paths, plan, ledger, ports, 1000, 1 << 30, 1 << 30, 1000)
    length = source.stat().st_size
    start = time.perf_counter()
    if what == "read":
        rows = pa.RecordBatch.from_pylist([{"uri": source.as_uri(), "length": length, "is_source": True}], TO_READ)
        answer = sum(batch.num_rows for batch in ReadEntries(context)(iter([rows])))
    else:
        row = {"source": source.as_uri(), "target": f"{layout.root}/m.avro", "has_deletes": False}
        rows = pa.RecordBatch.from_pylist([{**row, "source_length": length}])
        answer = sum(batch["target_length"][0].as_py() for batch in RewriteManifests(context, ())(iter([rows])))
    spent = time.perf_counter() - start
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"answer": answer, "seconds": spent, "peak_mb": peak_mb}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

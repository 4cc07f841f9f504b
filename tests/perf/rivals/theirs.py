"""`rewrite_table_path` on a table of `tables`, in a process of its own: prints its seconds.

    python -m tests.perf.rivals.theirs FOLDER full|commit

`full` takes the version in which every snapshot has a tag; `commit` the step from the version before the last commit to
the one after it. The clock runs for the call alone: the session is up and has answered a query.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.perf.rivals import session as sessions
from tests.perf.rivals.tables import NAME, load


def main(folder: Path, what: str) -> int:
    made = load(folder)
    if made is None:
        raise RuntimeError(f"no table in {folder}: make it first")
    scratch = Path(tempfile.mkdtemp(prefix="lakemirror-theirs-"))
    session = sessions.start([made.lake], scratch / "spark")
    try:
        session.sql(f"SELECT name FROM {made.lake.name}.{NAME}.refs LIMIT 1").collect()
        home = sessions.java_table(session, f"{made.lake.name}.{NAME}").location()
        versions = (
            f"end_version => '{Path(made.tagged).name}'"
            if what == "full"
            else f"start_version => '{Path(made.before).name}', end_version => '{Path(made.after).name}'"
        )
        start = time.perf_counter()
        (row,) = session.sql(
            f"CALL {made.lake.name}.system.rewrite_table_path(table => '{NAME}', source_prefix => '{home}', "
            f"target_prefix => '{(scratch / 'mirror').as_uri()}', "
            f"staging_location => '{(scratch / 'staging').as_uri()}', "
            f"{versions})"
        ).collect()
        spent = time.perf_counter() - start
        staged = [path.name for path in (scratch / "staging").rglob("*") if path.is_file()]
        answer = {
            "seconds": spent,
            "metadata": sum(name.endswith(".metadata.json") for name in staged),
            "lists": sum(name.startswith("snap-") for name in staged),
            "manifests": sum(name.endswith(".avro") and not name.startswith("snap-") for name in staged),
            "result": row.asDict(),
        }
    finally:
        session.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))

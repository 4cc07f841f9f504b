"""
### Finds the tables that patterns in the configuration match

**What.** Asks the catalog for its tables, keeps those that `match:` entries select, and writes their names to the file
that the other DAGs are generated from. A table that newly matches gets its DAGs at the next parse, without a restart.
There is no such DAG if the configuration names every table.

**Safe to rerun?** Yes. The list is replaced in one step, and only if it changed.

**When it fails.** The old list stays, so every DAG stays. A table that was dropped at the source stays listed, and so
does its mirror; to be rid of its DAGs, exclude it in the configuration.

**Owner.** lakemirror
"""

from pathlib import Path

from lakemirror.airflow.factory import read_setup, resolve_dags

for dag in resolve_dags(read_setup(Path(__file__).parent), __doc__):
    globals()[dag.dag_id] = dag

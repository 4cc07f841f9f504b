"""
### Mirrors one table to the cloud

**What.** Looks whether the source table changed. If it did, copies the files that are new, rewrites the metadata to
the mirror's paths, verifies, and publishes the version as `_ready/vN.ready.json`. Readers of the mirror see nothing
of it until `follow__…` moves the catalog.

| task | does |
|---|---|
| `detect_change` | one catalog call. Nothing to do: everything is skipped. Small change: the whole way, in this task |
| `plan_diff` | Spark: what changed since the mirror's newest version |
| `copy_objects` | Spark: copies the files, with a ledger of what is done |
| `rewrite_metadata` | Spark: manifests, manifest lists, metadata with the mirror's paths |
| `publish_version` | verifies, then publishes the ready marker |

**When.** On its schedule; with `mirror_trigger: watch` also when a watcher sees a new head in the source's catalog.

**Safe to rerun?** Yes, any task and the whole run, at any time; finished work is not done twice, and a version that
was published is never altered. Two runs of one table cannot both publish: the second stops and says so.

**When it fails.** Transient errors were retried already. Read the last line of the failed task: it names the
operation, the object and the next step. A source file that vanished, or a lost race, needs nothing: the next run
plans anew. `bin/lakemirror plan TABLE` shows what the next run would do, `bin/lakemirror status TABLE` where it stands.

**Trigger by hand** with a dry run, a target snapshot or a full verify (see the form).

**Owner.** lakemirror
"""

from pathlib import Path

from lakemirror.airflow.factory import mirror_dags, read_setup

for dag in mirror_dags(read_setup(Path(__file__).parent), __doc__):
    globals()[dag.dag_id] = dag

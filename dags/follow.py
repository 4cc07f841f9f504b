"""
### Moves one mirror table to its newest ready version

**What.** Takes the newest `_ready/vN.ready.json` in the mirror bucket, checks it, and moves the mirror catalog to it by
compare-and-set. Needs nothing but the bucket and the mirror catalog: it may run in another Airflow than `mirror__…`.

**When.** At the event that `mirror__…` emits when it has published, and on a schedule of its own, because an event is
only a hint. `follow_trigger` may name other events: a watcher on the bucket (`bucket`), its notifications (`pubsub`,
`sqs`), or the task `await_ready`, which watches the bucket in each scheduled run (`sensor`).

**Safe to rerun?** Yes. At the newest version already: the task is skipped. Several versions ready: only the newest is
applied.

**When it fails.** Transient errors were retried already. *Foreign commit*: somebody wrote to the mirror table; nothing
was touched. Look at `bin/lakemirror status TABLE`, then decide with `bin/lakemirror follow TABLE --adopt` or
`--overwrite-foreign`.

**Owner.** lakemirror
"""

from pathlib import Path

from lakemirror.airflow.factory import follow_dags, read_setup

for dag in follow_dags(read_setup(Path(__file__).parent), __doc__):
    globals()[dag.dag_id] = dag

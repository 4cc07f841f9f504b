"""The plugin Airflow loads: it only gives lakemirror a name in the list of plugins.

Operators, sensors and triggers are imported from `lakemirror.airflow` and need no registration.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class LakemirrorPlugin(AirflowPlugin):
    name = "lakemirror"

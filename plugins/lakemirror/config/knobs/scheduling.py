"""When a table's runs start, and how they are tried again."""

from __future__ import annotations

from typing import Literal

from lakemirror.config.cron import Cron
from lakemirror.config.quantities import Count, Seconds
from lakemirror.config.section import Section, knob


class SchedulingKnobs(Section, defer_build=True):
    """When a table's runs start, and how they are tried again."""

    schedule: Cron | None = knob(
        "*/5 * * * *",
        "When `mirror__<ns>__<table>` runs: five cron fields, a preset such as `@hourly`, or null (triggered only).",
        requirement="A4",
    )
    mirror_trigger: Literal["schedule", "watch"] = knob(
        "schedule",
        "What starts the replicator: its schedule alone, or also a watcher on the source catalog's heads, with the "
        "schedule as the net below it.",
        requirement="A4, T43",
    )
    follow_schedule: Cron | None = knob(
        "*/10 * * * *",
        "When `follow__<ns>__<table>` runs by itself, as the net below events; null: never.",
        requirement="A4, T43",
    )
    follow_trigger: Literal["asset", "sensor", "bucket", "pubsub", "sqs"] = knob(
        "asset",
        "What starts the follower early: the asset event of a mirror run in the same Airflow; or, for a follower in "
        "another Airflow, an asset watcher that polls the bucket's `_ready/` folders, one that reads the bucket's "
        "notifications from Pub/Sub or SQS (see `events`), or a deferred sensor in each scheduled run.",
        requirement="A4, A6",
    )
    retries: Count = knob(
        3,
        "How often Airflow tries a task again after a transient error.",
        requirement="M3",
        ge=0,
        le=100,
    )
    retry_delay_seconds: Seconds = knob(
        60,
        "How long Airflow waits before it tries again.",
        requirement="M3",
        unit="seconds",
        ge=0,
    )
    execution_timeout_seconds: Seconds = knob(
        6 * 3600,
        "A task that runs longer is ended; the next run resumes where it stopped.",
        requirement="M3",
        unit="seconds",
        ge=1,
    )
    priority: Count = knob(
        1,
        "Airflow's priority weight of the table's tasks: the larger, the sooner they get a free slot.",
        requirement="M21",
        ge=1,
        le=1000,
    )
    group: str | None = knob(
        None,
        "Tables of a group share a watermark: the time up to which all of them are visible (`_groups/<name>.json` in "
        "the mirror bucket, `lakemirror groups`).",
        requirement="M21",
    )

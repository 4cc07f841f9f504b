"""How much is copied at once, in which portions, and where the work is done."""

from __future__ import annotations

from lakemirror.config.quantities import Bytes, Count, Fraction, Seconds
from lakemirror.config.section import Section, knob


class CopyKnobs(Section, defer_build=True):
    """How much is copied at once, in which portions, and where the work is done."""

    max_concurrency: Count = knob(
        64,
        "Requests to one store in flight at once, of all copy tasks together; fewer while the store asks for less.",
        requirement="M3, M17 §11",
        is_live=True,
        ge=1,
        le=4096,
    )
    rate_limit: Fraction = knob(
        0.75,
        "The share of `peak_bandwidth_bytes_per_s` that copies may use. No limit while that peak is not declared.",
        requirement="M3, M17 §11",
        unit="fraction",
        is_live=True,
        gt=0,
        le=1,
    )
    peak_bandwidth_bytes_per_s: Bytes | None = knob(
        None,
        "What the line carries at its best; null: not declared. Shared by all tasks of one run.",
        requirement="M3, M17 §11",
        unit="bytes/s",
        is_live=True,
        ge=1,
    )
    peak_requests_per_s: Count | None = knob(
        None,
        "What the stores take at their best; null: not declared. `rate_limit` of it is shared by all tasks of one run, "
        "to both stores together.",
        requirement="M3, M12 §19",
        unit="requests/s",
        is_live=True,
        ge=1,
    )
    small_change_files: Count = knob(
        256,
        "A change of at most so many files (and `small_change_bytes`) is mirrored inside the Airflow task, a larger "
        "one by Spark. 0: always by Spark.",
        requirement="M3",
        unit="files",
        ge=0,
    )
    small_change_bytes: Bytes = knob(
        256 * 10**6,
        "See `small_change_files`.",
        requirement="M3",
        unit="bytes",
        ge=0,
    )
    bin_files: Count = knob(
        1000,
        "One copy task gets at most so many files.",
        requirement="M3 §6.3",
        unit="files",
        ge=1,
    )
    bin_bytes: Bytes = knob(
        1024**3,
        "One copy task gets about so many bytes, and as many as the others.",
        requirement="M3 §6.3",
        unit="bytes",
        ge=1,
    )
    ledger_flush_files: Count = knob(
        64,
        "A copy task writes down what it has finished after so many files; a crash copies at most those again.",
        requirement="M3",
        unit="files",
        ge=1,
    )

    copy_split_bytes: Bytes = knob(
        512 * 1024**2,
        "A larger file is copied by several tasks, each a range of about this size, into one upload.",
        requirement="M3 §6.3",
        unit="bytes",
        ge=1,
    )
    copy_part_bytes: Bytes = knob(
        16 * 1024**2,
        "A file that does not go whole is read and sent in parts of this size, several at once. Stores want at least 5 "
        "MiB and at most 10,000 parts: where this does not fit, parts are larger. Over plain HTTP they may be the "
        "source's own.",
        requirement="M3",
        unit="bytes",
        ge=1,
    )
    copy_whole_bytes: Bytes = knob(
        64 * 1024**2,
        "A file up to this size goes whole, by one read and one write, if three of its size fit into four fifths of "
        "`copy_memory_bytes`. One that is not larger than `copy_part_bytes` always does.",
        requirement="M3",
        unit="bytes",
        ge=1,
    )
    copy_memory_bytes: Bytes = knob(
        256 * 10**6,
        "What one copy task may take in memory at once: four fifths for the files that it holds, the rest for "
        "connections.",
        requirement="M3",
        unit="bytes",
        ge=1024**2,
    )
    copy_attempts: Count = knob(
        8,
        "How often one request of a copy is tried, with growing random pauses, or those that the store asks for.",
        requirement="M3",
        ge=1,
        le=100,
    )
    copy_retry_budget: Count = knob(
        1000,
        "How many requests one copy task repeats in all before it gives up; the next run goes on from the ledger.",
        requirement="M3",
        unit="requests",
        ge=0,
    )
    object_deadline_seconds: Seconds = knob(
        1800,
        "A file that is sent at once, or one part of a larger one, may take the stores so long with all its tries; "
        "waiting for the line is not counted. A whole file of parts is bounded by `copy_deadline_seconds`.",
        requirement="M3",
        unit="seconds",
        ge=1,
    )
    copy_deadline_seconds: Seconds | None = knob(
        24 * 3600,
        "All copying of one run ends after this time and counts as transient: the next run goes on from the ledger. "
        "In the Spark lane it counts from the first copy of the run, with all retries of its tasks; in the task lane "
        "each try of the task has it. null: `execution_timeout_seconds` alone bounds each task.",
        requirement="M3",
        unit="seconds",
        ge=1,
    )
    max_replans: Count = knob(
        3,
        "How often one run plans anew at the source's head because a planned file is gone there. In the Spark lane, "
        "how often each of its three jobs does.",
        requirement="T31",
        ge=0,
        le=100,
    )
    source_pin_seconds: Seconds | None = knob(
        None,
        "With a time, each run tags the snapshots that it reads on the source (`lakemirror-pin-…`), so that none can "
        "be expired meanwhile, and drops the tags when it has published. It is a commit on the source, and needs the "
        "right to. A tag that was left behind is dropped by the next run of this mirror, or by the source's expiry "
        "after this time. null: nothing is ever written there.",
        requirement="T31",
        unit="seconds",
        ge=60,
    )

    @property
    def requests_limit_per_s(self) -> float | None:
        """`rate_limit` of the declared peak; None: no limit."""
        peak = self.peak_requests_per_s
        return None if peak is None else peak * self.rate_limit

    @property
    def bandwidth_limit_bytes_per_s(self) -> int | None:
        """`rate_limit` of the declared peak; None: no limit."""
        peak = self.peak_bandwidth_bytes_per_s
        return None if peak is None else max(1, int(peak * self.rate_limit))

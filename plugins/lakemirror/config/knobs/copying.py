"""How much is copied at once, in which portions, and where the work is done."""

from __future__ import annotations

from lakemirror.config.quantities import Bytes, Count, Fraction
from lakemirror.config.section import Section, knob


class CopyKnobs(Section, defer_build=True):
    """How much is copied at once, in which portions, and where the work is done."""

    max_concurrency: Count = knob(
        64,
        "Objects in flight at once.",
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
        "One copy task gets about so many bytes; a larger file is a task of its own.",
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

    @property
    def bandwidth_limit_bytes_per_s(self) -> int | None:
        """`rate_limit` of the declared peak; None: no limit."""
        peak = self.peak_bandwidth_bytes_per_s
        return None if peak is None else max(1, int(peak * self.rate_limit))

"""Source against mirror, read with pyiceberg from both catalogs: rows by content, files and bytes by count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from pyiceberg.catalog import Catalog

from dev.lake import Fingerprint, fingerprint, head

VERSION = "lakemirror.version"  # the table property in which the mirror says which version it shows
KB = 1000


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table on both sides. `lag_s` is from the last commit on the source until readers of the mirror saw it."""

    table: str
    source: Fingerprint | None
    mirror: Fingerprint | None
    version: str
    lag_s: float | None
    lanes: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        if self.source is None or self.mirror is None:
            return False
        is_same_version = self.source.snapshot_id == self.mirror.snapshot_id
        is_same_size = (self.source.files, self.source.size_bytes) == (self.mirror.files, self.mirror.size_bytes)
        return is_same_version and is_same_size and self.source.holds_the_same_as(self.mirror)


def compare(
    table: str, source: Catalog, mirror: Catalog, *, visible_at: datetime | None, lanes: Sequence[str]
) -> Comparison:
    ours, theirs = head(source, table), head(mirror, table)
    wanted = fingerprint(ours) if ours else None
    committed_at = wanted.committed_at if wanted else None
    return Comparison(
        table=table,
        source=wanted,
        mirror=fingerprint(theirs) if theirs else None,
        version=f"v{theirs.properties.get(VERSION, '?')}" if theirs else "-",
        lag_s=(visible_at - committed_at).total_seconds() if visible_at and committed_at else None,
        lanes=tuple(lanes),
    )


def write_table(comparisons: Sequence[Comparison], out: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    for heading in ("table", "side", "rows", "snapshot", "version", "lag", "files", "bytes", "lane", "content"):
        grid.add_column(heading, justify="right" if heading in ("rows", "files", "bytes", "lag") else "left")
    for one in comparisons:
        verdict = "[green]same rows[/]" if one.agrees else "[bold red]DIFFERENT[/]"
        lag = "-" if one.lag_s is None else f"{one.lag_s:.0f} s"
        grid.add_row(one.table, "source", *_facts(one.source, "-", "-"), "", _digest(one.source))
        grid.add_row("", "mirror", *_facts(one.mirror, one.version, lag), ", ".join(one.lanes) or "-", verdict)
        grid.add_section()
    # Redirected output has no width of its own: rather long lines than cut numbers.
    Console(file=out, width=None if out.isatty() else 120).print(grid)


def _facts(found: Fingerprint | None, version: str, lag: str) -> tuple[str, ...]:
    if found is None:
        return ("-", "-", version, lag, "-", "-")
    size = f"{found.size_bytes / KB:,.1f} kB"
    return (f"{found.rows:,}", str(found.snapshot_id), version, lag, str(found.files), size)


def _digest(found: Fingerprint | None) -> str:
    return found.digest[:10] if found else "-"

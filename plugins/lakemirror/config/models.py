"""The whole configuration: frozen, validated, and able to say where each of its values came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr

from lakemirror.config.cache import CacheConfig
from lakemirror.config.knobs import Knobs
from lakemirror.config.problems import KeyPath
from lakemirror.config.quantities import refuse_null
from lakemirror.config.section import Section
from lakemirror.config.sections import (
    EventsConfig,
    MirrorConfig,
    SourceConfig,
    SparkConfig,
    StateConfig,
    TableEntry,
)
from lakemirror.errors import UsageError
from lakemirror.model.table import TableRef


def _empty_map(value: object) -> object:
    return {} if value is None else value


def _empty_list(value: object) -> object:
    return [] if value is None else value


class Config(Section):
    """Made by `lakemirror.config.loader.load_config`, which also checks what no single key can tell."""

    source: Annotated[SourceConfig | None, BeforeValidator(refuse_null)] = Field(
        default=None, description="Where the tables come from. A follower has none."
    )
    mirror: MirrorConfig = Field(description="Where the copy goes.")
    state: Annotated[StateConfig | None, BeforeValidator(refuse_null)] = Field(
        default=None, description="The database of runs, lag and cost."
    )
    spark: Annotated[SparkConfig, BeforeValidator(_empty_map)] = Field(
        default=SparkConfig(), description="How Spark jobs are started."
    )
    events: Annotated[EventsConfig, BeforeValidator(_empty_map)] = Field(
        default=EventsConfig(), description="What starts runs early, besides schedules."
    )
    cache: Annotated[CacheConfig, BeforeValidator(_empty_map)] = Field(
        default=CacheConfig(), description="The metadata cache."
    )
    defaults: Annotated[Knobs, BeforeValidator(_empty_map)] = Field(
        default=Knobs(), description="Knobs of every table that does not say otherwise."
    )
    tables: Annotated[tuple[TableEntry, ...], BeforeValidator(_empty_list)] = Field(
        default=(), description="Which tables are mirrored. The first entry that matches a table wins."
    )

    _path: str = PrivateAttr(default="")
    _lines: Mapping[KeyPath, int] = PrivateAttr(default_factory=dict)
    _secret_paths: frozenset[KeyPath] = PrivateAttr(default=frozenset())
    # Position of every exact name, and all patterns with theirs: a look-up costs no walk through all entries.
    _exact: dict[str, int] = PrivateAttr(default_factory=dict)
    _patterns: tuple[tuple[int, TableEntry], ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any, /) -> None:
        self._patterns = tuple((index, entry) for index, entry in enumerate(self.tables) if entry.match is not None)
        for index, entry in enumerate(self.tables):
            if entry.name is not None:
                self._exact.setdefault(entry.name, index)

    @property
    def path(self) -> str:
        """The file it was read from, as it was named."""
        return self._path

    @property
    def has_patterns(self) -> bool:
        """Whether a catalog must be asked which tables there are."""
        return bool(self._patterns)

    def exact_tables(self) -> tuple[TableRef, ...]:
        """The tables that are named, in the order of the file."""
        return tuple(TableRef.parse(entry.name) for entry in self.tables if entry.name is not None)

    def entry_for(self, table: TableRef) -> TableEntry | None:
        """The first entry that covers the table; None: it is not mirrored."""
        index = self._index_for(str(table))
        return None if index is None else self.tables[index]

    def knobs_for(self, table: TableRef) -> Knobs:
        """What is in force for a table: built-in defaults, then `defaults:`, then its entry."""
        entry = self.entry_for(table)
        return self.defaults if entry is None else self.defaults.overridden_by(entry.overrides)

    def match(self, names: Iterable[str]) -> tuple[TableRef, ...]:
        """Of these names of tables those that are mirrored, in name order; what `refused` lists is left out."""
        parsed = map(_parsed, set(self._covered(names)))
        return tuple(sorted((result for result in parsed if isinstance(result, TableRef)), key=str))

    def refused(self, names: Iterable[str]) -> dict[str, str]:
        """Names that a pattern matches but that cannot be mirrored, in name order, and why: to be told of each."""
        parsed = {name: _parsed(name) for name in sorted(set(self._covered(names)))}
        return {name: result.message for name, result in parsed.items() if isinstance(result, UsageError)}

    def explain(self, table: TableRef | None = None) -> dict[str, dict[str, Any]]:
        """Every value in force, with `from`: "default" or file:line. Of one table: its knobs.

        UsageError if no entry covers that table.
        """
        from lakemirror.config.explain import explain_all, explain_table

        if table is None:
            return explain_all(self, self._path, self._lines, self._secret_paths)
        return explain_table(self, table, self._path, self._lines, self._secret_paths)

    def remember_origin(self, path: str, lines: Mapping[KeyPath, int], secrets: frozenset[KeyPath]) -> None:
        """Called once, by the loader."""
        self._path, self._lines, self._secret_paths = path, lines, secrets

    def _covered(self, names: Iterable[str]) -> Iterable[str]:
        return (name for name in names if self._index_for(name) is not None)

    def _index_for(self, name: str) -> int | None:
        exact = self._exact.get(name)
        for index, entry in self._patterns:
            if exact is not None and exact < index:
                break
            if entry.covers(name):
                return index
        return exact


def _parsed(name: str) -> TableRef | UsageError:
    try:
        return TableRef.parse(name)
    except UsageError as err:
        return err

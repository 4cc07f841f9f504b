"""The sections of the file that say where things are: source, mirror, state, spark, events, entries of `tables`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from lakemirror.config.knobs import Knobs
from lakemirror.config.quantities import Seconds, refuse, refuse_null
from lakemirror.config.section import Section
from lakemirror.errors import UsageError
from lakemirror.model.table import TableRef

SourceCatalogType = Literal["sql", "rest", "hive", "glue"]
MirrorCatalogType = Literal["sql", "rest", "blms", "glue"]

_ROOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
# What Airflow accepts as the id of a connection.
_CONN_ID = re.compile(r"[A-Za-z0-9_#!()\-.:/\\]{1,250}", re.ASCII)
_GLOB_CHARACTERS = re.compile(r"[*?\[\]]")


def _check_root_name(name: str) -> str:
    if not _ROOT_NAME.fullmatch(name):
        raise refuse("a name of letters, digits, `_`, `-` and `.`: it becomes the folder `_roots/<name>`")
    return name


def _check_conn_id(conn_id: str) -> str:
    if not _CONN_ID.fullmatch(conn_id):
        raise refuse("the id of an Airflow connection", "up to 250 letters, digits and `_-.:/#!()`")
    return conn_id


def _check_table_name(name: str) -> str:
    if _GLOB_CHARACTERS.search(name):
        raise refuse("the exact name of a table", "write `match:` for a pattern")
    try:
        TableRef.parse(name)
    except UsageError as err:
        raise refuse("a table name, <namespace>.<table>", err.message) from err
    return name


def _check_short_name(name: str) -> str:
    if "/" in name:
        raise refuse("the short name of a subscription", "leave out projects/…/subscriptions/")
    return name


def _check_state_uri(uri: str) -> str:
    if not uri.startswith(("sqlite", "postgresql")):
        raise refuse("the address of a SQLite or PostgreSQL database")
    return uri


Text = Annotated[str, Field(min_length=1)]


CATALOG_KEYS = ("name", "type", "conn_id")


class CatalogConfig(Section):
    """A catalog. Every key but `name`, `type` and `conn_id` is a pyiceberg property and reaches it as it is."""

    name: Text = Field(description="The catalog's name; a SQL catalog keeps its tables under it.")
    type: str
    conn_id: Annotated[str, AfterValidator(_check_conn_id)] | None = Field(
        default=None, description="Airflow's connection; gives the properties that are not in the file."
    )
    properties: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, data: Any) -> Any:
        """The file has properties beside its own keys; here they are a map of their own."""
        if not isinstance(data, dict):
            return data
        properties = {key: value for key, value in data.items() if key not in CATALOG_KEYS}
        return {**{key: data[key] for key in CATALOG_KEYS if key in data}, "properties": properties}

    @property
    def uri(self) -> str | None:
        return self.properties.get("uri")

    @property
    def warehouse(self) -> str | None:
        return self.properties.get("warehouse")

    def says(self, *keys: str) -> bool:
        """Whether nothing but the file decides these properties; an open connection may bring what is missing."""
        return self.conn_id is None or all(key in self.properties for key in keys)

    def filled(self, found: Mapping[str, str]) -> Self:
        """With what its connection said: the file's own keys win, all others are secret, and the id is gone."""
        added = {key: value for key, value in found.items() if key not in self.properties}
        full = self.model_copy(update={"conn_id": None, "properties": {**self.properties, **added}})
        full.hide_values({*self._secrets, *(f"properties.{key}" for key in added)})
        return full


class SourceCatalogConfig(CatalogConfig):
    """The catalog of the source; only read."""

    type: SourceCatalogType = Field(description="Kind of catalog.")


class MirrorCatalogConfig(CatalogConfig):
    """The catalog through which the mirror is read."""

    type: MirrorCatalogType = Field(description="Kind of catalog (docs/catalogs.md).")


class RootConfig(Section):
    """A further place where files of source tables may live."""

    name: Annotated[Text, AfterValidator(_check_root_name)] = Field(
        description="Its files go to `_roots/<name>/` of the mirror table."
    )
    from_: Text = Field(alias="from", description="Location on the source side.")


class SourceConfig(Section):
    """Where the tables come from."""

    catalog: SourceCatalogConfig = Field(description="The source's catalog and FileIO, by pyiceberg's property names.")
    roots: tuple[RootConfig, ...] = Field(
        default=(), description="Further locations that table files may live under, besides the table's own."
    )


class MirrorConfig(Section):
    """Where the copy goes."""

    catalog: MirrorCatalogConfig = Field(description="The mirror's catalog and FileIO, by pyiceberg's property names.")
    location: Text = Field(description="A table lives in `<location>/<namespace>/<table>`.")
    weaker_create: Literal["look_then_write"] | None = Field(
        default=None,
        description="Accept a store that does not keep create-only writes: look first, then write (docs/stores.md).",
    )


class StateConfig(Section):
    """The database of runs, lag and cost; never Airflow's own."""

    uri: Annotated[Text, AfterValidator(_check_state_uri)] = Field(description="`sqlite:///…` or `postgresql://…`.")


class SparkConfig(Section):
    """How Spark jobs are started."""

    conn_id: Text = Field(default="spark_default", description="Airflow's connection; decides inside Airflow.")
    master: Text = Field(default="local[*]", description="The master that the CLI uses.")
    conf: dict[str, str] = Field(default={}, description="Spark settings for every job.")


class PubsubConfig(Section):
    """The subscription that gets the notifications of a mirror bucket in GCS."""

    conn_id: Annotated[Text, AfterValidator(_check_conn_id)] = Field(
        default="google_cloud_default", description="Airflow's connection of the google provider."
    )
    project_id: Text = Field(description="The project that has the subscription.")
    subscription: Annotated[Text, AfterValidator(_check_short_name)] = Field(
        description="Its name, without the path; nobody else may read from it."
    )


class SqsConfig(Section):
    """The queue that gets the notifications of a mirror bucket in S3."""

    conn_id: Annotated[Text, AfterValidator(_check_conn_id)] = Field(
        default="aws_default", description="Airflow's connection of the amazon provider; `endpoint_url` is obeyed."
    )
    queue_url: Text = Field(description="Its address; nobody else may read from it.")
    region: Text | None = Field(default=None, description="Its region; null: what the connection says.")


class EventsConfig(Section):
    """What watchers look at, and how often. Events are hints: schedules stay as the net below them."""

    poll_seconds: Seconds = Field(
        default=5, ge=1, le=3600, description="How long a watcher rests between two looks at all its tables."
    )
    pubsub: Annotated[PubsubConfig | None, BeforeValidator(refuse_null)] = Field(
        default=None, description="For tables with `follow_trigger: pubsub`."
    )
    sqs: Annotated[SqsConfig | None, BeforeValidator(refuse_null)] = Field(
        default=None, description="For tables with `follow_trigger: sqs`."
    )


class TableEntry(Section):
    """One table by name, or all tables a pattern matches, with knobs of their own.

    `overrides` holds what the entry says itself; ask `Config.knobs_for` for what is in force.
    """

    model_config = ConfigDict(str_min_length=1)

    name: Annotated[str, AfterValidator(_check_table_name)] | None = Field(
        default=None, description="Exact name, `<namespace>.<table>`."
    )
    match: str | None = Field(default=None, description="Glob over the full name; `*` crosses dots.")
    exclude: tuple[str, ...] = Field(default=(), description="Globs of names that `match` leaves out.")
    overrides: Knobs = Knobs()

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, data: Any) -> Any:
        """The file has knobs beside `name`, `match` and `exclude`; here they are a map of their own."""
        if not isinstance(data, dict):
            return data
        own = {key: value for key, value in data.items() if key in ("name", "match", "exclude")}
        return {**own, "overrides": {key: value for key, value in data.items() if key not in own}}

    @property
    def label(self) -> str:
        return self.name or self.match or ""

    def covers(self, name: str) -> bool:
        if self.match is None:
            return name == self.name
        return fnmatchcase(name, self.match) and not _any_matches(name, self.exclude)


def _any_matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

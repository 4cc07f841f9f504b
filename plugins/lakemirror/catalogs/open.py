"""Open the catalog that the configuration names, or say which kinds this version knows."""

from __future__ import annotations

from lakemirror.catalogs.blms import open_blms
from lakemirror.catalogs.glue import GlueCatalog
from lakemirror.catalogs.hive import HiveCatalog
from lakemirror.catalogs.ports import MirrorCatalog, SourceCatalog
from lakemirror.catalogs.rest import RestCatalog, WithLease
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.config.sections import CatalogConfig
from lakemirror.errors import UsageError


def open_source(config: CatalogConfig) -> SourceCatalog:
    if config.type == "sql":
        return SqlCatalog(config.name, config.properties)
    if config.type == "rest":
        return RestCatalog(config.name, config.properties)
    if config.type == "hive":
        return HiveCatalog(config.name, config.properties)
    if config.type == "glue":
        return GlueCatalog(config.name, config.properties)
    raise _unknown(config, "use type sql, rest, hive or glue on the source")


def open_mirror(config: CatalogConfig, with_lease: WithLease | None = None) -> MirrorCatalog:
    """`with_lease` lets a REST catalog commit what it cannot compare, where nothing else can."""
    if config.type == "sql":
        return SqlCatalog(config.name, config.properties, may_be_new=True)
    if config.type == "rest":
        return RestCatalog(config.name, config.properties, with_lease=with_lease)
    if config.type == "blms":
        return open_blms(config.name, config.properties, with_lease)
    if config.type == "glue":
        return GlueCatalog(config.name, config.properties)
    raise _unknown(config, "use type sql, rest, blms or glue on the mirror")


def _unknown(config: CatalogConfig, hint: str) -> UsageError:
    return UsageError("open catalog", config.name, f"type {config.type} is not in this version", hint)

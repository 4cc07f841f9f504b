"""Open the catalog that the configuration names, or say which kinds this version knows."""

from __future__ import annotations

from lakemirror.catalogs.ports import MirrorCatalog, SourceCatalog
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.config.sections import CatalogConfig
from lakemirror.errors import UsageError


def open_source(config: CatalogConfig) -> SourceCatalog:
    return _open(config, may_be_new=False)


def open_mirror(config: CatalogConfig) -> MirrorCatalog:
    return _open(config, may_be_new=True)


def _open(config: CatalogConfig, *, may_be_new: bool) -> SqlCatalog:
    if config.type != "sql":
        raise UsageError(
            "open catalog", config.name, f"type {config.type} is not in this version", "use type: sql on both sides"
        )
    return SqlCatalog(config.name, config.properties, may_be_new=may_be_new)

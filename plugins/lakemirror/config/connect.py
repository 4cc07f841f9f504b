"""Both sides with what their connections say: asked for when ports are opened, never when a file is read.

A connection fills in the properties that the file leaves out; the file's own keys win. What came from a connection is
as secret as what came from the environment. The rules that had to wait for it are then asked, and break nothing less.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from pydantic_core import PydanticCustomError

from lakemirror.config.connection_properties import properties_of
from lakemirror.config.connections import ResolveConnection
from lakemirror.config.locations import absolute_places, is_relative
from lakemirror.config.models import Config
from lakemirror.config.rules import check_catalogs
from lakemirror.config.sections import CatalogConfig, MirrorConfig, SourceConfig
from lakemirror.errors import UsageError

Side = TypeVar("Side", SourceConfig, MirrorConfig)


@dataclass(frozen=True, slots=True)
class Sides:
    """What ports are made from; no connection id is left in it."""

    source: SourceConfig | None
    mirror: MirrorConfig


def connection_ids(config: Config) -> tuple[str, ...]:
    """The connections that opening this configuration's ports asks for, each once."""
    catalogs = [config.mirror.catalog, *([config.source.catalog] if config.source is not None else [])]
    return tuple(sorted({catalog.conn_id for catalog in catalogs if catalog.conn_id is not None}))


def connect(config: Config, resolve: ResolveConnection) -> Sides:
    """Asks for each connection once. UsageError if one is missing, cannot be used, or breaks a rule."""
    ids = connection_ids(config)
    if not ids:
        return Sides(config.source, config.mirror)
    found = {conn_id: resolve(conn_id) for conn_id in ids}

    def filled(side: Side) -> Side:
        catalog = side.catalog
        if catalog.conn_id is None:
            return side
        properties = properties_of(found[catalog.conn_id], catalog.type)
        return side.model_copy(update={"catalog": catalog.filled(_absolute(catalog, properties))})

    sides = Sides(None if config.source is None else filled(config.source), filled(config.mirror))
    whole = config.model_copy(update={"source": sides.source, "mirror": sides.mirror})
    for finding in check_catalogs(whole):
        hint = finding.hint or f"say it in the file, or in the connection ({', '.join(ids)})"
        raise UsageError("use connection", config.path, finding.message, hint)
    return sides


def _absolute(catalog: CatalogConfig, properties: dict[str, str]) -> dict[str, str]:
    """The same check and spelling as in a file, except that a connection lies in no folder to be relative to."""
    done = dict(properties)
    for key, make_absolute in absolute_places(catalog.type):
        text = properties.get(key)
        if not text or key in catalog.properties:
            continue
        try:
            done[key] = make_absolute(text, os.sep)
        except PydanticCustomError as err:
            wanted, hint = (str((err.context or {})[name]) for name in ("wanted", "hint"))
            raise UsageError("use connection", str(catalog.conn_id), f"its `{key}` is not {wanted}", hint) from None
        if is_relative(text):
            hint = "a connection lies in no folder: write the path from the root"
            raise UsageError("use connection", str(catalog.conn_id), f"its `{key}` is a relative path", hint)
    return done

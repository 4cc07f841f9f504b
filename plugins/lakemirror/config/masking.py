"""Tells each section which of its values came from the environment, so that its repr hides them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakemirror.config.models import Config
from lakemirror.config.problems import KeyPath
from lakemirror.config.section import Section
from lakemirror.config.translate import model_path


def mask_secrets(config: Config, paths: Iterable[KeyPath]) -> None:
    owned: dict[int, tuple[Section, set[str]]] = {}
    for path in paths:
        owner, name = _owner_of(config, model_path(path))
        owned.setdefault(id(owner), (owner, set()))[1].add(name)
    for owner, names in owned.values():
        owner.hide_values(names)


def _owner_of(section: Section, path: KeyPath) -> tuple[Section, str]:
    """The innermost section on the way, and its field; of an open map also the key: `properties.s3.endpoint`."""
    field, *rest = path
    value: Any = getattr(section, str(field), None)
    if isinstance(value, Section):
        return _owner_of(value, tuple(rest))
    if isinstance(value, tuple) and rest and isinstance(rest[0], int) and isinstance(value[rest[0]], Section):
        return _owner_of(value[rest[0]], tuple(rest[1:]))
    return section, ".".join(map(str, path)) if isinstance(value, dict) else str(field)

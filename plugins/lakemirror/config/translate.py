"""Turns what pydantic says into findings that name the file's own keys, the nearest known key, and no secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lakemirror.config.cache import SUPERSEDED, CacheConfig
from lakemirror.config.knobs import GcKnobs, Knobs, knob_names
from lakemirror.config.models import Config
from lakemirror.config.problems import Finding, KeyPath, Missing, dotted, listing, nearest
from lakemirror.config.sections import (
    CATALOG_KEYS,
    MirrorConfig,
    RootConfig,
    SourceConfig,
    SparkConfig,
    StateConfig,
)

_ENTRY_KEYS = ("name", "match", "exclude")
_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "some text",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "dict_type": "a map",
    "tuple_type": "a list",
    "list_type": "a list",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def findings_of(error: ValidationError) -> Iterator[Finding]:
    for details in error.errors(include_url=False):
        path = file_path(details["loc"])
        if details["type"] == "extra_forbidden":
            yield _unknown_key(path)
        elif details["type"] == "missing":
            yield Finding(path, f"`{dotted(path)}` is required")
        else:
            wanted, hint = _wanted(details)
            yield Finding(path, f"`{dotted(path)}`: want {wanted}", hint, got=details.get("input", Missing.VALUE))


def file_path(loc: tuple[int | str, ...]) -> KeyPath:
    """The path in the file: the models keep properties and knobs in maps of their own, the file does not."""
    if loc[1:3] == ("catalog", "properties"):
        return (*loc[:2], *loc[3:])
    if loc[:1] == ("tables",) and loc[2:3] == ("overrides",):
        return (*loc[:2], *loc[3:])
    return tuple(loc)


def model_path(path: KeyPath) -> KeyPath:
    """The way back: where the models keep what the file has at this path."""
    if path[1:2] == ("catalog",) and path[2:] not in [(key,) for key in CATALOG_KEYS]:
        return (*path[:2], "properties", *path[2:])
    if path[:1] == ("tables",) and len(path) > 2 and path[2] not in _ENTRY_KEYS:
        return (*path[:2], "overrides", *path[2:])
    return (*path[:-1], "from_") if path[-1:] == ("from",) else path


def known_keys(parent: KeyPath) -> tuple[str, ...]:
    """The keys that the map at this path may have."""
    if parent[:1] == ("tables",):
        return tuple(GcKnobs.model_fields) if parent[2:] == ("gc",) else (*_ENTRY_KEYS, *Knobs.model_fields)
    if parent[:2] == ("source", "roots"):
        return tuple(info.alias or name for name, info in RootConfig.model_fields.items())
    return _KNOWN.get(parent, ())


_KNOWN: Mapping[KeyPath, tuple[str, ...]] = {
    (): tuple(Config.model_fields),
    ("source",): tuple(SourceConfig.model_fields),
    ("mirror",): tuple(MirrorConfig.model_fields),
    ("state",): tuple(StateConfig.model_fields),
    ("spark",): tuple(SparkConfig.model_fields),
    ("cache",): tuple(CacheConfig.model_fields),
    ("defaults",): tuple(Knobs.model_fields),
    ("defaults", "gc"): tuple(GcKnobs.model_fields),
}


def _unknown_key(path: KeyPath) -> Finding:
    *parents, key = path
    parent = tuple(parents)
    message = f"unknown key `{key}`" + (f" in `{dotted(parent)}`" if parent else "")
    return Finding(path, message, _hint_for(str(key), parent))


def _hint_for(key: str, parent: KeyPath) -> str:
    if parent == ("cache",) and key in SUPERSEDED:
        return f"`{SUPERSEDED[key]}` took its place"
    home = _home_of(key, parent)
    if home:
        return f"it belongs under {home}"
    name, is_close = nearest(key, known_keys(parent))
    return f"did you mean `{name}`?" if is_close else f"the nearest known key is `{name}`"


def _home_of(key: str, parent: KeyPath) -> str:
    """Where a key that is right but misplaced belongs; empty if it is no key at all."""
    knobs = {name[-1]: "`gc`" if len(name) == 2 else "`defaults` or an entry of `tables`" for name in knob_names()}
    if key in knobs:
        return knobs[key]
    homes = [dotted(path) for path, keys in _KNOWN.items() if path not in ((), parent) and key in keys]
    return f"`{homes[0]}`" if homes else ""


def _wanted(details: ErrorDetails) -> tuple[str, str]:
    kind = details["type"]
    context: dict[str, Any] = details.get("ctx", {})
    if kind == "lakemirror":
        return context["wanted"], context["hint"]
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"{words} {context[name]:g}", ""
    if kind == "literal_error":
        return _literal(details["loc"], details["input"])
    hint = "quote it" if kind == "string_type" and isinstance(details["input"], (int, float)) else ""
    return _WANTED.get(kind, details["msg"]), hint


def _literal(loc: tuple[int | str, ...], got: object) -> tuple[str, str]:
    choices = _choices(loc)
    if got == "dlf":
        return listing(choices), "DLF catalogs are not supported"
    name, is_close = nearest(got, choices) if isinstance(got, str) else ("", False)
    return listing(choices), f"did you mean {name}?" if is_close else ""


def _choices(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    if loc[1:] == ("catalog", "type"):
        section = SourceConfig if loc[0] == "source" else MirrorConfig
        catalog: Any = section.model_fields["catalog"].annotation
        return get_args(catalog.model_fields["type"].annotation)
    return get_args(Knobs.model_fields[str(loc[-1])].annotation)

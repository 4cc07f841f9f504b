"""The JSON schema of the file, for editors: completes keys, shows what they mean, marks what is wrong while typing.

Made from the models; it differs from them where the file does (properties and knobs stand beside the other keys).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from lakemirror.config.cache import CacheConfig
from lakemirror.config.knobs import GcKnobs, Knobs
from lakemirror.config.models import Config
from lakemirror.config.quantities import BYTES_SCHEMA, DURATION_SCHEMA, format_duration

_PROPERTY = {"type": ["string", "number", "boolean"]}
_CATALOG_PROPERTIES = {
    "uri": {"type": "string", "description": "Address of the catalog: `sqlite:///…`, `postgresql://…`, `https://…`."},
    "warehouse": {
        "type": "string",
        "description": "Where the catalog keeps tables; for REST catalogs a name it knows.",
    },
}


def build_schema() -> dict[str, Any]:
    schema = Config.model_json_schema()
    parts: dict[str, Any] = schema["$defs"]
    _show_defaults(parts["GcKnobs"], GcKnobs)
    _show_defaults(parts["Knobs"], Knobs)
    _show_defaults(parts["CacheConfig"], CacheConfig)
    for name in ("SourceCatalogConfig", "MirrorCatalogConfig"):
        del parts[name]["properties"]["properties"]
        parts[name]["properties"].update(_CATALOG_PROPERTIES)
        parts[name]["additionalProperties"] = _PROPERTY
    parts["SparkConfig"]["properties"]["conf"]["additionalProperties"] = _PROPERTY
    _flatten_entry(parts["TableEntry"], parts["Knobs"])
    for section in ("source", "state"):  # may be left out, not left empty
        described = schema["properties"][section]
        schema["properties"][section] = {**described.pop("anyOf")[0], "description": described["description"]}
    for queue in ("pubsub", "sqs"):
        described = parts["EventsConfig"]["properties"][queue]
        parts["EventsConfig"]["properties"][queue] = {
            **described.pop("anyOf")[0],
            "description": described["description"],
        }
    for part in (schema, *parts.values()):
        _tidy(part)
    parts.update(Bytes=BYTES_SCHEMA, Duration=DURATION_SCHEMA)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Lakemirror configuration", **schema}


def _show_defaults(part: dict[str, Any], model: type[BaseModel]) -> None:
    """Durations as the file writes them, not in ISO 8601; no defaults for maps, whose keys have their own."""
    for name, info in model.model_fields.items():
        if isinstance(info.default, timedelta):
            part["properties"][name]["default"] = format_duration(info.default)
        elif isinstance(info.default, BaseModel):
            part["properties"][name].pop("default", None)


def _flatten_entry(entry: dict[str, Any], knobs: dict[str, Any]) -> None:
    del entry["properties"]["overrides"]
    for name, knob in knobs["properties"].items():
        # An entry that leaves a knob out gets what `defaults:` says, so there is no default to show.
        entry["properties"][name] = {key: value for key, value in knob.items() if key != "default"}
    entry["oneOf"] = [{"required": ["name"]}, {"required": ["match"]}]


def _tidy(part: dict[str, Any]) -> None:
    """Leaves out what an editor does not need, and says once what a duration and a byte count are."""
    part.pop("title", None)
    for value in part.get("properties", {}).values():
        value.pop("title", None)
        if "$ref" in value:
            value.pop("default", None)
        for key in ("x-live", "x-unit"):
            if not value.get(key):
                value.pop(key, None)
        choices = value.get("anyOf", [])
        if _named(value) is not None:
            value.update({"$ref": _named(value)})
            del value["anyOf"]
        else:
            choices[:] = [one if _named(one) is None else {"$ref": _named(one)} for one in choices]


def _named(schema: dict[str, Any]) -> str | None:
    for name, named in (("Bytes", BYTES_SCHEMA), ("Duration", DURATION_SCHEMA)):
        if schema.get("anyOf") == named["anyOf"]:
            return f"#/$defs/{name}"
    return None

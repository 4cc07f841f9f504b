"""What a mirror catalog can do, as data: known by its kind, or told by the server when it is first asked.

Nothing here is found out by trying to change something. What a server does not tell is None, and is tried when it is
needed; a refusal is then told as `unsupported_by_catalog`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

ALL_FORMATS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class CatalogDemands:
    """What a version must keep to, known by the kind of catalog: whoever publishes one asks no server.

    `has_server_logs`: the server keeps logs of its own in the metadata, which need room. `has_requirements`: a commit
    names numbers of the metadata that it was made from, so that these must differ from version to version.
    """

    formats: tuple[int, ...] = ALL_FORMATS
    max_metadata_bytes: int | None = None
    has_server_logs: bool = False
    has_requirements: bool = False


@dataclass(frozen=True, slots=True)
class CatalogAbilities:
    """`commit`: a head moves by swapping a pointer to our metadata file, or by requirements and updates.

    `has_whole_swap`: a head can become any other version in one step; None: the server does not tell.
    """

    type: str
    commit: Literal["pointer", "updates"]
    has_namespace_levels: bool
    has_register: bool = True
    has_whole_swap: bool | None = True
    has_drop: bool = True
    has_multi_table_commit: bool = False
    has_idempotency_keys: bool = False
    formats: tuple[int, ...] = ALL_FORMATS
    preview_formats: tuple[int, ...] = ()
    max_metadata_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "formats": list(self.formats), "preview_formats": list(self.preview_formats)}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> CatalogAbilities:
        lists = {key: tuple(found[key]) for key in ("formats", "preview_formats")}
        return CatalogAbilities(**{**found, **lists})

    def described(self) -> str:
        """One line for people."""
        way = "a swap of the pointer" if self.commit == "pointer" else "requirements and updates"
        powers = {
            "whole swap": self.has_whole_swap,
            "register": self.has_register,
            "drop": self.has_drop,
            "nested namespaces": self.has_namespace_levels,
            "multi-table commit": self.has_multi_table_commit,
            "idempotency keys": self.has_idempotency_keys,
        }
        shown = ", ".join(f"{name} {_WORDS[power]}" for name, power in powers.items())
        formats = ", ".join(f"v{one}{' (preview)' * (one in self.preview_formats)}" for one in self.formats)
        limit = "" if self.max_metadata_bytes is None else f"; metadata up to {self.max_metadata_bytes} bytes"
        return f"{self.type}: commits by {way}; {shown}; formats {formats}{limit}"

    def warnings(self, metadata: Mapping[str, Any]) -> tuple[str, ...]:
        """What readers of a table with this metadata should know."""
        version = metadata.get("format-version")
        if version not in self.preview_formats:
            return ()
        return (f"format version {version} is a preview on catalogs of type {self.type}",)


_WORDS = {True: "yes", False: "no", None: "not told"}

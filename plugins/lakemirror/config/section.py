"""What all parts of the configuration have in common: frozen, no unknown keys, described, secrets never shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.fields import FieldInfo

from lakemirror.config.problems import SECRET_MASK
from lakemirror.config.quantities import format_duration

TakesEffect = Literal["now", "planned"]


class Section(BaseModel):
    """One map of the file. Equal files give equal sections; a section never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, hide_input_in_errors=True)

    # Names of fields, and `field.key` of open maps, that hold what came from the environment.
    _secrets: frozenset[str] = PrivateAttr(default=frozenset())

    def hide_values(self, names: Iterable[str]) -> None:
        """Called once, by the loader: from now on these values are masked wherever the section is shown."""
        self._secrets = frozenset(names)

    def shown(self, name: str) -> str:
        """A field's value for people: as the file would write it, or masked."""
        value = getattr(self, name)
        if name in self._secrets:
            return SECRET_MASK
        return format_duration(value) if isinstance(value, timedelta) else str(value)

    def _taking(self, other: Self, names: set[str]) -> Self:
        """A copy with these fields of another section, secrets kept secret."""
        if not names:
            return self
        taken = self.model_copy(update={name: getattr(other, name) for name in names})
        taken.hide_values((self._secrets - names) | (other._secrets & names))
        return taken

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if name in self._secrets:
                yield name, SECRET_MASK
            elif isinstance(value, Mapping):
                yield name, {k: SECRET_MASK if f"{name}.{k}" in self._secrets else v for k, v in value.items()}
            else:
                yield name, value


class About(NamedTuple):
    """What the documentation tells of a key beyond its type and default."""

    unit: str
    requirement: str
    takes_effect: TakesEffect
    is_live: bool

    @classmethod
    def of(cls, info: FieldInfo) -> About | None:
        extra = info.json_schema_extra
        if not isinstance(extra, dict) or "x-takes-effect" not in extra:
            return None
        effect: TakesEffect = "now" if extra["x-takes-effect"] == "now" else "planned"
        return cls(str(extra["x-unit"]), str(extra["x-requirement"]), effect, extra["x-live"] is True)


def knob(
    default: object,
    description: str,
    *,
    requirement: str,
    unit: str = "",
    takes_effect: TakesEffect = "now",
    is_live: bool = False,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Any:
    """A field that the generated documentation and schema can tell everything about."""
    return Field(
        default=default,
        description=description,
        ge=ge,
        gt=gt,
        le=le,
        json_schema_extra={
            "x-unit": unit,
            "x-requirement": requirement,
            "x-takes-effect": takes_effect,
            "x-live": is_live,
        },
    )

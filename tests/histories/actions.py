"""Actions: what a history is made of. Each has a weight and a condition, and takes three small numbers to choose by.

    class Rows(Actions):
        @action(weight=3, when=lambda self: self.has_rows())
        def delete(self, a: int, b: int, c: int) -> None: ...

An action whose condition does not hold is no step of the history: nothing is caught to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Method = Callable[[Any, int, int, int], None]
T = TypeVar("T")
LIMIT = 63  # the numbers are from 0 to this


def always(self: Any) -> bool:
    return True


def action(*, weight: int = 1, when: Callable[[Any], Any] = always) -> Callable[[Method], Method]:
    def mark(method: Method) -> Method:
        method.history_action = (weight, when)  # type: ignore[attr-defined]
        return method

    return mark


class Actions:
    """The actions of a class and of those it is made from."""

    @classmethod
    def weighted(cls) -> tuple[str, ...]:
        """Every action's name as often as it weighs, in the order in which they are written."""
        found: dict[str, int] = {}
        for kind in reversed(cls.__mro__):
            for name, method in vars(kind).items():
                if hasattr(method, "history_action"):
                    found[name] = method.history_action[0]
        return tuple(name for name, weight in found.items() for _ in range(weight))

    def allowed(self) -> list[str]:
        """Those of `weighted` whose condition holds now."""
        names = self.weighted()
        possible = {name for name in dict.fromkeys(names) if getattr(self, name).history_action[1](self)}
        return [name for name in names if name in possible]

    def act(self, name: str, a: int, b: int, c: int) -> bool:
        """Do it if the state allows it; tells whether it did."""
        method = getattr(self, name)
        if not method.history_action[1](self):
            return False
        method(a, b, c)
        return True


def chosen(items: Sequence[T], pick: int) -> T:
    return items[pick % len(items)]


def subset(items: Sequence[T], pick: int) -> list[T]:
    """At least one of them, which ones by the bits of `pick`."""
    return [one for at, one in enumerate(items) if pick >> (at % 6) & 1] or [chosen(items, pick)]

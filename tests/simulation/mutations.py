"""Functions of the real code with one place broken on purpose.

The text that is replaced must be there exactly once: whoever changes it is told to look at the broken variant, too.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


def broken(owner: Any, name: str, old: str, new: str) -> Any:
    """The function `name` of a module or class, with `old` replaced by `new`.

    It sees its module as it is, so that of two functions that are broken together one calls the other.
    """
    function = inspect.unwrap(getattr(owner, name))
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1, f"{name} has {text.count(old)} times: {old}"
    made: dict[str, Any] = {}
    exec(compile(text.replace(old, new), f"<broken {name}>", "exec"), function.__globals__, made)
    return made[name]


@contextmanager
def replaced(owner: Any, name: str, old: str, new: str, **more: Any) -> Iterator[None]:
    """While this lasts; `more` are names that `new` needs in its module."""
    function = inspect.unwrap(getattr(owner, name))
    with patch.dict(function.__globals__, more), patch.object(owner, name, broken(owner, name, old, new)):
        yield

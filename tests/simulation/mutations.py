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


def broken(owner: Any, name: str, old: str, new: str, **more: Any) -> Any:
    """The function `name` of a module or class, with `old` replaced by `new`; `more` are names that `new` needs."""
    function = inspect.unwrap(getattr(owner, name))
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1, f"{name} has {text.count(old)} times: {old}"
    made: dict[str, Any] = {}
    names = {**function.__globals__, **more}
    exec(compile(text.replace(old, new), f"<broken {name}>", "exec"), names, made)
    return made[name]


@contextmanager
def replaced(owner: Any, name: str, old: str, new: str, **more: Any) -> Iterator[None]:
    with patch.object(owner, name, broken(owner, name, old, new, **more)):
        yield

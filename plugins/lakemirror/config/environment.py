"""Puts the environment into `${NAME}` and finds secrets that were written down instead.

What came from the environment is secret from then on: its path is reported, and nobody shows its value. `$${` stands
for a literal `${` (Spark and Hadoop settings have variables of their own).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakemirror.config.problems import Finding, KeyPath, dotted

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_KEY = re.compile(
    r"((secret|token|credential|password)s?|passwd|passphrase|authorization|connection[._-]?string"
    r"|(secret|account|private|api)[._-]?(access[._-]?)?key([._-].*)?)$",
    re.IGNORECASE,
)
_IN_ADDRESS = (
    re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]*?:([^/?#\s]+)@"),
    re.compile(r"[?&;](?:password|passwd|token|secret|sig)=([^&;\s]+)", re.IGNORECASE),
)


@dataclass(slots=True)
class Substituted:
    """The document with every reference filled in; `broken` paths could not be and need no second complaint."""

    data: object = None
    secrets: set[KeyPath] = field(default_factory=set)
    broken: set[KeyPath] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def substitute(data: object, environment: Mapping[str, str]) -> Substituted:
    done = Substituted()
    done.data = _walk(data, (), environment, done)
    return done


def _walk(value: object, path: KeyPath, environment: Mapping[str, str], done: Substituted) -> object:
    if isinstance(value, dict):
        return {key: _walk(item, (*path, key), environment, done) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, (*path, index), environment, done) for index, item in enumerate(value)]
    _refuse_plain_secret(path, value, done)
    return _fill(value, path, environment, done) if isinstance(value, str) else value


def _fill(text: str, path: KeyPath, environment: Mapping[str, str], done: Substituted) -> str:
    def value_of(reference: re.Match[str]) -> str:
        if reference.group(1) is None:
            return "${"
        name = reference.group(1)
        done.secrets.add(path)
        if not reference.group(2) or not _NAME.fullmatch(name):
            message = f"`{dotted(path)}`: `{reference.group()}` is no reference to a variable"
            done.findings.append(Finding(path, message, "write ${NAME}, or $${ for a literal ${"))
        elif name not in environment:
            message = f"`{dotted(path)}`: the environment variable {name} is not set"
            done.findings.append(Finding(path, message, f"export {name} before you start"))
        else:
            return environment[name]
        done.broken.add(path)
        return reference.group()

    return _REFERENCE.sub(value_of, text)


def _refuse_plain_secret(path: KeyPath, value: object, done: Substituted) -> None:
    """A secret that stands in the file itself. A numeric password counts; an empty value and `${…}` do not."""
    if value is None or isinstance(value, bool):
        return
    text, key = str(value), path[-1] if path else ""
    variable = re.sub(r"[^A-Za-z0-9]+", "_", dotted(path)).strip("_").upper()
    if isinstance(key, str) and is_secret_name(key) and text and not _has_reference(text):
        hint = f"write ${{{variable}}} and export that variable"
    elif not all(map(_has_reference, secrets_in_address(text))):
        hint = f"write ${{{variable}_PASSWORD}} in its place and export that variable"
    else:
        return
    done.findings.append(Finding(path, f"`{dotted(path)}` holds a secret in plain text", hint))
    done.secrets.add(path)
    done.broken.add(path)


def is_secret_name(key: str) -> bool:
    """Whether what is kept under such a key is a secret."""
    return _SECRET_KEY.search(key) is not None


def secrets_in_address(text: str) -> list[str]:
    """The passwords and tokens that stand in an address of a service, as they are written there."""
    return [match.group(1) for pattern in _IN_ADDRESS for match in pattern.finditer(text)]


def _has_reference(text: str) -> bool:
    return any(match.group(1) is not None for match in _REFERENCE.finditer(text))

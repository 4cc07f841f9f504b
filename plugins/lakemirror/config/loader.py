"""Reads a configuration file: all problems at once, each with its line, or a `Config` that is right.

    YAML with lines → `${NAME}` filled in → paths made absolute → models → rules

Cheap to import: the models and pydantic are loaded by the first file that is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakemirror.config.problems import Finding, KeyPath, Problem
from lakemirror.errors import UsageError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from lakemirror.config.models import Config

_TEXT_MAPS: frozenset[KeyPath] = frozenset({("source", "catalog"), ("mirror", "catalog"), ("spark", "conf")})

_MATCHES_NOTHING = {"match": "\0"}


def load_config(path: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> Config:
    """The configuration in a file. UsageError names everything that is wrong with it."""
    outcome = _read(path, env)
    if outcome.config is None or outcome.problems:
        raise _usage_error(os.fspath(path), outcome.problems)
    return outcome.config


def check_config(path: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> list[Problem]:
    """Everything that is wrong with a file, in the order of its lines; empty: `load_config` accepts it."""
    return _read(path, env).problems


@dataclass(frozen=True, slots=True)
class _Outcome:
    config: Config | None
    problems: list[Problem]


def _read(path: str | os.PathLike[str], env: Mapping[str, str] | None) -> _Outcome:
    file = os.fspath(path)
    text, problem = _read_text(file)
    if problem is not None:
        return _Outcome(None, [problem])
    return _parse(text, file, os.environ if env is None else env)


def _read_text(file: str) -> tuple[str, Problem | None]:
    from lakemirror.config.document import MAX_FILE_BYTES

    try:
        with open(file, "rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return "", Problem(file, "there is no such file", "name one with --config or LAKEMIRROR_CONFIG")
    except OSError as err:
        return "", Problem(file, f"cannot be read: {err.strerror}", "check its permissions")
    if len(raw) > MAX_FILE_BYTES:
        return "", Problem(file, f"larger than {MAX_FILE_BYTES} bytes", "use patterns in `tables:`")
    try:
        return raw.decode("utf-8-sig"), None
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        return "", Problem(f"{file}:{line}", "not UTF-8 text", "save it as UTF-8")


def _parse(text: str, file: str, env: Mapping[str, str]) -> _Outcome:
    from lakemirror.config.document import read_document
    from lakemirror.config.environment import substitute
    from lakemirror.config.locations import make_absolute
    from lakemirror.config.masking import mask_secrets
    from lakemirror.config.rules import check_rules

    document = read_document(text, _TEXT_MAPS)
    findings = list(document.findings)
    if not isinstance(document.data, dict) or not document.data:
        return _Outcome(None, [finding.at(file, finding.line, is_secret=False) for finding in findings])
    filled = substitute(document.data, env)
    data: Any = filled.data
    wrong = document.broken | filled.broken
    unresolved = make_absolute(data, os.path.dirname(os.path.abspath(file)), wrong)
    findings += [*filled.findings, *unresolved]
    wrong |= {finding.path for finding in unresolved}
    config, invalid = _validate(data)
    findings += (finding for finding in invalid if finding.path not in wrong)
    wrong |= {finding.path for finding in invalid}
    if config is not None:
        config.remember_origin(file, document.lines, frozenset(filled.secrets))
        mask_secrets(config, filled.secrets)
        findings += (finding for finding in check_rules(config) if wrong.isdisjoint((finding.path, *finding.about)))
    return _Outcome(config, _in_file_order(findings, file, document.lines, filled.secrets))


def _validate(data: dict[str, Any]) -> tuple[Config | None, list[Finding]]:
    """The configuration, and what is wrong with single keys.

    The wrong keys are taken out and the rest is tried again, so that one slip does not hide what the rules would say.
    """
    from pydantic import ValidationError

    from lakemirror.config.models import Config
    from lakemirror.config.translate import findings_of

    try:
        return Config.model_validate(data), []
    except ValidationError as err:
        findings = list(findings_of(err))
        error = err
    _take_out(data, error)
    try:
        return Config.model_validate(data), findings
    except ValidationError:
        return None, findings


def _take_out(data: dict[str, Any], error: ValidationError) -> None:
    from lakemirror.config.translate import file_path

    for details in error.errors(include_url=False, include_context=False, include_input=False):
        *parents, key = file_path(details["loc"])
        holder: Any = data
        for step in parents:
            holder = holder[step] if _has(holder, step) else None
        if isinstance(holder, dict):
            holder.pop(key, None)
        elif parents == ["tables"] and isinstance(key, int):
            holder[key] = _MATCHES_NOTHING


def _has(holder: object, step: str | int) -> bool:
    return step in holder if isinstance(holder, dict) else isinstance(holder, list) and isinstance(step, int)


def _in_file_order(
    findings: list[Finding], file: str, lines: Mapping[KeyPath, int], secrets: set[KeyPath]
) -> list[Problem]:
    located = [(finding, finding.line or _line_of(finding.path, lines)) for finding in findings]
    located.sort(key=lambda pair: pair[1] or 0)
    return [finding.at(file, line, is_secret=finding.path in secrets) for finding, line in located]


def _line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int | None:
    """The line of a key, or of the nearest map around it that the file has."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _usage_error(file: str, problems: list[Problem]) -> UsageError:
    if len(problems) == 1:
        only = problems[0]
        return UsageError("load config", only.where, only.message, only.hint)
    listed = "\n".join(f"  {problem}" for problem in problems)
    return UsageError("load config", file, f"{len(problems)} problems\n{listed}")

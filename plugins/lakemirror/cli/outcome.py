"""What a command came to, table by table: the JSON document and the exit code, each decided in one place.

| tables | exit code |
|---|---|
| all went well | 0, or 3 if `status` found something behind or wrong |
| some failed, some did not | 3 |
| all failed with the same code | that code |
| all failed with different codes | 1 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemirror.errors import LakemirrorError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_PARTIAL = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Outcome:
    """One table's answer (or the whole command's, when `table` is None). `facts` are the command's own JSON keys."""

    table: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: LakemirrorError | None = None
    needs_attention: bool = False

    @property
    def is_ok(self) -> bool:
        return self.error is None

    def as_json(self) -> dict[str, Any]:
        head = {"table": self.table, "ok": self.is_ok}
        facts = {key: value for key, value in self.facts.items() if key not in ("table", "ok")}
        tail = {} if self.error is None else {"error": self.error.as_json()}
        return {**head, **facts, **tail}


@dataclass(frozen=True, slots=True)
class Answer:
    """All outcomes of one command; `is_single` decides between one JSON object and a list."""

    command: str
    outcomes: tuple[Outcome, ...]
    is_single: bool
    was_interrupted: bool = False

    @property
    def exit_code(self) -> int:
        return EXIT_INTERRUPTED if self.was_interrupted else exit_code_of(self.outcomes)

    def as_json(self) -> Any:
        documents = [outcome.as_json() for outcome in self.outcomes]
        return documents[0] if self.is_single else documents


def exit_code_of(outcomes: Sequence[Outcome]) -> int:
    codes = {outcome.error.exit_code if outcome.error else EXIT_OK for outcome in outcomes}
    if codes <= {EXIT_OK}:
        return EXIT_PARTIAL if any(outcome.needs_attention for outcome in outcomes) else EXIT_OK
    if EXIT_OK in codes:
        return EXIT_PARTIAL
    return codes.pop() if len(codes) == 1 else EXIT_FAILED

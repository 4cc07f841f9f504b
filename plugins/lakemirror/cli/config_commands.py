"""`config check` and `config show`: about the file alone, so they answer when no catalog is reachable."""

from __future__ import annotations

from lakemirror.cli.arguments import Invocation
from lakemirror.cli.outcome import Answer, Outcome
from lakemirror.config.loader import check_config, load_config
from lakemirror.errors import LakemirrorError, UsageError
from lakemirror.model.table import TableRef


def run_config(asked: Invocation) -> Answer:
    """One object in any case: there is one file, and at most one table is named."""
    from lakemirror.app import config_path

    file = config_path(asked.config)
    outcome = _check(file) if asked.command == "config check" else _show(file, asked.tables)
    return Answer(asked.command, (outcome,), is_single=True)


def _check(file: str) -> Outcome:
    problems = check_config(file)
    facts = {"file": file, "problems": [problem.as_json() for problem in problems]}
    if not problems:
        return Outcome(None, facts)
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return Outcome(None, facts, UsageError("check config", file, count, "correct the lines named above"))


def _show(file: str, tables: tuple[str, ...]) -> Outcome:
    name = tables[0] if tables else None
    try:
        config = load_config(file)
        return Outcome(name, {"values": config.explain(TableRef.parse(name) if name else None)})
    except LakemirrorError as err:
        return Outcome(name, error=err)

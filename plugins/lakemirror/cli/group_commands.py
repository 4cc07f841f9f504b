"""`groups`: what readers of several tables may rely on at once."""

from __future__ import annotations

from lakemirror.cli.arguments import Invocation
from lakemirror.cli.commands import LoadApp
from lakemirror.cli.outcome import Answer, Outcome
from lakemirror.errors import LakemirrorError


def run_groups(asked: Invocation, load: LoadApp) -> Answer:
    """One answer for each group, in the order given or by name; one without a watermark wants attention."""
    with load(asked.config) as app:
        outcomes = []
        for name in asked.tables or app.group_names():
            try:
                result = app.group(name) if asked.forget is None else app.forget_in_group(name, asked.forget)
                outcomes.append(Outcome(None, result.as_json(), needs_attention=result.watermark is None))
            except LakemirrorError as err:
                outcomes.append(Outcome(None, {"group": name}, err))
    return Answer(asked.command, tuple(outcomes), is_single=len(asked.tables) == 1)

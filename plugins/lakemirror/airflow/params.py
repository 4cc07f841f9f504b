"""What a person may ask of one run of a mirror DAG: the trigger form, and its values as a typed object.

The api-server checks the JSON schemas here before a run exists. It does not refuse names it does not know, so a
misspelt one (`dryrun`) is refused by the first task instead of silently starting a real run.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.errors import UsageError

SNAPSHOT_ID = "^[0-9]{1,19}$"

# name → (default, JSON schema with title and description); the trigger form is drawn from this
FORM: dict[str, tuple[Any, dict[str, Any]]] = {
    "dry_run": (
        False,
        {
            "type": "boolean",
            "title": "Dry run",
            "description": "Only report what would be copied; nothing is written and no further task runs.",
        },
    ),
    "target_snapshot_id": (
        None,
        {
            # text only: if numbers were allowed too, the form would send one, rounded by the browser to 53 bits
            "type": ["null", "string"],
            "pattern": SNAPSHOT_ID,
            "title": "Target snapshot",
            "description": "Mirror this snapshot of the source instead of its current one. Empty: the current one.",
        },
    ),
    "full_verify": (
        False,
        {
            "type": "boolean",
            "title": "Force full verify",
            "description": "Check the CRC of every copied file before publishing, not only of a sample.",
        },
    ),
}


@dataclass(frozen=True, slots=True)
class RunParams:
    """The values of one run."""

    dry_run: bool = False
    target_snapshot_id: int | None = None
    full_verify: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any], conf: Mapping[str, Any] | None = None) -> RunParams:
        """From a run's resolved `params`; `conf` is what its sender wrote, where unknown names are refused."""
        for name in sorted(conf or {}):
            if name not in FORM:
                near = difflib.get_close_matches(name, FORM, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(FORM)}"
                raise UsageError("read run parameters", repr(name), "unknown parameter", hint)
        snapshot_id = params.get("target_snapshot_id")
        return cls(
            dry_run=bool(params.get("dry_run", False)),
            target_snapshot_id=None if snapshot_id in (None, "") else int(snapshot_id),
            full_verify=bool(params.get("full_verify", False)),
        )

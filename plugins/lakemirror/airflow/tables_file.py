"""The list of tables that patterns in the configuration resolve to, as a small file that parsing DAGs may read.

Parsing may do no network I/O, and patterns need a catalog. So `lakemirror__resolve_tables` writes this file and the
parse reads it: a whole old or a whole new list, never a part. The DAG processor and the workers must see one file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lakemirror.errors import UsageError


def path_for(config_path: str, env: Mapping[str, str]) -> str:
    """`$LAKEMIRROR_TABLES_FILE`, else `<config name>.tables.json` next to the configuration."""
    return env.get("LAKEMIRROR_TABLES_FILE") or str(Path(config_path).with_suffix(".tables.json"))


def read(path: str) -> tuple[str, ...]:
    """The names in the file; none if it was never written."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    try:
        return tuple(str(name) for name in json.loads(text)["tables"])
    except (ValueError, KeyError, TypeError) as err:
        raise UsageError("read tables file", path, "not a list of tables", "delete it: it is written anew") from err


def write(path: str, names: Iterable[str]) -> None:
    """Replace the file in one step. The name of the draft is this process's own, so two writers cannot mix."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps({"tables": sorted(names)}, indent=1) + "\n", encoding="utf-8")
        draft.replace(target)
    except OSError as err:
        draft.unlink(missing_ok=True)
        raise UsageError(
            "write tables file",
            path,
            f"{type(err).__name__}: {err.strerror}",
            "set LAKEMIRROR_TABLES_FILE to a path that can be written",
        ) from err

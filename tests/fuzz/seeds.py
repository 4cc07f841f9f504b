"""The corpus of whole files: tables as their writers left them, and files made by hand, by name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
PLACE = "file:///tmp/lakemirror-corpus"  # where the tables lay when they were written: it stands in their files


@lru_cache(maxsize=1)
def tables() -> dict[str, dict[str, bytes]]:
    """For each table its files by URI."""
    found: dict[str, dict[str, bytes]] = {}
    for folder in sorted((CORPUS / "tables").iterdir()):
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        found[folder.name] = {f"{PLACE}/{folder.name}/{path.relative_to(folder)}": path.read_bytes() for path in files}
    return found


def metadata_uri(files: dict[str, bytes]) -> str:
    """The newest metadata file of a table."""
    return max(uri for uri in files if uri.endswith(".metadata.json"))

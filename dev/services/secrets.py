"""Passwords, keys and tokens of one services folder: random, made once, readable by its owner only."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from dev.services.folder import write_private


@dataclass(frozen=True, slots=True)
class Secrets:
    """All that somebody must know to get in. Letters and digits only, so that they fit into any address."""

    source_access_key_id: str
    source_secret_access_key: str
    mirror_access_key_id: str
    mirror_secret_access_key: str
    source_token: str
    mirror_client_id: str
    mirror_client_secret: str
    postgres_password: str

    def __repr__(self) -> str:
        return "Secrets(…)"

    @property
    def mirror_credential(self) -> str:
        """As OAuth2 clients write it."""
        return f"{self.mirror_client_id}:{self.mirror_client_secret}"


def keep(file: Path) -> Secrets:
    """Those of the file; new ones where there is none. A file of another version keeps what it has."""
    names = [one.name for one in fields(Secrets)]
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        found = {}
    kept = Secrets(**{name: str(found.get(name) or secrets.token_hex(16)) for name in names})
    if asdict(kept) != found:
        write_private(file, json.dumps(asdict(kept), indent=1))
    return kept

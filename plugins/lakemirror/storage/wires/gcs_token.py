"""Tokens for GCS: the one that is given, none for an emulator, otherwise application default credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from lakemirror.errors import PermanentError, TransientError

_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"


class Tokens:
    """`headers` are what a request needs to be let in; a token is renewed before it ends, by one task for all."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._given = properties.get("gcs.oauth2.token")
        self._is_open = not self._given and bool(properties.get("gcs.service.host"))
        self._found: Any = None
        self._renewing: asyncio.Lock | None = None

    async def headers(self) -> dict[str, str]:
        if self._is_open:
            return {}
        if self._given:
            return {"authorization": f"Bearer {self._given}"}
        if self._found is None or not self._found.valid:
            if self._renewing is None:
                self._renewing = asyncio.Lock()
            async with self._renewing:
                if self._found is None or not self._found.valid:
                    self._found = await asyncio.to_thread(_renewed, self._found)
        return {"authorization": f"Bearer {self._found.token}"}


def _renewed(found: Any) -> Any:
    import google.auth
    from google.auth import exceptions
    from google.auth.transport.requests import Request

    try:
        if found is None:
            found, _ = google.auth.default(scopes=[_SCOPE])
        found.refresh(Request())
    except exceptions.DefaultCredentialsError as err:
        hint = "set gcs.oauth2.token or GOOGLE_APPLICATION_CREDENTIALS"
        raise PermanentError("open", "gs", "there are no credentials", hint) from err
    except exceptions.GoogleAuthError as err:
        reason = next(iter(str(err).splitlines()), type(err).__name__)[:300]
        raise TransientError("open", "gs", f"no token ({reason})", "check the credentials, and run again") from err
    return found

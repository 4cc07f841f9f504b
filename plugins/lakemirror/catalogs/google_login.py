"""Google's credentials as a login: a service account's key, or what the machine itself has (ADC).

| properties | credentials |
|---|---|
| `gcp.auth.credentials-path` | the file of a service account's key, or of a user's credentials |
| `gcp.auth.credentials-json` | the same as text; only by `${ENV_NAME}` or from a connection |
| neither | application default credentials: the environment's, the user's, the machine's |

`gcp.auth.scopes` are named by commas; default is the one for all of the cloud. Tokens are renewed before they end, and
once more when the server no longer takes one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakemirror.catalogs.rest_login import TokenLogin
from lakemirror.catalogs.rest_transport import Transport
from lakemirror.errors import PermanentError, TransientError

PATH: Final = "gcp.auth.credentials-path"
JSON: Final = "gcp.auth.credentials-json"
SCOPES: Final = "gcp.auth.scopes"
ALL_OF_THE_CLOUD: Final = "https://www.googleapis.com/auth/cloud-platform"


def google_login(transport: Transport, properties: Mapping[str, str]) -> TokenLogin:
    """The login of this identity; it asks when it is first needed."""
    tokens = GoogleTokens(transport, properties)
    return TokenLogin(transport, tokens.ask, lambda: tokens.are_good)


class GoogleTokens:
    """Tokens of one identity."""

    def __init__(self, transport: Transport, properties: Mapping[str, str]) -> None:
        self._transport = transport
        self._properties = dict(properties)
        self._credentials: Any = None

    def __repr__(self) -> str:
        return f"GoogleTokens({self._transport.name!r})"

    @property
    def are_good(self) -> bool:
        """Whether the last one may still be sent."""
        return self._credentials is not None and bool(self._credentials.valid)

    def ask(self) -> str:
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        credentials = self._opened()
        try:
            credentials.refresh(Request())
        except TransportError as err:
            raise self._failed(err, TransientError) from None
        except GoogleAuthError as err:
            raise self._failed(err, TransientError if err.retryable else PermanentError) from None
        return str(credentials.token)

    def _opened(self) -> Any:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError, TransportError

        if self._credentials is None:
            scopes = [one.strip() for one in self._properties.get(SCOPES, ALL_OF_THE_CLOUD).split(",")]
            path, text = self._properties.get(PATH), self._properties.get(JSON)
            try:
                if path is not None and text is None:
                    text = Path(path).read_text()
                found = google.auth.default(scopes=scopes)[0] if text is None else _of_key(text, scopes)
            except TransportError as err:
                raise self._failed(err, TransientError) from None
            except (DefaultCredentialsError, ValueError, OSError) as err:
                raise self._failed(err, PermanentError) from None
            self._credentials = found
        return self._credentials

    def _failed(self, err: Exception, kind: type[TransientError | PermanentError]) -> TransientError | PermanentError:
        """Without the library's words where they may hold a piece of a key."""
        told = "" if isinstance(err, ValueError) else f": {self._transport.clean(str(err))}"
        hint = f"check {PATH}, {JSON} or the machine's own credentials" if kind is PermanentError else "run again"
        return kind("log in", self._transport.name, f"no token of Google's ({type(err).__name__}{told})", hint)


def _of_key(text: str, scopes: list[str]) -> Any:
    """Kinds of credentials that ask somebody else first are for the machine's own alone: their text names hosts."""
    from google.oauth2 import credentials, service_account

    of_user: Any = credentials.Credentials  # the library has no types
    of_service: Any = service_account.Credentials
    info = json.loads(text)
    kind = info.get("type") if isinstance(info, dict) else None
    if kind == "service_account":
        return of_service.from_service_account_info(info, scopes=scopes)
    if kind == "authorized_user":
        return of_user.from_authorized_user_info(info, scopes=scopes)
    raise ValueError("neither a service account's key nor a user's credentials")

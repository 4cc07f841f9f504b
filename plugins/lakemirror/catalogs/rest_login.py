"""How a REST catalog is asked in: a bearer token, OAuth2 client credentials, or Amazon's SigV4.

| properties | login |
|---|---|
| `token` | that bearer token |
| `credential`, with `oauth2-server-uri`, `scope`, `audience`, `resource` | client credentials; renewed on a 401 |
| `rest.sigv4-enabled: true`, with `rest.signing-region`, `rest.signing-name`, `client.*` | SigV4 |
| none of them | none |

A request that carries no login of ours never carries somebody else's. Nothing of a login is part of an error or a repr.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from lakemirror.catalogs.rest_transport import Auth, Transport, UnknownOutcomeError, as_it_is
from lakemirror.errors import PermanentError, TransientError, UnsupportedError, UsageError
from lakemirror.storage.amazon_errors import kinds, passes, reading, wordless

if TYPE_CHECKING:
    from requests import PreparedRequest

_THROTTLED: Final = 429
_SIGV4: Final = "rest.sigv4-enabled"
_REFUSED: Final = {
    "auth": "pyiceberg's auth managers are not in this version",
    "signer": "signers are not supported",
}


class Login(Protocol):
    """Threads may share it."""

    def auth(self) -> Auth:
        """What lets the next request in. TransientError if it cannot be had now, PermanentError if never."""

    def renew(self, stale: Auth) -> bool:
        """The server no longer takes `stale`: whether `auth` would now give another."""


MakeLogin = Callable[[Transport, Mapping[str, str]], Login]


@dataclass(frozen=True, slots=True)
class Bearer:
    token: str = field(repr=False)

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


@dataclass(frozen=True, slots=True)
class FixedLogin:
    """Always the same."""

    _auth: Auth = field(default=as_it_is, repr=False)

    def auth(self) -> Auth:
        return self._auth

    def renew(self, stale: Auth) -> bool:
        return False


class TokenLogin:
    """A bearer token that is asked for when it is needed, and again when the server no longer takes it.

    `is_good`: whether the one that was asked for last may still be sent, where that can be told.
    """

    def __init__(
        self, transport: Transport, ask: Callable[[], str], is_good: Callable[[], bool] = lambda: True
    ) -> None:
        self._transport = transport
        self._ask = ask
        self._is_good = is_good
        self._bearer: Bearer | None = None
        self._lock = threading.Lock()

    def auth(self) -> Auth:
        with self._lock:
            if self._bearer is None or not self._is_good():
                self._bearer = Bearer(self._ask())
                self._transport.hide(self._bearer.token)
            return self._bearer

    def renew(self, stale: Auth) -> bool:
        with self._lock:
            if self._bearer is stale:
                self._bearer = None
            return True


def login_of(transport: Transport, properties: Mapping[str, str]) -> Login:
    """The login that the properties name. UnsupportedError and UsageError for those that it cannot or should not do."""
    for key, why in _REFUSED.items():
        if any(own == key or own.startswith(f"{key}.") for own in properties if properties[own] != "false"):
            raise UnsupportedError("open catalog", transport.name, f"{key}: {why}", "use token, or credential")
    named = [key for key in ("token", "credential") if key in properties]
    if properties.get(_SIGV4, "false").lower() == "true":
        if named:
            raise UsageError("open catalog", transport.name, f"both {_SIGV4} and {named[0]} are given", "keep one")
        return FixedLogin(SigV4(properties))
    if "credential" in properties:
        return TokenLogin(transport, lambda: _client_credentials(transport, properties))
    return FixedLogin(Bearer(properties["token"])) if "token" in properties else FixedLogin()


def _client_credentials(transport: Transport, properties: Mapping[str, str]) -> str:
    """RFC 6749, 4.4."""
    login, colon, secret = properties["credential"].partition(":")
    form = {"grant_type": "client_credentials", "scope": properties.get("scope", "catalog")}
    form |= {"client_id": login, "client_secret": secret} if colon else {"client_secret": login}
    form |= {key: properties[key] for key in ("audience", "resource") if key in properties}
    url = properties.get("oauth2-server-uri") or f"{properties['uri'].rstrip('/')}/v1/oauth/tokens"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        answer = transport.exchange("POST", url, "log in", transport.name, data=form, headers=headers)
    except UnknownOutcomeError as err:
        raise TransientError(err.op, err.subject, err.message, err.hint) from None
    if answer.is_trouble or answer.status == _THROTTLED:
        raise TransientError("log in", transport.name, transport.words(answer), "run again")
    token = answer.body.get("access_token")
    if not answer.is_ok or not isinstance(token, str):
        hint = "check credential and oauth2-server-uri"
        raise PermanentError("log in", transport.name, transport.words(answer), hint)
    return token


class SigV4:
    """Signs a request as it will be sent, by the property names and the credential chain of pyiceberg."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._session: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "SigV4()"

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        credentials, region = self._credentials()
        service = self._properties.get("rest.signing-name", "execute-api")
        # those that a proxy or the HTTP library may change on the way are not signed
        named = {key: value for key, value in request.headers.items() if key.lower() not in _UNSIGNED}
        signed = AWSRequest(method=request.method, url=request.url, data=request.body, headers=named)
        SigV4Auth(credentials, service, region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request

    def _credentials(self) -> tuple[Any, str]:
        import boto3

        get = self._properties.get
        with self._lock:
            try:
                with reading(ValueError):
                    if self._session is None:
                        self._session = boto3.Session(
                            profile_name=get("client.profile-name"),
                            region_name=get("rest.signing-region") or get("client.region"),
                            aws_access_key_id=get("client.access-key-id"),
                            aws_secret_access_key=get("client.secret-access-key"),
                            aws_session_token=get("client.session-token"),
                        )
                    found = self._session.get_credentials()
                    frozen = None if found is None else found.get_frozen_credentials()
            except kinds(ValueError) as err:
                raise _without_credentials(err) from None
        region = self._session.region_name
        if frozen is None or region is None:
            message = f"no {'credentials' if frozen is None else 'region'} to sign with"
            raise PermanentError("log in", "SigV4", message, "set client.access-key-id, … and rest.signing-region")
        return frozen, str(region)


def _without_credentials(err: Exception) -> TransientError | PermanentError:
    message = f"no credentials of Amazon ({wordless(err)})"
    if passes(err):
        return TransientError("log in", "SigV4", message, "run again")
    return PermanentError("log in", "SigV4", message, "check client.* and the environment")


_UNSIGNED: Final = ("connection", "user-agent", "accept", "accept-encoding", "content-length", "transfer-encoding")

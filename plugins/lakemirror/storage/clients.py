"""obstore clients by bucket: made on first use from pyiceberg's FileIO property names, one set per process.

Credentials given as properties are used as they are; without any, the environment decides (AWS variables, web identity,
instance role; Google application default credentials). What these clients cannot do is refused by name rather than
passed over.

obstore's threads do not survive fork(2), and a forked child that uses them waits for ever; `open` refuses that with a
clear word.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.storage.keys import Address

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSStore, MemoryStore, RetryConfig, S3Config, S3Credential, S3Store

    Client = MemoryStore | S3Store | GCSStore

_SHOWN: Final = frozenset(
    {
        "s3.endpoint",
        "s3.region",
        "client.region",
        "s3.force-virtual-addressing",
        "s3.anonymous",
        "gcs.service.host",
        "file.sync",
    }
)
_STORAGE_PREFIXES: Final = ("s3.", "client.", "gcs.", "file.")
_OTHER_CREDENTIALS: Final = ("s3.profile-name", "client.profile-name", "s3.role-arn", "client.role-arn", "s3.signer")
_READ_TIMEOUT_S: Final = 60.0
_CONNECT_TIMEOUT_S: Final = 10.0
_ANSWER_TIMEOUT_S: Final = 1800.0  # as a file of a copy has; stalls end by the read timeout, a drip ends by this
_RETRIES: Final = 3
_RETRY_TIMEOUT: Final = timedelta(seconds=30)

_users: list[int] = []  # the process that obstore's threads live in; they are one per process, hence this is too


@dataclass(slots=True)
class MemoryUpload:
    """A multipart upload that is not finished: its parts by number."""

    uri: str
    begun_at: datetime
    parts: dict[int, bytes] = field(default_factory=dict)


class MemoryBuckets:
    """Buckets in the memory of this process, by name; stores given the same MemoryBuckets see the same objects."""

    def __init__(self) -> None:
        self._buckets: dict[str, MemoryStore] = {}
        self.uploads: dict[str, MemoryUpload] = {}

    def bucket(self, name: str) -> MemoryStore:
        from obstore.store import MemoryStore

        return self._buckets.setdefault(name, MemoryStore())

    def __reduce__(self) -> str:
        raise PermanentError(
            "pickle", "memory buckets", "they live in one process only", "use file:// between processes"
        )


class Clients:
    """Makes and keeps the clients of one set of properties."""

    def __init__(self, properties: Mapping[str, str], memory: MemoryBuckets | None) -> None:
        self._properties = storage_properties(properties)
        self._memory = memory
        self._clients: dict[tuple[int, str, str, bool, bool], Client] = {}

    def open(self, address: Address, *, retries: bool = True, sums: bool = False) -> Client:
        """The client of this bucket; without retries for conditional writes, where one would meet the first attempt.

        With `sums`, bodies that go to S3 carry their SHA-256, by which the server refuses damaged ones; not every
        server minds the one that is signed.
        """
        pid = os.getpid()
        if not _users:
            _users.append(pid)
        if _users[0] != pid:
            what = "this process was forked from one that had used an object store"
            raise PermanentError("open", address.root, what, "start it by spawn, or fork before the first use")
        if address.kind == "memory":
            if self._memory is None:
                self._memory = MemoryBuckets()
            return self._memory.bucket(address.bucket)
        name = (pid, address.kind, address.bucket, retries, sums)
        client = self._clients.get(name)
        if client is None:
            if address.kind == "s3":
                made: Client = _s3_client(address.bucket, self._properties, retries, sums)
            else:
                made = _gcs_client(address.bucket, self._properties, retries)
            client = self._clients.setdefault(name, made)
        return client

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of stores, secrets included."""
        return self._properties

    def is_unguarded(self, address: Address) -> bool:
        """Whether bytes of S3 come over a line without TLS."""
        return address.kind == "s3" and self._properties.get("s3.endpoint", "").startswith("http://")

    def __getstate__(self) -> dict[str, object]:
        return {"_properties": self._properties, "_memory": self._memory, "_clients": {}}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={_shown(name, self._properties[name])}" for name in sorted(self._properties))


def _s3_client(bucket: str, properties: Mapping[str, str], retries: bool, sums: bool) -> S3Store:
    from obstore.store import S3Store

    config: S3Config = {"copy_if_not_exists": "multipart"}
    if sums:
        config["checksum_algorithm"] = "SHA256"
    endpoint = properties.get("s3.endpoint")
    region = _first(properties, "s3.region", "client.region")
    if region:
        config["region"] = region
    if properties.get("s3.force-virtual-addressing", "false").lower() == "true":
        config["virtual_hosted_style_request"] = True
        if endpoint:
            parts = urlsplit(endpoint)
            endpoint = urlunsplit(parts._replace(netloc=f"{bucket}.{parts.netloc}"))
    if endpoint:
        config["endpoint"] = endpoint
    if properties.get("s3.anonymous", "false").lower() == "true":
        config["skip_signature"] = True
    options = _options(properties, "s3", endpoint)
    if proxy := properties.get("s3.proxy-uri"):
        options["proxy_url"] = proxy
    credential = s3_credential(properties)
    # a provider, not config: otherwise obstore mixes a given key with a session token of the environment
    provider = (lambda: credential) if credential else None
    return S3Store(
        bucket, config=config, client_options=options, retry_config=_retry(retries), credential_provider=provider
    )


def s3_credential(properties: Mapping[str, str]) -> S3Credential | None:
    """The access key that is given; None leaves it to the environment."""
    key = _first(properties, "s3.access-key-id", "client.access-key-id")
    secret = _first(properties, "s3.secret-access-key", "client.secret-access-key")
    if key and secret:
        token = _first(properties, "s3.session-token", "client.session-token")
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    if key or secret:
        hint = "set both, or none for the environment's credentials"
        raise PermanentError("open", "s3", "only one of s3.access-key-id and s3.secret-access-key is set", hint)
    for name in _OTHER_CREDENTIALS:
        if properties.get(name):
            raise UnsupportedError(
                "open", "s3", f"{name} is not supported", "set s3.access-key-id and s3.secret-access-key"
            )
    return None


def _gcs_client(bucket: str, properties: Mapping[str, str], retries: bool) -> GCSStore:
    from obstore.store import GCSStore

    host, token = properties.get("gcs.service.host"), properties.get("gcs.oauth2.token")
    options, retry = _options(properties, "gcs", host), _retry(retries)
    if token and host:
        return GCSStore(bucket, base_url=host, bearer_token=token, client_options=options, retry_config=retry)
    if token:
        return GCSStore(bucket, bearer_token=token, client_options=options, retry_config=retry)
    if host:  # an emulator: only this form keeps obstore from asking the metadata server for a token
        account = {"type": "service_account", "gcs_base_url": host, "disable_oauth": True}
        blank = {"client_email": "", "private_key": "", "private_key_id": ""}
        key = json.dumps(account | blank)
        return GCSStore(bucket, service_account_key=key, client_options=options, retry_config=retry)
    return GCSStore(bucket, client_options=options, retry_config=retry)


def _options(properties: Mapping[str, str], family: str, endpoint: str | None) -> ClientConfig:
    connect, read = timeouts(properties, family)
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=connect),
        "read_timeout": timedelta(seconds=read),
        "timeout": timedelta(seconds=answer_timeout(properties, family)),
    }
    if endpoint and endpoint.startswith("http://"):
        options["allow_http"] = True
    return options


def timeouts(properties: Mapping[str, str], family: str) -> tuple[float, float]:
    """Seconds until connected, and between two pieces of an answer."""
    connect = float(properties.get(f"{family}.connect-timeout", _CONNECT_TIMEOUT_S))
    return connect, float(properties.get(f"{family}.request-timeout", _READ_TIMEOUT_S))


def answer_timeout(properties: Mapping[str, str], family: str) -> float:
    """Seconds that an answer may take as a whole."""
    return float(properties.get(f"{family}.answer-timeout", _ANSWER_TIMEOUT_S))


def _retry(retries: bool) -> RetryConfig:
    return {"max_retries": _RETRIES if retries else 0, "retry_timeout": _RETRY_TIMEOUT}


def _first(properties: Mapping[str, str], *names: str) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of stores alone: a catalog's are none of their business, and must not travel to executors with them."""
    return {name: value for name, value in properties.items() if name.startswith(_STORAGE_PREFIXES)}


def _shown(name: str, value: str) -> str:
    return repr(value) if name in _SHOWN and "@" not in value else "***"

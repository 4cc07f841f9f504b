"""The catalogs that the contract suites run over: each with a writer that is not ours, and a way to break it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dev.services import Services
from lakemirror.catalogs.open import open_mirror, open_source
from lakemirror.catalogs.pins import SourcePins
from lakemirror.catalogs.ports import MirrorCatalog, SourceCatalog
from lakemirror.config.sections import CatalogConfig
from lakemirror.model.table import TableRef

# The servers are asked for by name, which pytest cannot see beforehand: the marks are those that their fixtures give.
_SERVED = (pytest.mark.services, pytest.mark.timeout(120, func_only=True))


def _served(*kinds: str) -> list[Any]:
    return ["sqlite", *(pytest.param(kind, marks=_SERVED) for kind in kinds)]


SOURCES = _served("postgres", "rest-token", "rest-oauth", "hive", "glue")
MIRRORS = _served("postgres", "rest", "blms", "glue")
AT_ONCE = {"rest.retry-pause-s": "0"}  # no pause between tries
NOWHERE = "127.0.0.1:9"  # nobody listens at the port of `discard`
KEYS = {"glue.access-key-id": "test", "glue.secret-access-key": "contract-secret"}  # pragma: allowlist secret


@dataclass
class Home:
    """A catalog by its properties; names of tables are new in every test, so nothing has to be cleaned."""

    kind: str
    properties: Mapping[str, str]
    unreachable: Mapping[str, str]  # properties that lead nowhere
    location: str
    secrets: tuple[str, ...] = ()
    others: Mapping[str, str] | None = None  # properties by which pyiceberg's own catalog gets at the same tables
    namespace: str = field(default_factory=lambda: f"ns{uuid.uuid4().hex[:10]}")

    @property
    def has_levels(self) -> bool:
        return self.kind not in ("hive", "glue", "blms")

    @property
    def is_rest(self) -> bool:
        return self.kind.startswith(("rest", "blms"))

    def table(self, name: str = "orders") -> TableRef:
        return TableRef((self.namespace,), name)

    def source(self, **other: str) -> SourceCatalog:
        return open_source(self._config(other))

    def pins(self) -> SourcePins:
        return SourcePins(self._config({}))

    def mirror(self, **other: str) -> MirrorCatalog:
        return open_mirror(self._config(other))

    def _config(self, other: Mapping[str, str]) -> CatalogConfig:
        return CatalogConfig.model_validate({"name": "contract", **self.properties, **other})

    def writer(self) -> Any:
        """pyiceberg's own catalog."""
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("contract", **(self.others or self.properties))
        catalog.create_namespace_if_not_exists(self.namespace)
        return catalog


def make_home(kind: str, request: pytest.FixtureRequest, folder: Path) -> Home:
    return _MAKERS[kind](request, folder)


def _services(request: pytest.FixtureRequest, name: str = "services") -> Services:
    found: Services = request.getfixturevalue(name)
    return found


def _sqlite(request: pytest.FixtureRequest, folder: Path) -> Home:
    warehouse = f"file://{folder}/warehouse"
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}
    return Home("sqlite", properties, {"uri": f"sqlite:///{folder}/catalog.db?timeout=0.1"}, warehouse)


def _postgres(request: pytest.FixtureRequest, folder: Path) -> Home:
    uri = _services(request).postgres.uri("lakemirror").replace("postgresql://", "postgresql+psycopg2://")
    secret = uri.split("@")[0].rpartition(":")[2]
    warehouse = f"file://{folder}/warehouse"
    away = f"{uri.rpartition('@')[0]}@{NOWHERE}/lakemirror"
    return Home("postgres", {"type": "sql", "uri": uri, "warehouse": warehouse}, {"uri": away}, warehouse, (secret,))


def _rest_token(request: pytest.FixtureRequest, folder: Path) -> Home:
    services = _services(request)
    properties, token = services.source_properties, services.source_catalog.token or ""
    secrets = (token, services.source_store.secret_access_key)
    return Home(
        "rest-token", properties, {"uri": f"http://{NOWHERE}", **AT_ONCE}, services.source_catalog.warehouse, secrets
    )


def _rest_oauth(request: pytest.FixtureRequest, folder: Path) -> Home:
    services = _services(request)
    secret = (services.mirror_catalog.credential or "").partition(":")[2]
    away = {"uri": f"http://{NOWHERE}", "oauth2-server-uri": f"http://{NOWHERE}/v1/oauth/tokens", **AT_ONCE}
    secrets = (secret, services.mirror_store.secret_access_key)
    return Home("rest-oauth", services.mirror_properties, away, services.mirror_location, secrets)


def _blms(request: pytest.FixtureRequest, folder: Path) -> Home:
    services, double = _services(request), request.getfixturevalue("blms")
    key = json.loads(double.properties["gcp.auth.credentials-json"])["private_key"]
    secrets = (key, services.mirror_store.secret_access_key)
    away = {"uri": f"http://{NOWHERE}", **AT_ONCE}
    return Home("blms", double.properties, away, services.mirror_location, secrets, services.mirror_properties)


def _hive(request: pytest.FixtureRequest, folder: Path) -> Home:
    services = _services(request, "hms_services")
    warehouse = f"file://{folder}/warehouse"
    properties = {"type": "hive", "uri": services.hms_uri or "", "warehouse": warehouse}
    return Home("hive", properties, {"uri": f"thrift://{NOWHERE}"}, warehouse)


def _glue(request: pytest.FixtureRequest, folder: Path) -> Home:
    services = _services(request)
    warehouse = f"file://{folder}/warehouse"
    properties = {"type": "glue", "glue.endpoint": services.aws_mock_endpoint, "glue.region": "eu-west-1", **KEYS}
    away = {"glue.endpoint": f"http://{NOWHERE}", "glue.max-retries": "1"}
    return Home("glue", {**properties, "warehouse": warehouse}, away, warehouse, (KEYS["glue.secret-access-key"],))


_MAKERS: dict[str, Callable[[pytest.FixtureRequest, Path], Home]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "rest": _rest_oauth,
    "rest-token": _rest_token,
    "rest-oauth": _rest_oauth,
    "blms": _blms,
    "hive": _hive,
    "glue": _glue,
}

"""The variables, the secrets, the layout: everything of the profile that needs no server."""

import json
import re
import subprocess
from pathlib import Path
from string import Template
from typing import Literal

import pytest

from dev.demo.services_home import ServicesHome
from dev.services import Parts, Services
from dev.services.builds import Cache
from dev.services.folder import PROJECT, ServicesFolder
from dev.services.hms import site
from dev.services.layout import PORTS_OF, describe
from dev.services.secrets import Secrets, keep
from dev.services.servers import base_environment
from dev.services.stack import down, running, up
from dev.services.trouble import ToolMissing
from dev.shop import TABLES
from lakemirror.config.loader import load_config

ALWAYS = (
    "SOURCE_CATALOG_URI SOURCE_CATALOG_TOKEN SOURCE_WAREHOUSE SOURCE_S3_ENDPOINT SOURCE_S3_REGION"
    " SOURCE_S3_ACCESS_KEY_ID SOURCE_S3_SECRET_ACCESS_KEY"
    " MIRROR_CATALOG_URI MIRROR_CATALOG_CREDENTIAL MIRROR_CATALOG_OAUTH2_SERVER_URI MIRROR_WAREHOUSE MIRROR_LOCATION"
    " MIRROR_S3_ENDPOINT MIRROR_S3_REGION MIRROR_S3_ACCESS_KEY_ID MIRROR_S3_SECRET_ACCESS_KEY"
    " POSTGRES_URI AWS_MOCK_ENDPOINT"
).split()
OPTIONAL = "GCS_ENDPOINT PUBSUB_ENDPOINT HMS_URI SPARK_MASTER_URI".split()


def described(tmp_path: Path, parts: Parts) -> Services:
    names = [f"{server}/{port}" for server, ports in PORTS_OF.items() for port in ports]
    return describe(parts, {name: 20_000 + at for at, name in enumerate(names)}, keep(tmp_path / "secrets.json"))


@pytest.mark.parametrize(
    ("parts", "more"),
    [
        (Parts(), []),
        (Parts(gcs=True), OPTIONAL[:2]),
        (Parts(hms=True), OPTIONAL[2:3]),
        (Parts(gcs=True, hms=True, spark=True), OPTIONAL),
    ],
)
def test_the_variables_are_those_of_the_interface(tmp_path: Path, parts: Parts, more: list[str]) -> None:
    assert list(described(tmp_path, parts).environment()) == [*ALWAYS, *more]


@pytest.mark.parametrize("side", ["source", "mirror"])
def test_a_configuration_names_variables_and_no_secret(tmp_path: Path, side: Literal["source", "mirror"]) -> None:
    services = described(tmp_path, Parts())
    want = services.source_properties if side == "source" else services.mirror_properties

    found = services.configured(side, {"s3.endpoint": "http://proxy", "s3.connect-timeout": "2"})

    environment = services.environment()
    assert {key: Template(value).substitute(environment) for key, value in found.items()} == {
        **want,
        "s3.endpoint": "http://proxy",
        "s3.connect-timeout": "2",
    }
    secrets = json.loads((tmp_path / "secrets.json").read_text()).values()
    assert not [secret for secret in secrets if secret in str(found)]
    assert found["s3.secret-access-key"] == f"${{{side.upper()}_S3_SECRET_ACCESS_KEY}}"  # pragma: allowlist secret


def test_the_configuration_of_the_profile_reads_these_variables(tmp_path: Path) -> None:
    path = PROJECT / "include" / "config" / "services.yaml"
    text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    services = described(tmp_path, Parts())

    config = load_config(path, env=services.environment())

    assert set(re.findall(r"\$\{(\w+)\}", text)) == set(ALWAYS) - {"AWS_MOCK_ENDPOINT"}
    assert config.mirror.location == services.mirror_location


def test_the_demo_has_a_valid_configuration_there_that_holds_no_secret(tmp_path: Path) -> None:
    home = ServicesHome(tmp_path, described(tmp_path, Parts()))
    home.write_config()

    config = load_config(home.config, env=home.environment)

    assert [str(table) for table in config.exact_tables()] == list(TABLES)
    assert home.environment["POSTGRES_URI"].endswith("/demo")
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o600
    secrets = json.loads((tmp_path / "secrets.json").read_text()).values()
    assert not [secret for secret in secrets if secret in home.config.read_text()]


def test_a_shell_reads_what_was_written(tmp_path: Path) -> None:
    services = described(tmp_path, Parts(gcs=True))
    (tmp_path / "env").write_text(services.shell())

    said = subprocess.run(
        ["sh", "-c", ". ./env && env -0"], cwd=tmp_path, env={}, capture_output=True, text=True, check=True, timeout=10
    ).stdout
    got = dict(line.split("=", 1) for line in said.split("\0") if line)

    assert services.environment().items() <= got.items()


def test_a_token_on_one_side_client_credentials_on_the_other(tmp_path: Path) -> None:
    services = described(tmp_path, Parts())

    assert set(services.source_catalog.properties) == {"type", "uri", "warehouse", "token"}
    assert set(services.mirror_catalog.properties) == {"type", "uri", "warehouse", "credential", "oauth2-server-uri"}
    assert services.source_properties["s3.endpoint"] == services.source_store.endpoint
    assert services.mirror_properties["s3.endpoint"] == services.mirror_store.endpoint


def test_secrets_are_made_once_and_differ(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    secrets, again, elsewhere = keep(file), keep(file), keep(tmp_path / "other.json")

    assert secrets == again
    assert file.stat().st_mode & 0o777 == 0o600
    values = [getattr(one, name) for one in (secrets, elsewhere) for name in Secrets.__dataclass_fields__]
    assert len(set(values)) == len(values)
    assert all(value.isalnum() and len(value) == 32 for value in values)


def test_no_secret_is_said_by_accident(tmp_path: Path) -> None:
    secrets = keep(tmp_path / "secrets.json")
    said = f"{secrets!r} {described(tmp_path, Parts())!r}"

    assert not [name for name in Secrets.__dataclass_fields__ if str(getattr(secrets, name)) in said]


def test_secrets_of_an_older_version_are_kept_and_completed(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text('{"source_token": "kept", "gone": "x"}')

    assert keep(file).source_token == "kept"
    assert keep(file) == keep(file)


def test_servers_hear_nothing_of_the_callers_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    monkeypatch.setenv("JAVA_HOME", "/java")

    found = base_environment()

    assert found["JAVA_HOME"] == "/java"
    assert not {"AWS_PROFILE", "HTTP_PROXY"} & set(found)


def test_hadoop_settings_are_escaped() -> None:
    assert "<value>a&amp;b&lt;</value>" in site({"x": "a&b<"})


def test_a_missing_tool_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = ServicesFolder(tmp_path / "services")

    with pytest.raises(ToolMissing, match="the Iceberg REST catalogs need Maven"):
        up(folder=folder, cache=Cache(tmp_path / "cache"))

    assert running(folder=folder) == {}
    assert not folder.env.exists()


def test_down_where_nothing_ever_was(tmp_path: Path) -> None:
    assert down(folder=ServicesFolder(tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()

"""What runs and how to get in: the answer of `up`, and the variables of `.services/env`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dev.services.iceberg_rest import RestCatalog
from dev.services.postgres import Postgres
from dev.services.seaweed import S3Store

STATE_DATABASE = "lakemirror"


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses and credentials. What is None was not asked for."""

    source_catalog: RestCatalog
    source_store: S3Store
    mirror_catalog: RestCatalog
    mirror_store: S3Store
    mirror_location: str
    postgres: Postgres
    aws_mock_endpoint: str
    gcs_endpoint: str | None = None
    pubsub_endpoint: str | None = None
    hms_uri: str | None = None
    spark_master_uri: str | None = None
    started: tuple[str, ...] = ()  # the servers that were not up before

    @property
    def source_properties(self) -> dict[str, str]:
        """The source catalog with its files, by pyiceberg's names."""
        return {**self.source_catalog.properties, **self.source_store.properties}

    @property
    def mirror_properties(self) -> dict[str, str]:
        return {**self.mirror_catalog.properties, **self.mirror_store.properties}

    def configured(self, side: Literal["source", "mirror"], changes: Mapping[str, str] | None = None) -> dict[str, str]:
        """A side's catalog as a configuration file may say it: what the environment knows stands as `${NAME}`.

        `changes` are properties to be added or replaced.
        """
        properties = self.source_properties if side == "source" else self.mirror_properties
        found = self.environment().items()
        names = {value: f"${{{name}}}" for name, value in found if name.startswith(f"{side.upper()}_")}
        return {key: names.get(value, value) for key, value in {**properties, **(changes or {})}.items()}

    def environment(self) -> dict[str, str]:
        """The variables that INTERFACES names, in that order; those of parts that are not up are left out."""
        source, mirror = self.source_store, self.mirror_store
        found = {
            "SOURCE_CATALOG_URI": self.source_catalog.uri,
            "SOURCE_CATALOG_TOKEN": self.source_catalog.token,
            "SOURCE_WAREHOUSE": self.source_catalog.warehouse,
            "SOURCE_S3_ENDPOINT": source.endpoint,
            "SOURCE_S3_REGION": source.region,
            "SOURCE_S3_ACCESS_KEY_ID": source.access_key_id,
            "SOURCE_S3_SECRET_ACCESS_KEY": source.secret_access_key,
            "MIRROR_CATALOG_URI": self.mirror_catalog.uri,
            "MIRROR_CATALOG_CREDENTIAL": self.mirror_catalog.credential,
            "MIRROR_CATALOG_OAUTH2_SERVER_URI": self.mirror_catalog.oauth2_server_uri,
            "MIRROR_WAREHOUSE": self.mirror_catalog.warehouse,
            "MIRROR_LOCATION": self.mirror_location,
            "MIRROR_S3_ENDPOINT": mirror.endpoint,
            "MIRROR_S3_REGION": mirror.region,
            "MIRROR_S3_ACCESS_KEY_ID": mirror.access_key_id,
            "MIRROR_S3_SECRET_ACCESS_KEY": mirror.secret_access_key,
            "POSTGRES_URI": self.postgres.uri(STATE_DATABASE),
            "AWS_MOCK_ENDPOINT": self.aws_mock_endpoint,
            "GCS_ENDPOINT": self.gcs_endpoint,
            "PUBSUB_ENDPOINT": self.pubsub_endpoint,
            "HMS_URI": self.hms_uri,
            "SPARK_MASTER_URI": self.spark_master_uri,
        }
        return {name: value for name, value in found.items() if value is not None}

    def shell(self) -> str:
        """The text of `.services/env`."""
        return shell_exports(self.environment())


def shell_exports(environment: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())

"""What the services profile consists of: the names of its servers, their ports, and how to get in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dev.services import gcsemu, hms, iceberg_rest, moto, postgres, seaweed, spark_cluster
from dev.services.builds import Build
from dev.services.endpoints import Services
from dev.services.iceberg_rest import RestCatalog
from dev.services.postgres import Postgres
from dev.services.seaweed import S3Store
from dev.services.secrets import Secrets

SOURCE_STORE, MIRROR_STORE = "seaweed-source", "seaweed-mirror"
SOURCE_CATALOG, MIRROR_CATALOG = "rest-source", "rest-mirror"
DATABASES = {SOURCE_CATALOG: "source_catalog", MIRROR_CATALOG: "mirror_catalog"}
PORTS_OF = {
    SOURCE_STORE: seaweed.PORTS,
    MIRROR_STORE: seaweed.PORTS,
    postgres.NAME: ("sql",),
    SOURCE_CATALOG: ("http",),
    MIRROR_CATALOG: ("http",),
    moto.NAME: ("http",),
    gcsemu.NAME: ("http", "pubsub"),
    hms.NAME: ("thrift",),
    spark_cluster.MASTER: ("rpc", "web"),
    **dict.fromkeys(spark_cluster.WORKERS, ("rpc", "web")),
}
OPTIONAL = frozenset((gcsemu.NAME, hms.NAME, spark_cluster.MASTER, *spark_cluster.WORKERS))


@dataclass(frozen=True, slots=True)
class Parts:
    """What is wanted besides the stores, the catalogs, PostgreSQL and moto."""

    gcs: bool = False
    hms: bool = False
    spark: bool = False

    def __or__(self, other: Parts) -> Parts:
        return Parts(self.gcs or other.gcs, self.hms or other.hms, self.spark or other.spark)

    @property
    def builds(self) -> tuple[Build, ...]:
        optional = ((self.gcs, gcsemu.BUILD), (self.hms, hms.BUILD))
        return (iceberg_rest.BUILD, *(build for is_wanted, build in optional if is_wanted))


def describe(parts: Parts, at: Mapping[str, int], secrets: Secrets) -> Services:
    """How to get in, once all that is wanted runs at these ports (by `server/port`)."""

    def http(name: str) -> str:
        return f"http://127.0.0.1:{at[name]}"

    source = S3Store(
        http(f"{SOURCE_STORE}/s3"), "us-east-1", secrets.source_access_key_id, secrets.source_secret_access_key, "lake"
    )
    mirror = S3Store(
        http(f"{MIRROR_STORE}/s3"),
        "eu-west-1",
        secrets.mirror_access_key_id,
        secrets.mirror_secret_access_key,
        "mirror",
    )
    location = f"{mirror.uri}/warehouse"
    return Services(
        RestCatalog(http(f"{SOURCE_CATALOG}/http"), f"{source.uri}/warehouse", token=secrets.source_token),
        source,
        RestCatalog(http(f"{MIRROR_CATALOG}/http"), location, credential=secrets.mirror_credential),
        mirror,
        location,
        Postgres(at[f"{postgres.NAME}/sql"], secrets.postgres_password),
        moto.endpoint(at[f"{moto.NAME}/http"]),
        gcs_endpoint=gcsemu.endpoint(at[f"{gcsemu.NAME}/http"]) if parts.gcs else None,
        pubsub_endpoint=f"127.0.0.1:{at[f'{gcsemu.NAME}/pubsub']}" if parts.gcs else None,
        hms_uri=hms.uri(at[f"{hms.NAME}/thrift"]) if parts.hms else None,
        spark_master_uri=spark_cluster.uri(at[f"{spark_cluster.MASTER}/rpc"]) if parts.spark else None,
    )

"""Iceberg REST catalogs: Iceberg's own servlet over JdbcCatalog on PostgreSQL, one process for each catalog.

The source's lets in a bearer token that never changes. The mirror's wants OAuth2 client credentials and hands out
tokens that live an hour and end with the process, so that a restart is what an expired token is to a client.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dev.services.builds import Build
from dev.services.postgres import USER, Postgres
from dev.services.seaweed import S3Store
from dev.services.servers import Server
from dev.services.tools import JAVAC, MAVEN, run
from dev.services.waiting import answers

TITLE = "the Iceberg REST catalogs"
MAVEN_TIMEOUT_S = 600
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """A catalog as its clients see it: a token on one side, client credentials on the other."""

    uri: str
    warehouse: str
    token: str | None = None
    credential: str | None = None

    def __repr__(self) -> str:
        return f"RestCatalog({self.uri})"

    @property
    def oauth2_server_uri(self) -> str:
        return f"{self.uri}/v1/oauth/tokens"

    @property
    def properties(self) -> dict[str, str]:
        """By pyiceberg's names."""
        found = {"type": "rest", "uri": self.uri, "warehouse": self.warehouse}
        if self.token is not None:
            found["token"] = self.token
        if self.credential is not None:
            found |= {"credential": self.credential, "oauth2-server-uri": self.oauth2_server_uri}
        return found


def _check() -> None:
    MAVEN.need(TITLE, "to fetch their jars")
    JAVAC.need(TITLE, "for their main class")


def _make(sources: Path, into: Path) -> None:
    fetch_jars(sources / "pom.xml", into / "lib", TITLE)
    compile_main(sources / "IcebergRest.java", into, TITLE)


BUILD = Build("iceberg-rest", TITLE, _make, _check)


def fetch_jars(pom: Path, into: Path, part: str) -> None:
    """All that a pom names and what that needs. Maven's own settings say where from."""
    maven = MAVEN.need(part, "to fetch their jars")
    goal = f"{PLUGIN}:copy-dependencies"
    command = [maven, "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={into}"]
    run(command, what=f"fetching the jars for {part} with Maven", folder=into.parent, timeout_s=MAVEN_TIMEOUT_S)


def compile_main(source: Path, into: Path, part: str) -> None:
    """Against `lib/`, to `classes/`."""
    (into / "classes").mkdir()
    javac = JAVAC.need(part, "for their main class")
    command = [javac, "-cp", f"{into / 'lib'}/*", "-d", str(into / "classes"), str(source)]
    run(command, what=f"compiling {source.name}", folder=into, timeout_s=120)


def server(
    name: str,
    port: int,
    build: Path,
    *,
    catalog: RestCatalog,
    database: tuple[Postgres, str],
    store: S3Store,
    gcs_endpoint: str,
) -> Server:
    """Tables may live on `store` and, by `gs://`, on the GCS emulator, whether it is up or not."""
    postgres, db = database
    properties = {
        "uri": postgres.jdbc(db),
        "jdbc.user": USER,
        "jdbc.password": postgres.password,
        "warehouse": catalog.warehouse,
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        "client.region": store.region,
        "clients": "4",
        # What PostgreSQL says to those who were connected when it was stopped: connect anew, ask again.
        "retryable_status_codes": "57P01,57P02,57P03",
        **{key: value for key, value in store.properties.items() if key != "s3.region"},
        "gcs.project-id": "lakemirror",
        "gcs.service.host": gcs_endpoint,
        "gcs.no-auth": "true",
    }
    access = {"REST_TOKEN": catalog.token, "REST_CREDENTIAL": catalog.credential}
    java = (
        "java",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    )
    return Server(
        name,
        (*java, "-cp", f"{build / 'classes'}:{build / 'lib'}/*", "IcebergRest"),
        lambda: answers(f"{catalog.uri}/healthz"),
        environment={
            "REST_CATALOG": json.dumps(properties),
            **{key: value for key, value in access.items() if value is not None},
            "REST_PORT": str(port),
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_GCE_CHECK": "true",
        },
    )

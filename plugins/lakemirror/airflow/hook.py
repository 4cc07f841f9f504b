"""The way from an Airflow task to the library: a path becomes an App, a connection id what Airflow knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from lakemirror.errors import PermanentError, TransientError, UsageError

if TYPE_CHECKING:
    from lakemirror.app import App
    from lakemirror.config.connections import Connection
    from lakemirror.config.models import Config

_FIELDS = ("conn_type", "host", "port", "schema", "login", "password", "extra")


class LakemirrorHook(BaseHook):
    """Made inside `execute`, never in a constructor or at parse; the library is imported only when it is asked for."""

    def __init__(self, *, config_path: str | None = None) -> None:
        super().__init__()
        self.config_path = config_path

    @contextmanager
    def app(self, *, owner: str | None = None) -> Iterator[App]:
        """The use cases over the configuration at `config_path` (None: where the CLI would look), closed after use.

        `owner` is what leases are taken for (see `run_name`); None: this process. Connections come from Airflow: its
        secrets backends, its environment and its database, when they are needed.
        """
        from lakemirror.app import App

        app = App.load(self.config_path, connections=self.resolve, owner=owner)
        try:
            yield app
        finally:
            app.close()

    def resolve(self, conn_id: str) -> Connection:
        """What Airflow knows under this id, hidden in its logs from now on.

        Airflow does not tell a connection that is not there from a backend that does not answer: that may pass.
        """
        from lakemirror.config.connections import Connection

        refused: Exception
        try:
            known = self.get_connection(conn_id)
        except PermissionError:
            refused = PermanentError("read connection", conn_id, "Airflow denies it to this task", "check its rights")
        except AirflowNotFoundException:
            refused = TransientError(
                "read connection", conn_id, "Airflow does not know it, or cannot be asked now", "define it in Airflow"
            )
        except (AirflowException, ValueError):  # what they say may hold the connection itself
            hint = "define it in Airflow, or check how it is written"
            refused = UsageError("read connection", conn_id, "Airflow cannot give this connection", hint)
        else:
            connection = Connection.of(conn_id, {name: getattr(known, name) for name in _FIELDS})
            _hide(connection)
            return connection
        raise refused

    def driver_environment(self, config: Config) -> dict[str, str]:
        """The connections of a configuration for a process that has no Airflow: secret, as its environment only."""
        from lakemirror.config.connect import connection_ids
        from lakemirror.config.connections import variable_of

        return {variable_of(conn_id): self.resolve(conn_id).as_json() for conn_id in connection_ids(config)}


def run_name(context: Context) -> str:
    """Names a DAG run for all of its tasks and tries, and no run of another installation, also if the ids are equal."""
    run = context["dag_run"]
    started = "" if run.start_date is None else run.start_date.isoformat()
    return f"airflow {run.dag_id} {run.run_id} {started}".rstrip()


def _hide(connection: Connection) -> None:
    """Airflow hides the password, and values of `extra` whose names it knows.

    pyiceberg has other names for secrets, and keeps some inside addresses.
    """
    from lakemirror.config.connections import parse_object
    from lakemirror.config.environment import is_secret_name, secrets_in_address

    if connection.password:
        mask_secret(quote(connection.password, safe=" +"))  # as it stands in the address of a database
    for name, value in (parse_object(connection.extra or "{}") or {}).items():
        if not isinstance(value, str) or not value:
            continue
        if is_secret_name(name):
            mask_secret(value)
        for secret in secrets_in_address(value):
            for form in dict.fromkeys((secret, unquote(secret))):  # drivers show it either way
                mask_secret(form)

import json
import traceback
from pathlib import Path
from unittest.mock import ANY, MagicMock, patch

import pytest
from airflow.sdk import BaseHook
from airflow.sdk import Connection as Airflows
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.app import App
from lakemirror.config.connections import Connection, environment_connection
from lakemirror.config.loader import load_config
from lakemirror.errors import LakemirrorError, PermanentError, TransientError, UsageError


@pytest.mark.parametrize("path", ["/c.yaml", None])
def test_the_configuration_named_is_the_one_loaded(app: MagicMock, path: str | None) -> None:
    with LakemirrorHook(config_path=path).app() as found:
        assert found is app
        app.close.assert_not_called()
    App.load.assert_called_once_with(path, connections=ANY, owner=None)  # type: ignore[attr-defined]  # it is patched
    app.close.assert_called_once_with()


def test_the_application_is_closed_after_an_error(app: MagicMock) -> None:
    def work() -> None:
        with LakemirrorHook(config_path="/c.yaml").app():
            raise KeyError("x")

    with pytest.raises(KeyError):
        work()
    app.close.assert_called_once_with()


def test_making_a_hook_loads_nothing(app: MagicMock) -> None:
    LakemirrorHook(config_path="/c.yaml")
    App.load.assert_not_called()  # type: ignore[attr-defined]  # it is patched


CLOUD = {
    "conn_type": "postgres",
    "host": "db",
    "login": "ada",
    "password": "p@ss-hush",  # pragma: allowlist secret
    "schema": "cat",
    "port": 5433,
    "extra": {"s3.secret-access-key": "key-hush", "credential": "id:cred-hush", "s3.region": "north-east"},
}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUD", json.dumps(CLOUD))
    return Connection.of("cloud", CLOUD)


def test_a_connection_is_what_airflow_knows(cloud: Connection) -> None:
    assert LakemirrorHook().resolve("cloud") == cloud


def test_a_connection_without_most_of_its_fields() -> None:
    with patch.object(BaseHook, "get_connection", autospec=True, return_value=Airflows(conn_id="c", extra="{}")):
        assert LakemirrorHook().resolve("c") == Connection("c", extra="{}")


def test_the_application_asks_airflow_when_it_opens_a_port(tmp_path: Path) -> None:
    catalog = {"name": "m", "type": "sql", "conn_id": "cloud"}
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps({"mirror": {"catalog": catalog, "location": "file:///m"}}))
    known = Airflows(conn_id="cloud", conn_type="sqlite", host=f"{tmp_path}/m.db")
    with (
        patch.object(BaseHook, "get_connection", autospec=True, return_value=known) as ask,
        LakemirrorHook(config_path=str(path)).app() as app,
    ):
        ask.assert_not_called()
        assert app.mirror_store is app.mirror_store
        ask.assert_called_once_with("cloud")


def test_airflows_logs_show_no_secret_of_a_connection(cloud: Connection) -> None:
    with patch("lakemirror.airflow.hook.mask_secret", autospec=True) as mask:
        LakemirrorHook().resolve("cloud")
    assert [call.args for call in mask.call_args_list] == [("p%40ss-hush",), ("key-hush",), ("id:cred-hush",)]


def test_airflows_logs_show_no_secret_inside_an_address() -> None:
    """As it is written there, and as a driver may show it."""
    extra = {
        "uri": "postgresql://ada:p%40ss-hush@db/cat?sslmode=require",  # pragma: allowlist secret
        "endpoint": "https://host/x?sig=sig-hush&y=1",
        "region": "north-east",
        "retries": 3,
    }
    known = Airflows(conn_id="c", extra=json.dumps(extra))
    with (
        patch("lakemirror.airflow.hook.mask_secret", autospec=True) as mask,
        patch.object(BaseHook, "get_connection", autospec=True, return_value=known),
    ):
        LakemirrorHook().resolve("c")
    assert [call.args for call in mask.call_args_list] == [("p%40ss-hush",), ("p@ss-hush",), ("sig-hush",)]


@pytest.mark.parametrize(
    ("problem", "family", "message"),
    [
        (AirflowNotFoundException("hush"), TransientError, "Airflow does not know it, or cannot be asked now"),
        (AirflowException("Invalid connection string: x://hush"), UsageError, "Airflow cannot give this connection"),
        (ValueError("hush"), UsageError, "Airflow cannot give this connection"),
        (PermissionError("hush"), PermanentError, "Airflow denies it to this task"),
    ],
)
def test_a_connection_that_airflow_does_not_give(
    problem: Exception, family: type[LakemirrorError], message: str
) -> None:
    with (
        patch.object(BaseHook, "get_connection", autospec=True, side_effect=problem),
        pytest.raises(family) as caught,
    ):
        LakemirrorHook().resolve("cloud")
    assert (caught.value.subject, caught.value.message) == ("cloud", message)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_a_driver_without_airflow_reads_the_same(cloud: Connection, tmp_path: Path) -> None:
    catalog = {"name": "m", "type": "sql", "conn_id": "cloud"}
    (tmp_path / "c.yaml").write_text(json.dumps({"mirror": {"catalog": catalog, "location": "file:///m"}}))
    variables = LakemirrorHook().driver_environment(load_config(tmp_path / "c.yaml", env={}))
    assert list(variables) == ["AIRFLOW_CONN_CLOUD"]
    assert environment_connection("cloud", variables) == cloud

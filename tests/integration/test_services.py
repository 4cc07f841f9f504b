"""The services profile itself, in a folder of its own: what is up, who is let in, what `down` leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog
from sqlalchemy.exc import OperationalError

from dev.services import Services, ServicesFolder, down, kill, processes, running, up
from dev.services.cleaning import clean
from dev.services.folder import PROJECT
from dev.services.layout import PORTS_OF
from dev.services.servers import Servers
from tests.listening import HERE, addresses

DEFAULT = {"moto", "postgres", "rest-mirror", "rest-source", "seaweed-mirror", "seaweed-source"}
LATER_START_S = 15.0
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})

pytestmark = [pytest.mark.waits, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def folder(services: Services) -> Iterator[ServicesFolder]:
    """Not the folder of `make up`, whose servers somebody may be using. It must be one that `nobody` can reach.

    `services` is asked for because it skips or fails where tools are missing.
    """
    own = ServicesFolder().inner(f"test-{os.getpid()}")
    yield own
    down(folder=own)
    shutil.rmtree(own.path)


@pytest.fixture
def own(folder: ServicesFolder) -> Services:
    return up(folder=folder)


def test_a_second_up_starts_nothing(folder: ServicesFolder, own: Services) -> None:
    before = running(folder=folder)

    begin = time.monotonic()
    again = up(folder=folder)

    assert time.monotonic() - begin < LATER_START_S
    assert again == replace(own, started=())
    assert running(folder=folder) == before
    assert set(before) == DEFAULT


def test_the_variables_are_for_their_owner_only(folder: ServicesFolder, own: Services) -> None:
    assert folder.env.read_text() == own.shell()
    private = (folder.env, folder.secrets, *folder.pids.iterdir(), *folder.path.rglob("s3.json"))
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_nobody_outside_this_machine_can_connect(folder: ServicesFolder, own: Services) -> None:
    assert addresses(running(folder=folder).values()) == HERE


def test_no_secret_is_on_a_command_line(folder: ServicesFolder, own: Services) -> None:
    said = " ".join(" ".join(psutil.Process(pid).cmdline()) for pid in running(folder=folder).values())

    assert not [secret for secret in json.loads(folder.secrets.read_text()).values() if secret in said]


@pytest.mark.parametrize("victim", ["rest-mirror", "seaweed-source", "postgres"])
def test_one_that_was_killed_is_started_again_and_only_that(folder: ServicesFolder, own: Services, victim: str) -> None:
    clean(own)
    table = load_catalog("onprem", **own.source_properties)
    table.create_namespace("a")
    table.create_table("a.t", ROWS.schema).append(ROWS)
    before = running(folder=folder)
    assert kill(victim, folder=folder)

    again = up(folder=folder)

    after = running(folder=folder)
    assert again.started == (victim,)
    assert {name for name in DEFAULT if before[name] != after[name]} == {victim}
    assert load_catalog("onprem", **again.source_properties).load_table("a.t").scan().to_arrow().num_rows == 3


def test_one_that_hangs_is_started_anew(folder: ServicesFolder, own: Services) -> None:
    hanging = running(folder=folder)["moto"]
    os.kill(hanging, signal.SIGSTOP)

    again = up(folder=folder)

    assert again.started == ("moto",)
    assert running(folder=folder)["moto"] != hanging


def test_down_leaves_nothing_and_a_new_up_finds_everything_as_it_was(folder: ServicesFolder, own: Services) -> None:
    clean(own)
    own.mirror_store.client().put_object(Bucket="mirror", Key="a b/ü", Body=b"kept")
    load_catalog("cloud", **own.mirror_properties).create_namespace("kept")

    assert set(down(folder=folder)) == DEFAULT

    assert running(folder=folder) == {}
    marks = [f"{folder.path.resolve()}:{name}" for name in PORTS_OF]
    assert [pid for mark in marks for pid in processes.marked(mark)] == []
    assert not folder.env.exists()
    assert list(folder.pids.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", own.postgres.port), timeout=5)
    assert down(folder=folder) == []

    begin = time.monotonic()
    again = up(folder=folder)

    assert time.monotonic() - begin < LATER_START_S
    assert again == replace(own, started=tuple(sorted(DEFAULT)))
    assert again.mirror_store.client().get_object(Bucket="mirror", Key="a b/ü")["Body"].read() == b"kept"
    assert load_catalog("cloud", **again.mirror_properties).list_namespaces() == [("kept",)]


def test_a_port_that_somebody_took_is_replaced_for_all_who_use_it(folder: ServicesFolder, own: Services) -> None:
    down(folder=folder)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", own.postgres.port))
        thief.listen()
        again = up(folder=folder)

    assert again.postgres.port != own.postgres.port
    assert replace(again, postgres=own.postgres, started=own.started) == own
    load_catalog("onprem", **again.source_properties).list_namespaces()


def test_a_server_whose_record_was_lost_is_stopped_too(folder: ServicesFolder, own: Services) -> None:
    pid = running(folder=folder)["moto"]
    folder.pid("moto").unlink()

    assert "moto" in down(folder=folder)

    assert processes.birth(pid) is None


def test_a_server_that_cannot_start_says_why_and_the_others_run(
    folder: ServicesFolder, own: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dev.services import ServicesError, moto

    real = moto.server
    monkeypatch.setattr(moto, "server", lambda port: replace(real(port), command=("false",)))
    Servers(folder, print, threading.Event()).stop("moto")

    with pytest.raises(ServicesError, match=r"^moto (did not start|ended at once)"):
        up(folder=folder)

    assert set(running(folder=folder)) == DEFAULT - {"moto"}


# ------------------------------------------------------------------------------------------------------ who is let in
def answer(url: str, token: str | None = None, **form: str) -> tuple[int, Any]:
    data = urllib.parse.urlencode(form).encode() if form else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as said:
            return said.status, json.load(said)
    except urllib.error.HTTPError as err:
        with err:
            return err.code, json.load(err)


def test_the_source_catalog_wants_its_token(clean_services: Services) -> None:
    config = f"{clean_services.source_catalog.uri}/v1/config"
    token = clean_services.source_catalog.token

    assert answer(config, token)[0] == 200
    assert answer(config)[0] == 401
    assert answer(config, f"{token}x")[0] == 401


def test_the_mirror_catalog_wants_client_credentials(clean_services: Services) -> None:
    catalog = clean_services.mirror_catalog
    assert catalog.credential is not None
    identity, secret = catalog.credential.split(":")
    form = {"grant_type": "client_credentials", "client_id": identity}

    status, said = answer(catalog.oauth2_server_uri, **form, client_secret=secret)

    assert (status, said["token_type"]) == (200, "bearer")
    config = f"{catalog.uri}/v1/config"
    assert answer(config, said["access_token"])[0] == 200
    assert answer(config)[0] == 401
    assert answer(config, clean_services.source_catalog.token)[0] == 401
    assert answer(catalog.oauth2_server_uri, **form, client_secret=f"{secret}x")[0] == 401
    exchange = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange"}
    assert answer(catalog.oauth2_server_uri, **exchange, subject_token=said["access_token"])[0] == 200
    assert answer(catalog.oauth2_server_uri, **exchange, subject_token="none")[0] == 401


def test_tokens_of_the_mirror_end_with_its_process(folder: ServicesFolder, own: Services) -> None:
    catalog = own.mirror_catalog
    assert catalog.credential is not None
    identity, secret = catalog.credential.split(":")
    form = {"grant_type": "client_credentials", "client_id": identity, "client_secret": secret}
    token = answer(catalog.oauth2_server_uri, **form)[1]["access_token"]
    assert kill("rest-mirror", folder=folder)
    up(folder=folder)

    assert answer(f"{catalog.uri}/v1/config", token)[0] == 401


def test_stores_want_their_own_keys(clean_services: Services) -> None:
    source, mirror = clean_services.source_store, clean_services.mirror_store
    wrong_secret = replace(source, secret_access_key=mirror.secret_access_key)
    others_keys = replace(source, access_key_id=mirror.access_key_id, secret_access_key=mirror.secret_access_key)

    assert source.client().list_objects_v2(Bucket="lake")["KeyCount"] == 0
    for wrong in (wrong_secret, others_keys):
        with pytest.raises(ClientError) as refused:
            wrong.client().list_objects_v2(Bucket="lake")
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_the_database_wants_its_password(clean_services: Services) -> None:
    postgres = clean_services.postgres

    assert postgres.execute("lakemirror", "SELECT 1") == [(1,)]
    with pytest.raises(OperationalError, match="password authentication failed"):
        replace(postgres, password="wrong").execute("lakemirror", "SELECT 1")  # pragma: allowlist secret


def test_moto_answers_for_sqs_and_glue(clean_services: Services) -> None:
    import boto3

    common = {"region_name": "us-east-1", "aws_access_key_id": "any", "endpoint_url": clean_services.aws_mock_endpoint}
    known = {**common, "aws_secret_access_key": "any"}  # pragma: allowlist secret
    boto3.client("sqs", **known).create_queue(QueueName="q")
    boto3.client("glue", **known).create_database(DatabaseInput={"Name": "d"})

    assert len(boto3.client("sqs", **known).list_queues()["QueueUrls"]) == 1
    clean(clean_services)
    assert "QueueUrls" not in boto3.client("sqs", **known).list_queues()
    assert boto3.client("glue", **known).get_databases()["DatabaseList"] == []


def test_clean_empties_buckets_catalogs_and_state(clean_services: Services) -> None:
    services = clean_services
    client = services.source_store.client()
    client.create_multipart_upload(Bucket="lake", Key="half")
    client.create_bucket(Bucket="another")
    for name, properties in (("onprem", services.source_properties), ("cloud", services.mirror_properties)):
        catalog = load_catalog(name, **properties)
        catalog.create_namespace("a")
        catalog.create_table("a.t", ROWS.schema).append(ROWS)
    services.postgres.execute("lakemirror", "CREATE TABLE state (id int)")

    clean(services)

    for name, properties in (("onprem", services.source_properties), ("cloud", services.mirror_properties)):
        assert load_catalog(name, **properties).list_namespaces() == []
    assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["lake"]
    assert "Contents" not in client.list_objects_v2(Bucket="lake")
    assert "Uploads" not in client.list_multipart_uploads(Bucket="lake")
    services.postgres.execute("lakemirror", "CREATE TABLE state (id int)")


def test_the_commands_of_make_say_what_they_did(services: Services, services_folder: ServicesFolder) -> None:
    def said(command: str) -> str:
        words = [PROJECT / ".venv" / "bin" / "python", "-m", "dev.services", "--folder", services_folder.path, command]
        return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True).stdout

    up_again = said("up")

    assert up_again.startswith("services: all of them were up, in ")
    assert up_again.endswith(f"; to use them: source {services_folder.env.relative_to(PROJECT)}\n")
    assert {line.split()[0] for line in said("status").splitlines()} >= DEFAULT

"""Logins of queues by the providers' own hooks: what is wrong with one is waited out, and no secret of it is told."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemirror.airflow import inboxes
from lakemirror.airflow.inboxes import InboxTrigger, PubsubNoticeTrigger, SqsNoticeTrigger
from lakemirror.airflow.queues import Inbox, PubsubInbox, SqsInbox
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef
from tests.lake import ORDERS, Lake, rows
from tests.serving import answering
from tests.unit.airflow.triggerer import Triggerer, play

LATE = TableRef.parse("shop.late")
PUBSUB = {"conn_id": "queue", "project_id": "p", "subscription": "s"}
SQS = {"conn_id": "queue", "queue_url": "https://sqs.eu-central-1.amazonaws.com/1/q", "region": "eu-central-1"}
CUT = b"<AssumeRoleWithWebIdentityResponse><Credentials><SecretAccessKey>tell-nobody</SecretAccessKey>"
# Of somebody on the way: the client stumbles over them.
UNREADABLE = [(502, b"[]"), (502, b'"upstream down"'), (503, b"null"), (200, b"[]"), (200, b'{"Messages": [null]}')]
HINT = "check connection queue, and that the files which it names are there and may be read"
Connect = Callable[[str], None]


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def connect(file: str) -> None:
        conn = {"conn_type": "google_cloud_platform", "extra": {"key_path": file}}
        monkeypatch.setenv("AIRFLOW_CONN_QUEUE", json.dumps(conn))

    return connect


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A role that is taken with a token from a file, as on a cluster."""

    def connect(file: str) -> None:
        extra = {
            "role_arn": "arn:aws:iam::1:role/r",
            "assume_role_method": "assume_role_with_web_identity",
            "assume_role_with_web_identity_federation": "file",
            "assume_role_with_web_identity_token_file": file,
            "region_name": "eu-central-1",
        }
        monkeypatch.setenv("AIRFLOW_CONN_QUEUE", json.dumps({"conn_type": "aws", "extra": extra}))

    return connect


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, str]]:
    """A connection to a queue at this address."""

    def connect(uri: str) -> dict[str, str]:
        keys = {"login": "AKIA1", "password": "x"}  # pragma: allowlist secret
        conn = {"conn_type": "aws", **keys, "extra": {"region_name": "eu-central-1", "endpoint_url": uri}}
        monkeypatch.setenv("AIRFLOW_CONN_QUEUE", json.dumps(conn))
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        return {**SQS, "queue_url": f"{uri}/1/q"}

    return connect


def trouble_of(inbox: Inbox) -> TransientError:
    async def receive() -> TransientError:
        with pytest.raises(TransientError) as caught:
            await inbox.receive()
        await inbox.close()
        return caught.value

    return asyncio.run(receive())


def test_a_key_that_is_missing_is_trouble_of_the_queue(google: Connect, tmp_path: Path) -> None:
    google(f"{tmp_path}/key.json")
    assert trouble_of(PubsubInbox(**PUBSUB)).as_json() == {
        "kind": "transient",
        "op": "read queue",
        "subject": "p/s",
        "message": "FileNotFoundError: No such file or directory",
        "hint": HINT,
    }


def test_a_token_that_is_missing_is_trouble_of_the_queue(amazon: Connect, tmp_path: Path) -> None:
    amazon(f"{tmp_path}/token")
    assert trouble_of(SqsInbox(**SQS)).as_json() == {
        "kind": "transient",
        "op": "read queue",
        "subject": SQS["queue_url"],
        "message": "FileNotFoundError: No such file or directory",
        "hint": HINT,
    }


def test_a_key_in_place_of_its_path_is_not_told(google: Connect) -> None:
    """The system's error quotes the name of the file, which here is the secret itself."""
    google('{"private_key": "' + "tell-nobody" * 500 + '"}.json')
    err = trouble_of(PubsubInbox(**PUBSUB))
    assert err.message == "OSError: File name too long"
    assert "tell-nobody" not in "".join(traceback.format_exception(err))


@pytest.mark.parametrize(("status", "body"), [*UNREADABLE, (502, b"<html>"), (403, b"")], ids=str)
def test_whatever_sqs_or_a_proxy_answers_is_trouble_of_the_queue(
    sqs: Callable[[str], dict[str, str]], status: int, body: bytes
) -> None:
    with answering(status, body) as uri:
        assert trouble_of(SqsInbox(**sqs(uri))).hint == "check events.sqs, its connection and the queue's policy"


def test_what_sqs_refuses_is_told_in_its_words(sqs: Callable[[str], dict[str, str]]) -> None:
    with answering(400, b'{"__type": "QueueDoesNotExist", "message": "there is none"}') as uri:
        assert trouble_of(SqsInbox(**sqs(uri))).message == "QueueDoesNotExist (there is none)"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, CUT),
        (502, b"<!DOCTYPE html><p>tell-nobody"),
        (200, b"<a>tell-nobody</a>"),
        (403, b"<E><Error><Code>AccessDenied</Code><Message>tell-nobody</Message></Error></E>"),
    ],
    ids=str,
)
def test_what_sts_answers_is_trouble_of_the_queue_and_not_told(
    amazon: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    status: int,
    body: bytes,
) -> None:
    (tmp_path / "token").write_text("a-web-token")
    amazon(f"{tmp_path}/token")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with answering(status, body) as uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", uri)
        err = trouble_of(SqsInbox(**SQS))
    assert "tell-nobody" not in "".join(traceback.format_exception(err))
    assert "tell-nobody" not in caplog.text


def test_a_role_that_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's hook asks STS while it makes the client."""
    extra = {"role_arn": "arn:aws:iam::1:role/r", "region_name": "eu-central-1"}
    keys = {"login": "AKIA1", "password": "x"}  # pragma: allowlist secret
    monkeypatch.setenv("AIRFLOW_CONN_QUEUE", json.dumps({"conn_type": "aws", **keys, "extra": extra}))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with answering(200, CUT) as uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", uri)
        err = trouble_of(SqsInbox(**SQS))
    assert "tell-nobody" not in "".join(traceback.format_exception(err))


def test_watchers_outlive_an_answer_that_is_no_sqs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sqs: Callable[[str], dict[str, str]],
) -> None:
    monkeypatch.setattr(inboxes, "EMPTY_REST_S", 0.01)
    lake = Lake(tmp_path, tables=[{"name": str(ORDERS)}, {"name": str(LATE)}])
    lake.create().append(rows(1))
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        for table in (LATE, ORDERS):
            where = {"config_path": str(lake.follower_config_path), "poll_interval_s": 0.01}
            triggerer.start(SqsNoticeTrigger(table=str(table), **where, **names))
        await triggerer.until(lambda: caplog.text.count("watch: read queue") >= 3)
        assert [task.done() for task in triggerer.tasks.values()] == [False, False]

    with answering(502, b"[]") as uri:
        names = sqs(uri)
        play(story)


@pytest.mark.parametrize(("kind", "names"), [(PubsubNoticeTrigger, PUBSUB), (SqsNoticeTrigger, SQS)])
def test_watchers_wait_while_the_file_of_a_login_is_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    kind: type[InboxTrigger],
    names: dict[str, str],
) -> None:
    """The first looks need no message, so tables are told meanwhile."""
    monkeypatch.setattr(inboxes, "EMPTY_REST_S", 0.01)
    request.getfixturevalue("google" if kind is PubsubNoticeTrigger else "amazon")(f"{tmp_path}/missing.json")
    lake = Lake(tmp_path, tables=[{"name": str(ORDERS)}, {"name": str(LATE)}])
    lake.create().append(rows(1))
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        for table in (LATE, ORDERS):
            where = {"config_path": str(lake.follower_config_path), "poll_interval_s": 0.01}
            triggerer.start(kind(table=str(table), **where, **names))
        await triggerer.until(lambda: caplog.text.count("FileNotFoundError: No such file or directory; check") >= 3)
        await triggerer.until(lambda: triggerer.events == {str(LATE): [], str(ORDERS): ["v1"]})
        assert [task.done() for task in triggerer.tasks.values()] == [False, False]

    play(story)

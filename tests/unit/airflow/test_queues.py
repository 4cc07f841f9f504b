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
from tests.unit.airflow.triggerer import Triggerer, play

LATE = TableRef.parse("shop.late")
PUBSUB = {"conn_id": "queue", "project_id": "p", "subscription": "s"}
SQS = {"conn_id": "queue", "queue_url": "https://sqs.eu-central-1.amazonaws.com/1/q", "region": "eu-central-1"}
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

"""Queues that get a bucket's notifications, by the hooks and connections of Airflow's google and amazon providers.

Each message is delivered at least once, in no order, until it is done with. What goes wrong is a TransientError: queues
come back, and whoever made a slip in a name, of a queue or of the file that its login is read from, corrects it while
the watcher waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from airflow.sdk.exceptions import AirflowException

from lakemirror.errors import TransientError
from lakemirror.model.notices import objects_of_gcs, objects_of_s3
from lakemirror.storage.amazon_errors import code_of, kinds, reading, wordless, words_of

if TYPE_CHECKING:
    from airflow.providers.google.cloud.hooks.pubsub import PubSubAsyncHook

SQS_BATCH: Final = 10  # Amazon's limit
SQS_WAIT_S: Final = 10  # Amazon would take 20, but whoever stops the triggerer waits as long
PUBSUB_BATCH: Final = 100
PUBSUB_WAIT_S: Final = 30.0
_SENT: Final = "SentTimestamp"


@dataclass(frozen=True, slots=True)
class Message:
    """What a message names, and by which handle it is done with."""

    handle: str
    uris: tuple[str, ...]
    sent_at: datetime


class Inbox(Protocol):
    """A queue with one kind of reader."""

    async def receive(self) -> list[Message]:
        """What is there, after waiting for a bounded time; each is delivered again unless `done` is told in time."""

    async def done(self, handles: Sequence[str]) -> None:
        """These need not be delivered again. One that is gone already is fine."""

    async def close(self) -> None:
        """Let go of connections; the next call makes new ones."""


class SqsInbox:
    """S3 → SQS. boto3 blocks, so it has a thread of its own."""

    def __init__(self, *, conn_id: str, queue_url: str, region: str | None) -> None:
        self._conn_id = conn_id
        self._queue_url = queue_url
        self._region = region
        self._client: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakemirror-sqs")

    async def receive(self) -> list[Message]:
        got = await self._call(
            "receive_message",
            MaxNumberOfMessages=SQS_BATCH,
            WaitTimeSeconds=SQS_WAIT_S,
            MessageSystemAttributeNames=[_SENT],
        )
        return [Message(handle, objects_of_s3(body), _sqs_time(sent_ms)) for handle, body, sent_ms in got]

    async def done(self, handles: Sequence[str]) -> None:
        for start in range(0, len(handles), SQS_BATCH):
            batch = handles[start : start + SQS_BATCH]
            entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(batch)]
            await self._call("delete_message_batch", Entries=entries)

    async def close(self) -> None:
        self._client = None
        self._thread.shutdown(wait=False)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakemirror-sqs")

    async def _call(self, name: str, **arguments: Any) -> list[tuple[str, str, str]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, name, arguments)

    def _ask(self, name: str, arguments: dict[str, Any]) -> list[tuple[str, str, str]]:
        from airflow.providers.amazon.aws.hooks.sqs import SqsHook

        hint = "check events.sqs, its connection and the queue's policy"
        try:
            with reading(AirflowException, ValueError):
                if self._client is None:
                    self._client = SqsHook(aws_conn_id=self._conn_id, region_name=self._region).get_conn()
            with reading():
                answer: dict[str, Any] = getattr(self._client, name)(QueueUrl=self._queue_url, **arguments)
                return [_sqs_parts(one) for one in answer.get("Messages", ())]
        except OSError as err:
            raise _trouble_of_system(self._queue_url, self._conn_id, err) from None
        except kinds() as err:  # by its words only if they are the queue's own
            told = f"{code_of(err)} ({words})" if (words := words_of(err, self._client)) else wordless(err)
            raise TransientError("read queue", self._queue_url, told, hint) from None
        except (AirflowException, ValueError) as err:
            raise _trouble(self._queue_url, err, hint) from None


class PubsubInbox:
    """GCS → Pub/Sub. `PUBSUB_EMULATOR_HOST` leads the client of Google's library to an emulator."""

    def __init__(self, *, conn_id: str, project_id: str, subscription: str) -> None:
        self._conn_id = conn_id
        self._names = {"project_id": project_id, "subscription": subscription}
        self._hook: PubSubAsyncHook | None = None

    async def receive(self) -> list[Message]:
        from google.api_core.exceptions import DeadlineExceeded

        try:
            got = await self._ask("pull", max_messages=PUBSUB_BATCH, return_immediately=False, timeout=PUBSUB_WAIT_S)
        except TransientError as err:
            if isinstance(err.__cause__, AirflowException) and isinstance(err.__cause__.__context__, DeadlineExceeded):
                return []  # nothing came in that time
            raise
        return [_pubsub_message(one) for one in got]

    async def done(self, handles: Sequence[str]) -> None:
        if handles:
            await self._ask("acknowledge", ack_ids=list(handles))

    async def close(self) -> None:
        self._hook = None

    async def _ask(self, name: str, **arguments: Any) -> Any:
        from airflow.providers.google.cloud.hooks.pubsub import PubSubAsyncHook
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            if self._hook is None:
                self._hook = PubSubAsyncHook(gcp_conn_id=self._conn_id, project_id=self._names["project_id"])
            return await getattr(self._hook, name)(**self._names, **arguments)
        except (GoogleAPIError, GoogleAuthError, AirflowException, ValueError) as err:
            hint = "check events.pubsub, its connection and what it may do"
            raise _trouble("/".join(self._names.values()), err, hint) from err
        except OSError as err:
            raise _trouble_of_system("/".join(self._names.values()), self._conn_id, err) from None


def _sqs_parts(message: dict[str, Any]) -> tuple[str, str, str]:
    """Handle, body, and when it was sent."""
    return str(message["ReceiptHandle"]), str(message.get("Body", "")), str(message.get("Attributes", {}).get(_SENT))


def _sqs_time(sent_ms: str) -> datetime:
    return datetime.fromtimestamp(int(sent_ms) / 1000 if sent_ms.isdecimal() else 0, tz=UTC)


def _pubsub_message(received: Any) -> Message:
    message = received.message
    return Message(received.ack_id, objects_of_gcs(dict(message.attributes)), message.publish_time)


def _trouble(queue: str, err: Exception, hint: str) -> TransientError:
    return TransientError("read queue", queue, f"{type(err).__name__}: {err}", hint)


def _trouble_of_system(queue: str, conn_id: str, err: OSError) -> TransientError:
    """Without the error's own text and without it as a cause: it quotes the path, where some put the key itself."""
    hint = f"check connection {conn_id}, and that the files which it names are there and may be read"
    return TransientError("read queue", queue, f"{type(err).__name__}: {err.strerror or 'no more is told'}", hint)

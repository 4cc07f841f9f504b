"""Watchers that read the mirror bucket's notifications: from Pub/Sub, where GCS sends them, and from SQS for S3.

A message is taken from its queue only after all that it led to is in Airflow's database; until then the queue keeps it
and delivers it again. What a message names is looked at in the bucket before anybody is woken: forged, doubled, late
and reordered messages start no run. Lost ones are made up for by the look that every watcher begins with, and by a slow
look at all tables after that. A table that cannot be told of now is looked at again after a rest, and its messages stay
in the queue; nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from lakemirror.airflow.board import Board
from lakemirror.airflow.looking import Looker, Told
from lakemirror.airflow.queues import Inbox, Message, PubsubInbox, SqsInbox
from lakemirror.airflow.watchers import TableWatchTrigger
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.app import App
    from lakemirror.usecases.watch import ReadyWatch

_log = logging.getLogger(__name__)
EMPTY_REST_S: Final = 1.0  # a queue that says at once that it is empty is not asked again before this
GIVE_BACK_S: Final = 120.0
LOOK_ANYWAY_S: Final = 600.0  # every table is looked at once in this time, whatever messages say
Hints = dict[str, str]


class InboxProducer(SharedStreamProducer):
    """One reader for all watchers of a queue in this triggerer."""

    def __init__(self, inbox: Inbox, board: Board, looker: Looker, rest_s: float) -> None:
        self._inbox = inbox
        self._board = board
        self._looker = looker
        self._rest_s = rest_s

    async def open_stream(self) -> AsyncIterator[tuple[Hints, tuple[str, ...]]]:
        """What the tables ask for, with the messages that named them; who joins, or was long not looked at, unnamed."""
        receiving: asyncio.Task[list[Message]] | None = None
        rest = asyncio.ensure_future(asyncio.sleep(LOOK_ANYWAY_S))
        untold: frozenset[str] = frozenset()
        again: asyncio.Future[None] | None = None
        try:
            while True:
                receiving = receiving or asyncio.create_task(self._receive())
                any_of: set[asyncio.Future[Any]] = {receiving, rest, self._board.bell()}
                await asyncio.wait(any_of if again is None else {*any_of, again}, return_when=asyncio.FIRST_COMPLETED)
                fresh = self._board.take_fresh()
                due = {*fresh}
                if again is not None and again.done():
                    due, again = due | (untold & {*self._board.tables}), None
                if rest.done():
                    due, rest = {*self._board.tables}, asyncio.ensure_future(asyncio.sleep(LOOK_ANYWAY_S))
                if due:
                    told = await self._looker.look(due, fresh=fresh)
                    untold = (untold - due) | told.untold
                    if told.hints:
                        yield told.hints, ()
                if untold and again is None:
                    again = asyncio.ensure_future(asyncio.sleep(self._looker.rest_s()))
                if receiving.done():
                    messages, receiving = receiving.result(), None
                    handled = await self._handle(messages) if messages else None
                    if handled is not None:
                        yield handled
        finally:
            for future in (rest, again, receiving):
                if future is not None:
                    future.cancel()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """What all watchers are done with is taken from the queue; what one of them failed at comes again."""
        await self._done([handle for item in batch if item.outcome.is_clean for handle in item.broker_payload])

    async def aclose(self) -> None:
        await self._inbox.close()
        await asyncio.to_thread(self._looker.close)

    async def _receive(self) -> list[Message]:
        try:
            got = await self._inbox.receive()
        except LakemirrorError as err:
            _log.warning("watch: %s", err)
            await self._inbox.close()
            await asyncio.sleep(max(self._rest_s, EMPTY_REST_S))
            return []
        if not got:
            await asyncio.sleep(EMPTY_REST_S)
        return got

    async def _handle(self, messages: Sequence[Message]) -> tuple[Hints, tuple[str, ...]] | None:
        """What these messages lead to; None if to nothing, and then they are done with or left for another reader."""
        from lakemirror.app import utc_now

        wanted: dict[str, list[str]] = {}
        for message in messages:
            found = await self._looker.named(message.uris)
            if found is None:  # nobody could tell now: the queue delivers them again
                await asyncio.sleep(self._looker.rest_s())
                return None
            tables, ignored = found
            if ignored:
                _log.info("watch: %d objects ignored that are no ready markers of configured tables", ignored)
            elsewhere = [table for table in tables if table not in self._board.tables]
            if elsewhere and utc_now() - message.sent_at < timedelta(seconds=GIVE_BACK_S):
                _log.info("watch: %s not watched here, left for another triggerer", ", ".join(elsewhere))
                continue
            wanted[message.handle] = [table for table in tables if table not in elsewhere]
        named = {table for tables in wanted.values() for table in tables}
        told = await self._looker.look(named, named=named) if named else Told({})
        handles = tuple(handle for handle, tables in wanted.items() if told.untold.isdisjoint(tables))
        if wanted and not handles:
            await asyncio.sleep(EMPTY_REST_S)  # they may be delivered again at once
        if told.hints:
            return told.hints, handles
        await self._done(handles)
        return None

    async def _done(self, handles: Sequence[str]) -> None:
        try:
            await self._inbox.done(handles)
        except LakemirrorError as err:
            _log.warning("watch: messages will come again: %s", err)


class InboxTrigger(TableWatchTrigger):
    """What both kinds have in common; use one of the classes below."""

    @staticmethod
    def watch_of(app: App) -> ReadyWatch:
        return app.watch_ready()

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> InboxProducer:
        looker = Looker(kwargs["config_path"], cls.watch_of, kwargs["poll_interval_s"])
        return InboxProducer(cls.inbox_of(kwargs), cls.board(kwargs), looker, kwargs["poll_interval_s"])

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Hints]:
        """For a watcher that is alone: a message is done with when the next one is asked for."""
        producer = cls.create_shared_stream_producer(kwargs)
        try:
            async for hints, handles in producer.open_stream():
                yield hints
                await producer._done(handles)
        finally:
            await producer.aclose()

    @classmethod
    @abstractmethod
    def inbox_of(cls, kwargs: dict[str, Any]) -> Inbox:
        """The queue that these arguments name."""


class SqsNoticeTrigger(InboxTrigger):
    """Reads S3's notifications of ready markers from an SQS queue."""

    path = "lakemirror.airflow.inboxes.SqsNoticeTrigger"

    def __init__(self, *, conn_id: str, queue_url: str, region: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.queue_url = queue_url
        self.region = region

    @classmethod
    def inbox_of(cls, kwargs: dict[str, Any]) -> SqsInbox:
        return SqsInbox(conn_id=kwargs["conn_id"], queue_url=kwargs["queue_url"], region=kwargs["region"])

    def _shared(self) -> dict[str, Any]:
        return {**super()._shared(), "conn_id": self.conn_id, "queue_url": self.queue_url, "region": self.region}


class PubsubNoticeTrigger(InboxTrigger):
    """Reads GCS's notifications of ready markers from a subscription of Pub/Sub."""

    path = "lakemirror.airflow.inboxes.PubsubNoticeTrigger"

    def __init__(self, *, conn_id: str, project_id: str, subscription: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.project_id = project_id
        self.subscription = subscription

    @classmethod
    def inbox_of(cls, kwargs: dict[str, Any]) -> PubsubInbox:
        names = ("conn_id", "project_id", "subscription")
        return PubsubInbox(**{name: kwargs[name] for name in names})

    def _shared(self) -> dict[str, Any]:
        names = {"conn_id": self.conn_id, "project_id": self.project_id, "subscription": self.subscription}
        return {**super()._shared(), **names}

"""The trials of the probe, each one question; `Dialect` is how S3 and GCS put it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol
from xml.etree import ElementTree

from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, GOOGLE, Abilities
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.keys import check_key, check_prefix
from lakemirror.storage.port import ConditionFailed, ObjectNotFound, ThrottledError
from lakemirror.storage.wire import Part, Stored, Wire
from lakemirror.storage.wires.gcs import GcsWire
from lakemirror.storage.wires.s3 import S3Wire

_RACERS: Final = 8
_ROUNDS: Final = 2
_FINISHERS: Final = 16
_FINISH_ROUNDS: Final = 8
_OLD, _NEW = b"old", b"new"


class Dialect(Protocol):
    """A wire that assumes every ability, and the requests that wires do not make."""

    wire: Wire
    has_tags: bool

    async def put(self, uri: str, data: bytes, e_tag: str | None = None) -> str | None:
        """Write whatever is there, or only in the place of this e_tag; the new e_tag."""
        ...

    async def delete(self, uri: str, e_tag: str) -> None: ...

    async def keeps_tags(self, uri: str) -> bool: ...

    async def close(self) -> None: ...


class Probe:
    """Asks one store everything, under one folder of its own."""

    def __init__(self, dialect: Dialect, folder: str, elsewhere: str | None) -> None:
        self._dialect = dialect
        self._wire = dialect.wire
        self._folder = folder
        self._elsewhere = elsewhere

    async def run(self) -> Abilities:
        await self._dialect.put(self._uri("plain"), _OLD)  # if this fails, nothing below would mean anything
        conditional_finish = await self._conditional_finish()
        return Abilities(
            conditional_create=await self._conditional_create(),
            conditional_replace=await self._conditional_replace(),
            conditional_copy=await self._conditional_copy(),
            conditional_delete=await self._conditional_delete(),
            conditional_finish=conditional_finish,
            atomic_finish=conditional_finish and await self._atomic_finish(),
            checks_crc32c=await self._checks_crc32c(),
            keeps_crc32c=await self._keeps_crc32c(),
            tags=self._dialect.has_tags and await self._keeps_tags(),
            copies_across_buckets=await self._copies_across_buckets(),
            spoiled="",
        )

    async def _conditional_create(self) -> bool:
        if not await self._meets_condition(self._create(self._uri("plain"), _NEW)):
            return False
        for number in range(_ROUNDS):
            uri = self._uri(f"race-{number}")
            bodies = [f"racer {racer}".encode() for racer in range(_RACERS)]
            if await _winners([self._create(uri, body) for body in bodies]) != 1:
                return False
        return True

    async def _conditional_replace(self) -> bool:
        uri = self._uri("replaced")
        first = await self._dialect.put(uri, _OLD)
        second = await self._dialect.put(uri, _NEW)
        if first is None or second is None or not await self._meets_condition(self._dialect.put(uri, b"late", first)):
            return False
        bodies = [f"racer {racer}".encode() for racer in range(_RACERS)]
        return await _winners([self._dialect.put(uri, body, second) for body in bodies]) == 1

    async def _conditional_copy(self) -> bool:
        source, target = self._uri("copied"), self._uri("taken")
        await self._dialect.put(source, _NEW)
        await self._dialect.put(target, _OLD)
        if not await self._meets_condition(self._wire.copy_within(source, target)):
            return False
        return await self._works(self._wire.copy_within(source, self._uri("copy")))

    async def _conditional_delete(self) -> bool:
        uri = self._uri("deleted")
        first = await self._dialect.put(uri, _OLD)
        second = await self._dialect.put(uri, _NEW)
        if first is None or second is None or not await self._meets_condition(self._dialect.delete(uri, first)):
            return False
        return await self._works(self._wire.head(uri)) and await self._works(self._dialect.delete(uri, second))

    async def _conditional_finish(self) -> bool:
        uri = self._uri("finished")
        await self._dialect.put(uri, _OLD)
        return await self._meets_condition(self._in_one_part(uri)) and await self._works(
            self._in_one_part(self._uri("parts"))
        )

    async def _atomic_finish(self) -> bool:
        """A server may look and write in two steps: then several win now and then, hence many rounds."""
        for number in range(_FINISH_ROUNDS):
            uri = self._uri(f"finish-{number}")
            begun = await asyncio.gather(*(self._begun(uri) for _ in range(_FINISHERS)))
            sum_of = crc32c_of(_NEW)
            won = await _winners([self._wire.finish(uri, upload, [part], sum_of) for upload, part in begun])
            await asyncio.gather(*(self._wire.abort(uri, upload) for upload, _ in begun))
            if won != 1:
                return False
        return True

    async def _begun(self, uri: str) -> tuple[str, Part]:
        upload = await self._wire.begin(uri)
        return upload, await self._wire.put_part(uri, upload, 1, _NEW, crc32c_of(_NEW))

    async def _checks_crc32c(self) -> bool:
        uri = self._uri("damaged")
        try:
            await self._wire.create(uri, _NEW, crc32c_of(_NEW) ^ 1)
        except ThrottledError:
            raise
        except LakemirrorError:  # refused, in whatever words; what counts is that nothing is there
            return not await self._works(self._wire.head(uri))
        return False

    async def _keeps_crc32c(self) -> bool:
        uri = self._uri("summed")
        if not await self._works(self._create(uri, _NEW)):
            return False
        return (await self._wire.stored(uri)).crc32c == crc32c_of(_NEW)

    async def _keeps_tags(self) -> bool:
        try:
            return await self._dialect.keeps_tags(self._uri("plain"))
        except PermanentError:
            return False

    async def _copies_across_buckets(self) -> bool:
        if self._elsewhere is None:
            return False
        return await self._works(self._wire.copy_within(self._elsewhere, self._uri("from elsewhere")))

    async def _in_one_part(self, uri: str) -> Stored:
        upload = await self._wire.begin(uri)
        try:
            part = await self._wire.put_part(uri, upload, 1, _NEW, crc32c_of(_NEW))
            return await self._wire.finish(uri, upload, [part], crc32c_of(_NEW))
        except LakemirrorError:
            await self._wire.abort(uri, upload)
            raise

    def _create(self, uri: str, data: bytes) -> Awaitable[Stored]:
        return self._wire.create(uri, data, crc32c_of(data))

    async def _meets_condition(self, attempt: Awaitable[object]) -> bool:
        """Whether this is refused because of its condition; other refusals mean that there are no conditions."""
        try:
            await attempt
        except ConditionFailed:
            return True
        except PermanentError:
            return False
        return False

    async def _works(self, attempt: Awaitable[object]) -> bool:
        try:
            await attempt
        except PermanentError:
            return False
        return True

    def _uri(self, name: str) -> str:
        return f"{self._folder}/{name}"


async def _winners(attempts: Sequence[Awaitable[object]]) -> int:
    """How many of these succeed at once; losers meet the condition, or a conflict."""
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    won = 0
    for outcome in outcomes:
        if not isinstance(outcome, BaseException):
            won += 1
        elif not isinstance(outcome, ConditionFailed | TransientError):
            raise outcome
    return won


class S3Dialect:
    """The probe's requests in S3."""

    has_tags = True

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._s3 = S3Wire(properties, AMAZON)
        self.wire: Wire = self._s3

    async def put(self, uri: str, data: bytes, e_tag: str | None = None) -> str | None:
        condition = {} if e_tag is None else {"if-match": e_tag}
        return (await self._s3.ask("probe", check_key(uri), "PUT", condition, body=data)).headers.get("ETag")

    async def delete(self, uri: str, e_tag: str) -> None:
        await self._s3.ask("probe", check_key(uri), "DELETE", {"if-match": e_tag})

    async def keeps_tags(self, uri: str) -> bool:
        body = b"<Tagging><TagSet><Tag><Key>probe</Key><Value>kept</Value></Tag></TagSet></Tagging>"
        await self._s3.ask("probe", check_key(uri), "PUT", {}, {"tagging": ""}, body)
        answer = await self._s3.ask("probe", check_key(uri), "GET", {}, {"tagging": ""})
        try:
            found = ElementTree.fromstring(answer.body).iterfind(".//{*}Tag")
        except ElementTree.ParseError:
            return False
        return [(tag.findtext("{*}Key"), tag.findtext("{*}Value")) for tag in found] == [("probe", "kept")]

    async def close(self) -> None:
        await self._s3.close()


class GcsDialect:
    """The probe's requests in GCS, which has no tags."""

    has_tags = False

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._gcs = GcsWire(properties, GOOGLE)
        self.wire: Wire = self._gcs

    async def put(self, uri: str, data: bytes, e_tag: str | None = None) -> str | None:
        condition = {} if e_tag is None else {"x-goog-if-generation-match": e_tag}
        answer = await self._gcs.ask("probe", check_key(uri), "PUT", condition, body=data)
        return answer.headers.get("x-goog-generation")

    async def delete(self, uri: str, e_tag: str) -> None:
        try:
            await self._gcs.ask("probe", check_key(uri), "DELETE", {"x-goog-if-generation-match": e_tag})
        except ObjectNotFound as err:
            raise ConditionFailed("probe", uri, "it is gone", "read it, and decide") from err

    async def keeps_tags(self, uri: str) -> bool:
        return False

    async def close(self) -> None:
        await self._gcs.close()


def dialect_of(properties: Mapping[str, str], location: str) -> Dialect:
    kind = check_prefix(location, "probe").kind
    return S3Dialect(properties) if kind == "s3" else GcsDialect(properties)

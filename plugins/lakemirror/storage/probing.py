"""The trials of the probe, each one question; `Dialect` is how S3 and GCS put it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar
from xml.etree import ElementTree

from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, GOOGLE, Abilities
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.keys import check_key, check_prefix
from lakemirror.storage.md5_tags import Md5Tag, fits
from lakemirror.storage.port import ConditionFailed, ConflictError, DamagedError, ObjectNotFound
from lakemirror.storage.wire import Part, Stored, Wire
from lakemirror.storage.wires.gcs import GcsWire
from lakemirror.storage.wires.s3 import S3Wire

T = TypeVar("T")
_RACERS: Final = 8
_ROUNDS: Final = 2
_REPEATS: Final = 3  # of a round that tells nothing
_FINISHERS: Final = 16
_FINISH_ROUNDS: Final = 8
_OLD, _NEW = b"old", b"new"


class Dialect(Protocol):
    """A wire that assumes every ability, and the requests that wires do not make."""

    wire: Wire
    has_md5: bool
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
        """All questions at once, each about keys of its own: servers make writers of one key wait for seconds."""
        await self._dialect.put(self._uri("plain"), _OLD)  # if this fails, nothing below would mean anything
        conditional_finish = asyncio.create_task(self._conditional_finish())
        asked: dict[str, Awaitable[bool]] = {
            "conditional_create": self._conditional_create(),
            "conditional_replace": self._conditional_replace(),
            "conditional_copy": self._conditional_copy(),
            "conditional_delete": self._conditional_delete(),
            "conditional_finish": conditional_finish,
            "atomic_finish": self._atomic_finish(conditional_finish),
            "checks_crc32c": self._checks_crc32c(),
            "checks_part_crc32c": self._checks_part_crc32c(),
            "checks_md5": self._checks_md5(),
            "tags_parts_md5": self._tags_parts_md5(),
            "keeps_crc32c": self._keeps_crc32c(),
            "tags": self._keeps_tags(),
            "copies_across_buckets": self._copies_across_buckets(),
        }
        found = dict(zip(asked, await _all_of([*asked.values()]), strict=True))
        return Abilities(**found, spoiled="")

    async def _conditional_create(self) -> bool:
        if not await self._meets_condition(self._create(self._uri("plain"), _NEW)):
            return False
        bodies = [f"racer {racer}".encode() for racer in range(_RACERS)]

        async def enter(uri: str) -> list[Awaitable[object]]:
            return [self._create(uri, body) for body in bodies]

        return all(await _all_of([self._has_one_winner(f"race-{number}", enter) for number in range(_ROUNDS)]))

    async def _conditional_replace(self) -> bool:
        uri = self._uri("replaced")
        first = await self._dialect.put(uri, _OLD)
        second = await self._dialect.put(uri, _NEW)
        if first is None or second is None or not await self._meets_condition(self._dialect.put(uri, b"late", first)):
            return False

        async def enter(uri: str) -> list[Awaitable[object]]:
            there = await self._dialect.put(uri, _OLD)
            return [self._dialect.put(uri, f"racer {racer}".encode(), there) for racer in range(_RACERS)]

        return await self._has_one_winner("replacing", enter)

    async def _conditional_copy(self) -> bool:
        source, target = self._uri("copied"), self._uri("taken")
        await self._dialect.put(source, _NEW)
        await self._dialect.put(target, _OLD)
        if not await self._meets_condition(self._wire.copy_within(source, target)):
            return False
        if not await self._works(self._wire.copy_within(source, self._uri("copy"))):
            return False

        async def enter(uri: str) -> list[Awaitable[object]]:
            return [self._wire.copy_within(source, uri) for _ in range(_RACERS)]

        return all(await _all_of([self._has_one_winner(f"copying-{number}", enter) for number in range(_ROUNDS)]))

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

    async def _atomic_finish(self, conditional_finish: Awaitable[bool]) -> bool:
        """A server may look and write in two steps: then several win now and then, hence many rounds."""
        if not await conditional_finish:
            return False
        for number in range(_FINISH_ROUNDS):
            if not await self._has_one_finisher(f"finish-{number}"):
                return False
        return True

    async def _has_one_finisher(self, name: str) -> bool:
        begun: list[tuple[str, str]] = []

        async def enter(uri: str) -> list[Awaitable[object]]:
            entered = await _all_of([self._begun(uri) for _ in range(_FINISHERS)])
            begun.extend((uri, upload) for upload, _ in entered)
            return [self._wire.finish(uri, upload, [part], crc32c_of(_NEW)) for upload, part in entered]

        try:
            return await self._has_one_winner(name, enter)
        finally:
            await self._abort_all(begun)

    async def _abort_all(self, begun: Sequence[tuple[str, str]]) -> None:
        """One by one: servers lock a key, and let those who wait for it look each second. The first error is told."""
        errors: list[LakemirrorError] = []
        for uri, upload in begun:
            try:
                await self._wire.abort(uri, upload)
            except LakemirrorError as err:
                errors.append(err)
        if errors:
            raise errors[0]

    async def _has_one_winner(self, name: str, enter: Callable[[str], Awaitable[Sequence[Awaitable[object]]]]) -> bool:
        """Whether one of many at once wins; losers meet the condition, or a conflict.

        Several winners are a finding. A round in which an answer was lost, or that nobody won, tells nothing: it is
        run again at another key, and is an error if that goes on.
        """
        lost: TransientError | None = None
        for number in range(_REPEATS):
            uri = self._uri(f"{name}-{number}")
            outcomes = await asyncio.gather(*await enter(uri), return_exceptions=True)
            lost, won = None, 0
            for outcome in outcomes:
                if not isinstance(outcome, BaseException):
                    won += 1
                elif isinstance(outcome, TransientError) and not isinstance(outcome, ConflictError):
                    lost = outcome
                elif not isinstance(outcome, ConditionFailed | ConflictError):
                    raise outcome
            if won > 1:
                return False
            if won == 1 and lost is None:
                return True
        raise lost or TransientError("probe", self._uri(name), f"nobody won a race, {_REPEATS} times", "run again")

    async def _begun(self, uri: str) -> tuple[str, Part]:
        upload = await self._wire.begin(uri)
        return upload, await self._wire.put_part(uri, upload, 1, _NEW, crc32c_of(_NEW))

    async def _checks_crc32c(self) -> bool:
        uri = self._uri("damaged")
        if not await self._refuses(self._wire.create(uri, _NEW, crc32c_of(_NEW) ^ 1)):
            return False
        return not await self._works(self._wire.head(uri))  # in whatever words; what counts is that nothing is there

    async def _checks_part_crc32c(self) -> bool:
        """A part with its own CRC32C is taken, and with another one refused, in whatever words."""
        uri = self._uri("damaged part")
        upload = await self._begin(uri)
        if upload is None:
            return False
        try:
            return await self._works(self._put_part(uri, upload, 0)) and await self._refuses(
                self._put_part(uri, upload, 1)
            )
        finally:
            await self._wire.abort(uri, upload)

    async def _begin(self, uri: str) -> str | None:
        """None: the store takes no uploads in parts."""
        try:
            return await self._wire.begin(uri)
        except PermanentError:
            return None

    def _put_part(self, uri: str, upload: str, turned: int) -> Awaitable[Part]:
        return self._wire.put_part(uri, upload, 1, _NEW, crc32c_of(_NEW) ^ turned)

    async def _checks_md5(self) -> bool:
        """The right one is taken together with a CRC32C, and another one is refused."""
        if not self._dialect.has_md5:
            return False
        summed, other = (hashlib.md5(data, usedforsecurity=False).digest() for data in (_NEW, _OLD))
        if not await self._works(self._wire.create(self._uri("hashed"), _NEW, crc32c_of(_NEW), md5=summed)):
            return False
        uri = self._uri("misread")
        try:
            await self._wire.create(uri, _NEW, crc32c_of(_NEW), md5=other)
        except DamagedError:
            return not await self._works(self._wire.head(uri))
        except PermanentError:
            return False  # refused in other words: nobody could tell why
        return False

    async def _tags_parts_md5(self) -> bool:
        if not self._dialect.has_md5:
            return False
        uri = self._uri("tagged part")
        upload = await self._begin(uri)
        if upload is None:
            return False
        try:
            tag = Md5Tag.of((await self._put_part(uri, upload, 0)).tag)
        except PermanentError:
            return False
        finally:
            await self._wire.abort(uri, upload)
        return tag is not None and tag.parts == 0 and fits(tag, _NEW)

    async def _keeps_crc32c(self) -> bool:
        uri = self._uri("summed")
        if not await self._works(self._create(uri, _NEW)):
            return False
        return (await self._wire.stored(uri)).crc32c == crc32c_of(_NEW)

    async def _keeps_tags(self) -> bool:
        if not self._dialect.has_tags:
            return False
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

    async def _refuses(self, attempt: Awaitable[object]) -> bool:
        try:
            await attempt
        except (DamagedError, PermanentError):
            return True
        return False

    async def _works(self, attempt: Awaitable[object]) -> bool:
        try:
            await attempt
        except PermanentError:
            return False
        return True

    def _uri(self, name: str) -> str:
        return f"{self._folder}/{name}"


async def _all_of(work: Sequence[Awaitable[T]]) -> list[T]:
    """All results, or the first error once all have ended: nothing goes on behind our back."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    found: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        found.append(outcome)
    return found


class S3Dialect:
    """The probe's requests in S3."""

    has_md5 = has_tags = True

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._s3 = S3Wire(properties, AMAZON)
        self.wire: Wire = self._s3

    async def put(self, uri: str, data: bytes, e_tag: str | None = None) -> str | None:
        condition = {} if e_tag is None else {"if-match": e_tag}
        return (await self._s3.ask("probe", check_key(uri), "PUT", condition, body=data)).headers.get("etag")

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
    """The probe's requests in GCS, which has no tags, and whose objects are never hashed by MD5 here."""

    has_md5 = has_tags = False

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

"""The copy engine between two real S3 servers: whole files, parts and ranges, conditions, sums, nothing left behind."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from dev.services import S3Store, Services
from lakemirror.copying.crew import run_loop
from lakemirror.copying.model import CopySettings, WireTo
from lakemirror.copying.pace import Rates
from lakemirror.copying.ports import CopyPorts
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate.copy import ranges_folder
from lakemirror.replicate.ledger import ledger_folder, read_ledger
from lakemirror.replicate.leftovers import Leftovers
from lakemirror.replicate.plan import ITEM, PackSegments, Plan, Segment
from lakemirror.replicate.split import PARTS
from lakemirror.replicate.stage import LocalEngine, StageContext, sum_requests
from lakemirror.replicate.transfer import Copied, copy_objects
from lakemirror.storage.abilities import AMAZON
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wire import Upload, open_wire
from tests.wires import Act, FaultyWire, WireFault

pytestmark = pytest.mark.integration

MIB = 1024**2
SIZES = {"a=1/ü %+,.parquet": 10, "empty": 0, "parts": 11 * MIB, "ranges": 26 * MIB + 1}


class Pair:
    """Files of known content in the source's bucket, planned to go to the mirror's."""

    def __init__(self, services: Services) -> None:
        self.source, self.mirror = services.source_store, services.mirror_store
        self.source_store, self.store = ObstoreStore(self.source.properties), ObstoreStore(self.mirror.properties)
        chance = random.Random(5)
        self.bodies = {name: chance.randbytes(size) for name, size in SIZES.items()}
        for name, body in self.bodies.items():
            self.source_store.put(self.uri(self.source, name), body)
        items = [
            {
                "source": self.uri(self.source, name),
                "target": self.uri(self.mirror, name),
                "size": size,
                "kind": "data",
            }
            for name, size in SIZES.items()
        ]
        packed = PackSegments(self.context()).write("copy", pa.Table.from_pylist(items, ITEM))
        rows = [row for batch in packed for row in batch.to_pylist()]
        self.plan = Plan(tuple(Segment(**row) for row in rows), 0, sum_requests([]))

    @staticmethod
    def uri(store: S3Store, name: str) -> str:
        return f"{store.uri}/table/data/{name}"

    def context(self, **changes: Any) -> StageContext:
        ports = CopyPorts(
            WireTo(tuple(self.source.properties.items())),
            WireTo(tuple(self.mirror.properties.items())),
            CopySettings(part_bytes=5 * MIB, memory_bytes=16 * MIB, concurrency=8),
        )
        return StageContext(
            source=self.source_store,
            mirror=self.store,
            paths=PrefixMap.of({f"{self.source.uri}/table": f"{self.mirror.uri}/table"}),
            plan_uri=f"{self.mirror.uri}/table/_plan/p",
            ledger_uri=f"{self.mirror.uri}/table/_ledger/p",
            copying=replace(ports, **changes),
            bin_files=2,
            bin_bytes=100 * MIB,
            split_bytes=12 * MIB,
            ledger_flush_files=2,
        )

    def copied(self, leftovers: Leftovers | None = None, **changes: Any) -> Copied:
        started = f"{self.mirror.uri}/table/_ledger/started"
        return copy_objects(self.plan, self.context(**changes), LocalEngine(), started, leftovers=leftovers)

    def sent_in_parts(self, name: str, part_bytes: int) -> None:
        """Put the source file there anew, in parts of this size, as a client that sends no CRC32C."""
        uri, body = self.uri(self.source, name), self.bodies[name]
        self.source_store.delete([uri])

        async def send() -> None:
            wire = open_wire(self.source.properties, abilities=replace(AMAZON, checks_part_crc32c=False))
            try:
                upload = await wire.begin(uri)
                parts = []
                for number, start in enumerate(range(0, len(body), part_bytes), 1):
                    data = body[start : start + part_bytes]
                    parts.append(await wire.put_part(uri, upload, number, data, google_crc32c.value(data)))
                await wire.finish(uri, upload, parts, google_crc32c.value(body))
            finally:
                await wire.close()

        run_loop(send())

    def md5s(self) -> list[int]:
        """How many MD5s of the source's parts were written down with each part of the file that several tasks share."""
        (segment,) = self.plan.of("split")
        folder = f"{ranges_folder(self.context().ledger_uri, segment.uri)}/parts"
        rows = sorted(read_ledger(self.store, folder, PARTS), key=lambda row: int(row["number"]))
        return [len(row["md5s"]) // 16 for row in rows]

    def there(self) -> dict[str, bytes]:
        folder = f"{self.mirror.uri}/table/data"
        return {info.uri.removeprefix(f"{folder}/"): self.store.get(info.uri).data for info in self.store.list(folder)}

    def sums(self) -> dict[str, int]:
        return {
            row["target"].removeprefix(f"{self.mirror.uri}/table/data/"): row["crc32c"]
            for segment in self.plan.segments
            for row in read_ledger(self.store, ledger_folder(self.context().ledger_uri, segment.uri))
        }

    def uploads(self) -> list[Upload]:
        async def found() -> list[Upload]:
            wire = open_wire(self.mirror.properties)
            try:
                return [upload async for upload in wire.uploads(f"{self.mirror.uri}/table")]
            finally:
                await wire.close()

        return run_loop(found())

    def breaking(self, side: str, *faults: WireFault) -> dict[str, Any]:
        properties = (self.source if side == "source" else self.mirror).properties
        return {side: lambda: FaultyWire(open_wire(properties), faults)}


def _no_pause() -> float:
    """The least that chance may give: all tries are made, and nothing waits between them."""
    return 0.0


@pytest.fixture
def pair(clean_services: Services) -> Pair:
    return Pair(clean_services)


def test_everything_arrives_once_with_its_sum(pair: Pair) -> None:
    first = pair.copied()
    assert (first.files, first.bytes, first.skipped) == (4, sum(SIZES.values()), 0)
    assert pair.there() == pair.bodies
    assert pair.sums() == {name: int(google_crc32c.value(body)) for name, body in pair.bodies.items()}
    assert pair.uploads() == []
    assert first.wire_requests["source"]["get"] == 1 + 3 + 6
    again = pair.copied()
    assert (again.files, again.skipped, sum(again.wire_requests["mirror"].values())) == (0, 4, 0)


def test_a_run_that_was_cut_goes_on(pair: Pair) -> None:
    with pytest.raises(TransientError):
        pair.copied(**pair.breaking("source", WireFault("read", Act.FAIL, 5, 10**6)), random=_no_pause)
    assert pair.there().items() <= pair.bodies.items()
    pair.copied()
    assert (pair.there(), pair.uploads()) == (pair.bodies, [])


def test_lost_answers_and_turned_bits_are_passed(pair: Pair) -> None:
    faults = [
        *(WireFault(verb, Act.FAIL_AFTER) for verb in ("create", "begin", "put_part", "finish")),
        *(WireFault(verb, Act.FLIP, 2, 2) for verb in ("create", "put_part")),
    ]
    pair.copied(Leftovers(f"{pair.mirror.uri}/table", None, lambda: None), **pair.breaking("mirror", *faults))
    assert pair.there() == pair.bodies
    left = {one.uri for one in pair.uploads()}  # what nobody heard of, of a key that has an object now
    assert left <= {f"{pair.mirror.uri}/table/data/{name}" for name in pair.bodies}


@pytest.mark.parametrize(
    ("part_bytes", "md5s", "memory_bytes"),
    [
        (5 * MIB, [1, 1, 1, 1, 1, 1], 16 * MIB),
        (6 * MIB, [1, 1, 1, 1, 1], 36 * MIB),
        (6 * MIB, [], 16 * MIB),
        (20 * MIB, [], 16 * MIB),
    ],
    ids=["as ours", "ours are as its", "ours would be too large", "too large"],
)
@pytest.mark.parametrize("flipped", [0, 2])
@pytest.mark.parametrize("by_mirror", [False, True], ids=["hashed here", "hashed by the mirror if it can be"])
def test_a_bit_that_turns_in_a_large_file_is_found_by_its_etag(
    pair: Pair, part_bytes: int, md5s: list[int], memory_bytes: int, flipped: int, by_mirror: bool
) -> None:
    """Nothing but TCP guards plain HTTP. Where our parts cannot be made of the source's, one task reads the file."""
    pair.sent_in_parts("ranges", part_bytes)
    nth = Counter({"flipped": -flipped})

    class Turning(FaultyWire):
        async def read(self, uri: str, start: int, length: int, **options: Any) -> bytes:
            data = await super().read(uri, start, length, **options)
            nth["flipped"] += uri.endswith("/ranges")
            return bytes([data[0] ^ 1]) + data[1:] if uri.endswith("/ranges") and nth["flipped"] == 0 else data

    settings = replace(pair.context().copying.settings, memory_bytes=memory_bytes)
    can = replace(AMAZON, tags_parts_md5=by_mirror)
    wires = {
        "source": lambda: Turning(open_wire(pair.source.properties)),
        "mirror": lambda: open_wire(pair.mirror.properties, abilities=can),
    }
    made = pair.copied(**wires, settings=settings)
    assert nth["flipped"] >= 0
    assert (made.files, made.bytes, pair.there()) == (4, sum(SIZES.values()), pair.bodies)
    assert (pair.md5s(), pair.uploads()) == (md5s, [])


@pytest.mark.parametrize("name", ["a=1/ü %+,.parquet", "parts", "ranges"])
def test_a_foreign_object_is_a_stop_and_its_removal_lets_the_copy_go_on(pair: Pair, name: str) -> None:
    """Parts of another large file wait for that; of the file that failed nothing is left."""
    foreign = pair.uri(pair.mirror, name)
    pair.store.put(foreign, b"x" * SIZES[name])
    with pytest.raises(PermanentError, match="another object lies under this key"):
        pair.copied()
    assert pair.there()[name] == b"x" * SIZES[name]
    assert {one.uri for one in pair.uploads()} <= {pair.uri(pair.mirror, "ranges")} - {foreign}
    pair.store.delete([foreign])
    pair.copied()
    assert (pair.there(), pair.uploads()) == (pair.bodies, [])


@pytest.mark.parametrize("name", ["empty", "parts", "ranges"])
def test_a_source_file_that_is_gone_says_so(pair: Pair, name: str) -> None:
    pair.source_store.delete([pair.uri(pair.source, name)])
    with pytest.raises(SourceVanishedError) as caught:
        pair.copied()
    assert caught.value.subject == pair.uri(pair.source, name)
    assert pair.uploads() == []


def test_a_rate_is_kept(pair: Pair) -> None:
    import time

    start = time.monotonic()
    pair.copied(rates=Rates(bytes_per_s=20e6))
    assert time.monotonic() - start >= sum(SIZES.values()) / 20e6

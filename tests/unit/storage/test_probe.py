"""Abilities: probed over a double that ignores conditions, recorded, refused, and worked around by name."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, LOCAL, Abilities, abilities_from
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CHUNK_BYTES, ConditionFailed, IfMatch
from lakemirror.storage.probe import LOOK_THEN_WRITE, ProbedAbilities, abilities_of
from lakemirror.storage.wire import open_wire
from tests.contract.s3_double import S3Double, s3_double

LOCATION = "s3://bucket/lake"
THEN = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        yield running


def asked(double: S3Double, weaker_create: str | None = None) -> Abilities:
    return abilities_of(double.properties, LOCATION, now=lambda: THEN, weaker_create=weaker_create)


def test_a_store_that_ignores_conditions_is_refused_by_name(double: S3Double) -> None:
    double.ignores_conditions = True
    with pytest.raises(PermanentError, match="two writers could both win") as raised:
        asked(double)
    assert (raised.value.subject, raised.value.hint.endswith("mirror.weaker_create: look_then_write")) == (
        LOCATION,
        True,
    )


def test_the_operator_may_accept_the_weaker_mode(double: S3Double) -> None:
    double.ignores_conditions = True
    found = asked(double, LOOK_THEN_WRITE)
    assert not found.conditional_create
    assert not found.conditional_replace
    assert not found.conditional_finish
    store = ObstoreStore(double.properties, abilities=lambda: found)
    e_tag = store.put("s3://bucket/x", b"first").e_tag
    assert e_tag is not None
    for body in (b"second", iter([b"x" * CHUNK_BYTES, b"y"])):
        with pytest.raises(ConditionFailed):
            store.put("s3://bucket/x", body)
    with pytest.raises(ConditionFailed):
        store.put("s3://bucket/x", b"second", IfMatch('"other"'))
    with pytest.raises(ConditionFailed):
        store.copy("s3://bucket/x", "s3://bucket/x")
    assert double.objects["x"] == b"first"
    store.put("s3://bucket/x", b"second", IfMatch(e_tag))
    store.put("s3://bucket/y", iter([b"x" * CHUNK_BYTES, b"y"]))
    assert (double.objects["x"], len(double.objects["y"])) == (b"second", CHUNK_BYTES + 1)


def test_what_was_found_is_recorded_and_the_next_run_reads_it(double: S3Double) -> None:
    found = asked(double)
    assert found.conditional_create
    records = [key for key in double.objects if key.startswith("lake/_probe/")]
    assert len(records) == 1, "everything else is removed again"
    document = json.loads(double.objects[records[0]])
    assert document == {
        "format": 4,
        "endpoint": double.endpoint,
        "probed_at": "2026-01-02T00:00:00+00:00",
        "abilities": found.as_json(),
    }
    double.requests.clear()
    assert asked(double) == found
    assert [request.method for request in double.requests] == ["GET"]


def test_questions_do_not_wait_for_one_another(double: S3Double) -> None:
    asked(double)
    targets = [request.target for request in double.requests]
    first_of_the_last = next(number for number, target in enumerate(targets) if target.endswith("/summed"))
    last_of_the_longest = max(number for number, target in enumerate(targets) if "/finish-7" in target)
    assert first_of_the_last < last_of_the_longest


def test_a_recorded_refusal_stays_one(double: S3Double) -> None:
    double.ignores_conditions = True
    asked(double, LOOK_THEN_WRITE)
    with pytest.raises(PermanentError, match="two writers"):
        asked(double)


BEFORE_PARTS = {name: value for name, value in AMAZON.as_json().items() if name != "checks_part_crc32c"}


@pytest.mark.parametrize(
    "text",
    [
        b'{"format": 4}',
        json.dumps({"format": 3, "abilities": BEFORE_PARTS}).encode(),
        json.dumps({"format": 4, "abilities": BEFORE_PARTS}).encode(),
        b"[]",
        b'{"format": 1, "abilities": {"tags": true}}',
    ],
)
def test_a_record_of_another_version_is_probed_again(double: S3Double, text: bytes) -> None:
    found = asked(double)
    key = next(key for key in double.objects if key.startswith("lake/_probe/"))
    double.objects[key] = text
    assert asked(double) == found
    assert json.loads(double.objects[key])["abilities"] == found.as_json()


def test_a_damaged_record_is_an_error(double: S3Double) -> None:
    asked(double)
    key = next(key for key in double.objects if key.startswith("lake/_probe/"))
    double.objects[key] = b"{"
    with pytest.raises(PermanentError, match="damaged"):
        asked(double)


def test_a_store_that_cannot_be_reached_is_no_finding() -> None:
    properties = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "a", "s3.secret-access-key": "b"}
    with pytest.raises(TransientError):
        abilities_of(properties, LOCATION, now=lambda: THEN)


def test_a_store_that_may_not_be_written_is_no_finding(double: S3Double) -> None:
    class Forbidding(dict[str, int]):
        def __contains__(self, key: object) -> bool:
            return str(key).endswith("/plain")

        def get(self, key: str, default: int = 200) -> int:  # type: ignore[override]
            return 403 if key in self else default

    double.forced = Forbidding()
    with pytest.raises(PermanentError, match="access denied"):
        asked(double)


@pytest.mark.parametrize("location", ["file:///lake", "memory://bucket/lake"])
def test_files_and_memory_are_known(location: str) -> None:
    assert abilities_of({}, location, now=lambda: THEN) == LOCAL


def test_abilities_are_asked_for_by_the_first_write_alone(double: S3Double) -> None:
    double.ignores_conditions = True
    store = ObstoreStore(double.properties, abilities=ProbedAbilities(double.properties, LOCATION))
    double.objects["x"] = b"there"
    assert store.get("s3://bucket/x").data == b"there"
    assert len(double.requests) == 1
    with pytest.raises(PermanentError, match="two writers"):
        store.put("s3://bucket/y", b"")
    assert "y" not in double.objects


def test_what_was_found_travels_to_other_processes_without_the_catalogs_secrets(double: S3Double) -> None:
    probed = ProbedAbilities({**double.properties, "token": "of the catalog"}, LOCATION)
    found = probed()
    pickled = pickle.dumps(probed)
    double.requests.clear()
    assert pickle.loads(pickled)() == found
    assert double.requests == []
    assert b"of the catalog" not in pickled
    assert repr(probed) == "ProbedAbilities('s3://bucket/lake')"


def test_records_of_other_abilities_are_not_understood() -> None:
    assert abilities_from(AMAZON.as_json()) == AMAZON
    assert abilities_from({**AMAZON.as_json(), "more": True}) is None
    assert abilities_from({**AMAZON.as_json(), "tags": "yes"}) is None


def test_keys_with_spoiled_characters_are_refused_by_name(double: S3Double) -> None:
    can = replace(AMAZON, spoiled="\\|")
    assert can.missing() == ("checks_md5", "tags_parts_md5")
    store = ObstoreStore(double.properties, abilities=lambda: can)
    for verb in (lambda: store.put("s3://bucket/a|b", b""), lambda: store.copy("s3://bucket/a", "s3://bucket/a|b")):
        with pytest.raises(PermanentError, match=r"does not keep '\|'"):
            verb()
    assert double.requests == []


def test_copies_across_buckets_are_tried_from_an_object_of_the_other_side(double: S3Double) -> None:
    double.objects["theirs"] = b"there"
    assert not asked(double).copies_across_buckets, "nobody named one: nothing is known"
    double.objects = {"theirs": b"there"}
    probed = ProbedAbilities(double.properties, LOCATION, elsewhere=lambda: "s3://other/theirs")
    assert probed().copies_across_buckets
    double.requests.clear()
    missing = ProbedAbilities(double.properties, LOCATION, elsewhere=lambda: pytest.fail("it was recorded"))
    assert missing().copies_across_buckets
    double.objects = {}
    refused = ProbedAbilities(double.properties, LOCATION, elsewhere=lambda: "s3://other/none")
    assert not refused().copies_across_buckets


def test_a_store_that_does_not_copy_across_buckets_still_copies_within_one(double: S3Double) -> None:
    double.objects["x"] = b"there"
    can = replace(AMAZON, copies_across_buckets=False)

    async def work() -> None:
        wire = open_wire(double.properties, abilities=can)
        try:
            assert not wire.capabilities("s3://bucket/y").copies_within
            assert (await wire.copy_within("s3://bucket/x", "s3://bucket/y")).size_bytes == 5
            with pytest.raises(PermanentError, match="stream it across"):
                await wire.copy_within("s3://other/x", "s3://bucket/z")
        finally:
            await wire.close()

    asyncio.run(work())

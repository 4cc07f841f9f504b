"""What a bucket's notifications name. Whoever can write to the queue can say anything: nothing but names is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakemirror.model.notices import MAX_OBJECTS, Named, objects_of_gcs, objects_of_s3, tables_named
from lakemirror.model.table import TableRef

MARKER = "lake/shop/orders/_ready/v7.ready.json"
ORDERS = TableRef.parse("shop.orders")


def record(key: str, bucket: str = "mirror") -> dict[str, Any]:
    return {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}}}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"Records": [record(MARKER)]}, [MARKER]),
        ({"Records": [record("lake%2Fshop%2Forders%2F_ready%2Fv7.ready.json"), record("a+b%2Bc")]}, [MARKER, "a b+c"]),
        ({"Type": "Notification", "Message": json.dumps({"Records": [record(MARKER)]})}, [MARKER]),
        ({"source": "aws.s3", "detail": {"bucket": {"name": "mirror"}, "object": {"key": "a%2Bb"}}}, ["a%2Bb"]),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "mirror"}, []),
    ],
)
def test_objects_of_s3(body: dict[str, Any], found: list[str]) -> None:
    assert objects_of_s3(json.dumps(body)) == tuple(f"s3://mirror/{key}" for key in found)


@pytest.mark.parametrize(
    "body",
    [
        *("", "no json", "[]", "null", '"text"', '{"Records": 7}', '{"Records": [7, null, []]}', "[" * 10_000),
        *('{"Message": "{"}', '{"detail": {"object": 1}}', '{"Records": [{"s3": {"bucket": {"name": "b"}}}]}'),
        json.dumps({"Records": [record("", "b"), record("k", ""), record("k", "a/b"), record("k" * 9999)]}),
        json.dumps({"Records": [record(MARKER)], "more": "x" * (1 << 21)}),
        '{"Records": [{"s3": {"bucket": {"name": 1}, "object": {"key": {"a": 1}}}}]}',
    ],
)
def test_what_is_no_notification_names_nothing(body: str) -> None:
    assert objects_of_s3(body) == ()


def test_a_message_names_a_bounded_number_of_objects() -> None:
    assert len(objects_of_s3(json.dumps({"Records": [record("k")] * (MAX_OBJECTS + 5)}))) == MAX_OBJECTS


def test_objects_of_gcs() -> None:
    told = {"bucketId": "mirror", "objectId": MARKER, "eventType": "OBJECT_FINALIZE"}
    assert objects_of_gcs(told) == (f"gs://mirror/{MARKER}",)
    for wrong in ({}, {"bucketId": "mirror"}, {"objectId": MARKER}, {"bucketId": "a/b", "objectId": "c"}):
        assert objects_of_gcs(wrong) == ()


def test_ready_markers_name_their_tables_once() -> None:
    uris = [f"s3://mirror/{MARKER}", "s3a://mirror/lake/shop/orders/_ready/v8.restored.json"]
    assert tables_named(uris, "s3://mirror/lake/") == Named((ORDERS,), 0)
    nested = tables_named(["s3://mirror/lake/crm.eu/people/_ready/v1.ready.json"], "s3://mirror/lake")
    assert nested == Named((TableRef(("crm", "eu"), "people"),), 0)


@pytest.mark.parametrize(
    "key",
    [
        "lake/shop/orders/_ready/v0.ready.json",
        "lake/shop/orders/_ready/v7.demoted.json",
        "lake/shop/orders/_ready/v7.ready.json.bak",
        "lake/shop/orders/_inprogress/v7.marker.json",
        "lake/shop/orders/data/_ready/v7.ready.json",
        "lake/shop/orders/_ready/v" + "9" * 30 + ".ready.json",
        "lake/_ready/v7.ready.json",
        "lake/shop/../_ready/v7.ready.json",
        "lake/shop/_roots/_ready/v7.ready.json",
        "lake/shop/or.ders/_ready/v7.ready.json",
        "lakes/shop/orders/_ready/v7.ready.json",
        "other/lake/shop/orders/_ready/v7.ready.json",
        "lake/shop/orders/_ready/v7.ready.json\n",
    ],
)
def test_other_objects_are_ignored_and_counted(key: str) -> None:
    assert tables_named(
        [f"s3://mirror/{key}", f"s3://other/{MARKER}", f"gs://mirror/{MARKER}"], "s3://mirror/lake"
    ) == (Named((), 3))

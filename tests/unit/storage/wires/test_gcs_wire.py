"""The GCS wire where the emulator cannot go: copies in several calls, damage, tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import google.auth
import pytest
from google.auth import exceptions

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.checksum import as_base64, crc32c_of
from lakemirror.storage.port import ConditionFailed
from lakemirror.storage.wire import Part, Stored, Upload, Wire, open_wire
from lakemirror.storage.wires.gcs_token import Tokens
from tests.unit.storage.wires.gcs_double import Asked, GcsDouble, gcs_double

T = TypeVar("T")
DATA = b"0123456789"
SUM = crc32c_of(DATA)
THEN = "Fri, 02 Jan 2026 03:04:05 GMT"


def run(double: GcsDouble, work: Callable[[Wire], Awaitable[T]]) -> T:
    async def opened() -> T:
        wire = open_wire({"gcs.service.host": double.endpoint})
        try:
            return await work(wire)
        finally:
            await wire.close()

    return asyncio.run(opened())


def rewritten() -> bytes:
    made = {"size": "10", "crc32c": as_base64(SUM), "generation": "9"}
    return json.dumps({"done": True, "resource": made}).encode()


def test_a_copy_of_a_large_object_takes_several_calls() -> None:
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if "rewriteToken=more" in asked.target:
            return 200, {}, rewritten()
        return 200, {}, b'{"done": false, "rewriteToken": "more"}'

    with gcs_double(answer) as double:
        stored = run(double, lambda wire: wire.copy_within("gs://a/x y", "gs://b/z/ü", e_tag="7"))
    assert stored == Stored(10, SUM, "9")
    assert [one.target for one in double.asked] == [
        "/storage/v1/b/a/o/x%20y/rewriteTo/b/b/o/z%2F%C3%BC?ifGenerationMatch=0&ifSourceGenerationMatch=7",
        "/storage/v1/b/a/o/x%20y/rewriteTo/b/b/o/z%2F%C3%BC"
        "?ifGenerationMatch=0&ifSourceGenerationMatch=7&rewriteToken=more",
    ]


@pytest.mark.parametrize("body", [b"{", b"[]"])
def test_an_answer_that_is_no_object_is_refused(body: bytes) -> None:
    with gcs_double(lambda _: (200, {}, body)) as double, pytest.raises(PermanentError, match="the answer is no"):
        run(double, lambda wire: wire.copy_within("gs://a/x", "gs://a/y", e_tag="7"))


def test_parts_that_arrived_damaged_never_get_the_objects_name() -> None:
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.method == "HEAD":
            said = {"x-goog-hash": f"crc32c={as_base64(SUM ^ 1)}", "x-goog-generation": "7", "last-modified": THEN}
            return 200, {**said, "content-length": "10"}, b""
        return 200, {}, b"<Completed/>"

    with gcs_double(answer) as double, pytest.raises(TransientError, match="damaged on the way"):
        run(double, lambda wire: wire.finish("gs://a/x", "0123456789abcdef:id", [Part(1, 10, SUM, '"t"')], SUM))
    assert [(one.method, "rewriteTo" in one.target) for one in double.asked] == [("POST", False), ("HEAD", False)]


def test_an_object_that_is_there_stays_and_the_parts_go() -> None:
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.method == "HEAD":
            said = {"x-goog-hash": f"crc32c={as_base64(SUM)}", "x-goog-generation": "7", "last-modified": THEN}
            return 200, {**said, "content-length": "10"}, b""
        return (412, {}, b"") if "rewriteTo" in asked.target else (200, {}, b"<Completed/>")

    with gcs_double(answer) as double, pytest.raises(ConditionFailed):
        run(double, lambda wire: wire.finish("gs://a/x", "0123456789abcdef:id", [Part(1, 10, SUM, '"t"')], SUM))
    assert (double.asked[-1].method, double.asked[-1].target) == ("DELETE", "/a/x._upload-0123456789abcdef")


class FakeCredentials:
    def __init__(self) -> None:
        self.renewals = 0

    @property
    def valid(self) -> bool:
        return self.renewals > 0

    @property
    def token(self) -> str:
        return f"token-{self.renewals}"

    def refresh(self, request: object) -> None:
        self.renewals += 1


def test_a_token_is_fetched_once_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = FakeCredentials()
    monkeypatch.setattr(google.auth, "default", lambda scopes: (found, "project"))

    async def many() -> list[dict[str, str]]:
        tokens = Tokens({})
        return list(await asyncio.gather(*(tokens.headers() for _ in range(8))))

    assert asyncio.run(many()) == [{"authorization": "Bearer token-1"}] * 8
    assert found.renewals == 1


def test_no_credentials_at_all_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(scopes: object) -> None:
        raise exceptions.DefaultCredentialsError

    monkeypatch.setattr(google.auth, "default", none)
    with pytest.raises(PermanentError, match="there are no credentials"):
        asyncio.run(Tokens({}).headers())


def test_given_tokens_and_emulators() -> None:
    assert asyncio.run(Tokens({"gcs.oauth2.token": "t"}).headers()) == {"authorization": "Bearer t"}
    assert asyncio.run(Tokens({"gcs.service.host": "http://h"}).headers()) == {}


def page(keys: list[str], more: str = "") -> bytes:
    found = "".join(
        f"<Upload><Key>{key}</Key><UploadId>id</UploadId><Initiated>2026-01-02T03:04:05Z</Initiated></Upload>"
        for key in keys
    )
    next_one = f"<NextKeyMarker>{more}</NextKeyMarker><NextUploadIdMarker>id</NextUploadIdMarker>" if more else ""
    truncated = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
    return f"<ListMultipartUploadsResult>{truncated}{next_one}{found}</ListMultipartUploadsResult>".encode()


def uploads_of(double: GcsDouble, *, unnamed: bool = False) -> list[Upload]:
    async def listed(wire: Wire) -> list[Upload]:
        found = wire.unnamed("gs://b/t") if unnamed else wire.uploads("gs://b/t")
        return [one async for one in found]

    return run(double, listed)


BEGUN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_uploads_of_other_tables_are_not_listed_by_a_server_that_ignores_the_prefix() -> None:
    """Whoever lists them aborts them."""
    keys = ["t/x._upload-0123456789abcdef", "t2/x", "other/y._upload-0123456789abcdef", "t/z"]
    with gcs_double(lambda _: (200, {}, page(keys))) as double:
        assert uploads_of(double) == [
            Upload("gs://b/t/x", "0123456789abcdef:id", BEGUN),
            Upload("gs://b/t/z", ":id", BEGUN),
        ]


def test_a_page_of_uploads_that_comes_again_and_again_is_an_error() -> None:
    with gcs_double(lambda _: (200, {}, page(["t/x"], "t/x"))) as double:
        with pytest.raises(PermanentError, match="again and again"):
            uploads_of(double)
        assert len(double.asked) == 2


def test_parts_that_were_put_together_and_never_named_are_found_and_dropped() -> None:
    """Also by a server that knows no globs; whatever is named otherwise is nobody's."""
    names = ["t/a", "t/x._upload-0123456789abcdef", "t/y._upload-xyz", "t2/x._upload-0123456789abcdef"]

    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.method == "DELETE":
            return 204, {}, b""
        items = [{"name": name, "timeCreated": "2026-01-02T03:04:05Z"} for name in names]
        more = {} if "pageToken=more" in asked.target else {"nextPageToken": "more"}
        return 200, {}, json.dumps({"items": items if more else [], **more}).encode()

    with gcs_double(answer) as double:
        found = uploads_of(double, unnamed=True)
        assert found == [Upload("gs://b/t/x", "0123456789abcdef:", BEGUN)]
        run(double, lambda wire: wire.abort(found[0].uri, found[0].upload))
    assert [(one.method, one.target.partition("?")[0]) for one in double.asked] == [
        ("GET", "/storage/v1/b/b/o"),
        ("GET", "/storage/v1/b/b/o"),
        ("DELETE", "/b/t/x._upload-0123456789abcdef"),
    ]
    assert "prefix=t%2F" in double.asked[0].target


@pytest.mark.parametrize("body", [b'{"items": [{"name": "x"}]}', b'{"items": 1}', b'{"nextPageToken": "same"}'])
def test_a_list_of_objects_that_is_none_is_an_error(body: bytes) -> None:
    with gcs_double(lambda _: (200, {}, body)) as double, pytest.raises(PermanentError):
        uploads_of(double, unnamed=True)

from __future__ import annotations

import pickle

from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.storage.checksum import as_base64, combined, crc32c_of, from_base64
from lakemirror.storage.port import ThrottledError


@given(st.lists(st.binary(max_size=2000), max_size=6))
def test_the_sum_of_a_whole_follows_from_those_of_its_parts(parts: list[bytes]) -> None:
    assert combined((crc32c_of(part), len(part)) for part in parts) == value(b"".join(parts))


def test_parts_of_many_bytes() -> None:
    # (a, b): b zeros of 5 GiB are a shift; checked against the shift taken in two steps
    five = 5 << 30
    assert combined([(123456, 1), (0, five)]) == combined([(combined([(123456, 1), (0, five - 7)]), 9), (0, 7)])


def test_base64_is_that_of_the_stores() -> None:
    assert as_base64(crc32c_of(b"hello world")) == "yZRlqg=="
    assert from_base64("yZRlqg==") == crc32c_of(b"hello world")
    assert [from_base64(text) for text in ("yZRlqg==-3", "", "AAAA", "é")] == [None] * 4


def test_throttling_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ThrottledError("create", "s3://b/k", "SlowDown", "wait", 2.5)))
    assert (type(error), error.retry_after_s, error.kind, str(error)) == (
        ThrottledError,
        2.5,
        "transient",
        "create s3://b/k: SlowDown; wait",
    )

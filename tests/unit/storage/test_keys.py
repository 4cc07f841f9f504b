from __future__ import annotations

import pytest

from lakemirror.errors import PermanentError
from lakemirror.storage.keys import Address, check_key, check_prefix


@pytest.mark.parametrize(
    ("uri", "address", "canonical"),
    [
        ("file:///a/b c%20", Address("file", "", "a/b c%20"), "file:///a/b c%20"),
        ("file:/a/b", Address("file", "", "a/b"), "file:///a/b"),
        ("/a/b", Address("file", "", "a/b"), "file:///a/b"),
        ("/a:b://c", None, None),
        ("memory://m/k", Address("memory", "m", "k"), "memory://m/k"),
        ("s3://b/k=1/ü", Address("s3", "b", "k=1/ü"), "s3://b/k=1/ü"),
        ("s3a://b/k#1", Address("s3a", "b", "k#1"), "s3a://b/k#1"),
        ("s3n://b/k?x", Address("s3n", "b", "k?x"), "s3n://b/k?x"),
        ("gs://b.c_d-e/k", Address("gs", "b.c_d-e", "k"), "gs://b.c_d-e/k"),
    ],
)
def test_uris_are_taken_apart_literally(uri: str, address: Address | None, canonical: str | None) -> None:
    if address is None:
        with pytest.raises(PermanentError):
            check_key(uri)
    else:
        assert check_key(uri) == address
        assert check_key(uri).uri == canonical


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("relative/path", "not the URI"),
        ("", "not the URI"),
        ("hdfs://n/a", "not the URI"),
        ("S3://b/k", "not the URI"),
        ("file:a", "not the URI"),
        ("file://host/a", "host 'host'"),
        ("s3:///k", "cannot be a bucket"),
        ("s3://b c/k", "cannot be a bucket"),
        ("s3://b", "names no object"),
        ("s3://b/", "names no object"),
        ("file:///", "names no object"),
        ("s3://b/k/", "ends in '/'"),
        ("s3://b//k", "the client by which the store is reached cannot hold this key: it holds '//'"),
        ("gs://b/t//k", "the client by which the store is reached cannot hold this key: it holds '//'"),
        ("file:////a", "the store cannot hold this key: it holds '//'"),
        ("//a", "'//'"),
        ("s3://b/a/./b", "'.'"),
        ("s3://b/a/..", "'..'"),
        ("s3://b/a\x1bb", "control character"),
        ("s3://b/\ud800", "Unicode"),
        ("file:///a#1", "'#'"),
        ("file:///x#y/a", "'#'"),
        ("s3://b/" + "ü" * 513, "longer than 1024 bytes"),
        ("gs://b/" + "x" * 1025, "longer than 1024 bytes"),
        ("file:///d/" + "ü" * 128, "longer than 255 bytes"),
    ],
)
def test_what_a_store_cannot_hold_is_refused_by_name(uri: str, why: str) -> None:
    with pytest.raises(PermanentError) as raised:
        check_key(uri, "put")
    assert raised.value.op == "put"
    assert raised.value.subject == (uri if uri and uri.isprintable() else repr(uri))
    assert why in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    "uri", ["s3://b/" + "x" * 1024, "file:///d/" + "x" * 255, "file:///" + "/".join(["x" * 200] * 19)]
)
def test_keys_up_to_the_limit_pass(uri: str) -> None:
    assert check_key(uri).uri == uri


def test_a_control_character_does_not_reach_the_log_line() -> None:
    with pytest.raises(PermanentError) as raised:
        check_key("s3://b/a\nb")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "key"), [("s3://b", ""), ("s3://b/", ""), ("s3://b/a/", "a"), ("/", ""), ("file:/a/b", "a/b")]
)
def test_prefixes_may_be_whole_buckets_and_end_in_a_slash(uri: str, key: str) -> None:
    assert check_prefix(uri).key == key


@pytest.mark.parametrize("uri", ["s3://b/a//", "s3://b//", "s3://b/../a", "hdfs://a/b"])
def test_bad_prefixes_are_refused(uri: str) -> None:
    with pytest.raises(PermanentError):
        check_prefix(uri)

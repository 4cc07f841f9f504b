"""The lease as bytes: what was written reads back, no two writes are equal, and what is no lease is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakemirror.errors import PermanentError
from lakemirror.model.lease import Lease

URI = "file:///m/ns/t/_control/lease.json"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LEASE = Lease(7, "run-1", AT, "plan-1", "host:1")
NO_SKEW = timedelta(0)


def written(**more: Any) -> bytes:
    return json.dumps({**json.loads(LEASE.to_bytes()), **more}).encode()


@pytest.mark.parametrize("lease", [LEASE, LEASE.renewed(AT), LEASE.released(AT), Lease(1, "ü", AT)], ids=str)
def test_reads_back_as_it_was(lease: Lease) -> None:
    assert Lease.from_bytes(lease.to_bytes(), URI) == lease


def test_every_write_differs_even_if_the_clock_stands_still() -> None:
    """Equal bytes have equal e_tags on S3; then somebody who has seen the first could replace the second."""
    again = LEASE.renewed(LEASE.expires_at)
    assert len({LEASE.to_bytes(), again.to_bytes(), again.released(AT).to_bytes(), LEASE.released(AT).to_bytes()}) == 4


def test_it_lives_until_it_expires_by_the_slower_clock() -> None:
    second, skew = timedelta(seconds=1), timedelta(seconds=5)
    assert LEASE.is_live(AT - second, NO_SKEW)
    assert not LEASE.is_live(AT, NO_SKEW)
    assert LEASE.is_live(AT + 4 * second, skew)
    assert not LEASE.is_live(AT + 5 * second, skew)
    assert not LEASE.released(AT + 100 * second).is_live(AT, skew)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        written(token="7"),
        written(token=0),
        written(token=-1),
        written(token=1 << 70),
        written(token=True),
        written(owner=None),
        written(owner="x" * 5000),
        written(holder=5),
        written(plan_id=5),
        written(writes=None),
        written(released=0),
        written(expires_at="soon"),
        written(expires_at="2026-01-01T00:00:00"),
        written(expires_at=None),
        written(format=2),
    ],
    ids=lambda data: repr(data[-30:]),
)
def test_what_is_no_lease_is_refused(data: bytes) -> None:
    with pytest.raises(PermanentError, match="not a lease") as caught:
        Lease.from_bytes(data, URI)
    assert (caught.value.op, caught.value.subject) == ("read lease", URI)


def test_a_lease_of_a_newer_version_is_not_to_be_deleted() -> None:
    with pytest.raises(PermanentError, match="format 2, this version reads 1") as caught:
        Lease.from_bytes(written(format=2), URI)
    assert "upgrade" in caught.value.hint
    assert "delete" not in caught.value.hint

"""What may be asked twice is asked again, as late as the server wants it; commits are sent once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemirror.catalogs.rest_client import ATTEMPTS, RestClient, UnknownOutcomeError
from lakemirror.errors import PermanentError, TransientError
from tests.rest_double import RestDouble, rest_double


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        yield double


def client(double: RestDouble, pauses: list[float]) -> RestClient:
    properties = {"uri": double.uri, "token": "token-1", "rest.timeout-s": "30"}
    return RestClient("cloud", properties, sleep=pauses.append)


class Failing:
    """The first requests of a verb fail."""

    def __init__(self, verb: str, fault: int | str, times: int) -> None:
        self._verb, self._fault, self._times, self.met = verb, fault, times, 0

    def __call__(self, verb: str, path: str) -> int | str | None:
        if verb != self._verb or self.met == self._times:
            return None
        self.met += 1
        return self._fault


@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "cut after"])
def test_a_passing_fault_is_passed_over(double: RestDouble, fault: int | str) -> None:
    pauses: list[float] = []
    double.fault = failing = Failing("GET", fault, ATTEMPTS - 1)
    assert client(double, pauses).get("namespaces", "list", "cloud").is_ok
    assert (failing.met, len(pauses)) == (ATTEMPTS - 1, ATTEMPTS - 1)
    assert pauses == sorted(pauses)


def test_one_that_does_not_pass_is_transient(double: RestDouble) -> None:
    pauses: list[float] = []
    double.fault = Failing("GET", 503, 1000)
    with pytest.raises(TransientError, match="503"):
        client(double, pauses).get("namespaces", "list", "cloud")
    assert len(pauses) == ATTEMPTS - 1


def test_the_server_says_how_long_to_wait(double: RestDouble) -> None:
    pauses: list[float] = []
    double.headers["Retry-After"] = "7"
    double.fault = Failing("GET", 429, 1)
    client(double, pauses).get("namespaces", "list", "cloud")
    assert 7 < pauses[0] < 8


def test_no_patience_for_longer_than_the_time_limits_allow(double: RestDouble) -> None:
    pauses: list[float] = []
    double.headers["Retry-After"] = "3600"
    double.fault = Failing("GET", 429, 1000)
    with pytest.raises(TransientError, match="in 3600 s"):
        client(double, pauses).get("namespaces", "list", "cloud")
    assert sum(pauses) <= 60


def test_a_commit_is_sent_once(double: RestDouble) -> None:
    pauses: list[float] = []
    opened = client(double, pauses)
    double.fault = failing = Failing("POST", 500, 1000)
    with pytest.raises(UnknownOutcomeError):
        opened.post("namespaces/a/tables/b", {}, "commit", "a.b")
    assert (failing.met, pauses) == (1, [])


def test_what_will_not_change_is_not_asked_again(double: RestDouble) -> None:
    pauses: list[float] = []
    double.fault = Failing("GET", 403, 1000)
    with pytest.raises(PermanentError, match="403"):
        client(double, pauses).get("namespaces", "list", "cloud")
    assert pauses == []

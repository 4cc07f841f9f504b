"""What may be asked twice is asked again, as late as the server wants it; commits are sent once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemirror.catalogs.rest_client import RETRIES, RestClient
from lakemirror.catalogs.rest_transport import Answer, UnknownOutcomeError
from lakemirror.errors import PermanentError, TransientError, UsageError
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
    double.fault = failing = Failing("GET", fault, RETRIES)
    assert client(double, pauses).get("namespaces", "list", "cloud").is_ok
    assert (failing.met, len(pauses)) == (RETRIES, RETRIES)
    assert pauses == sorted(pauses)


def test_one_that_does_not_pass_is_transient(double: RestDouble) -> None:
    pauses: list[float] = []
    double.fault = Failing("GET", 503, 1000)
    with pytest.raises(TransientError, match="503"):
        client(double, pauses).get("namespaces", "list", "cloud")
    assert len(pauses) == RETRIES


def test_the_server_says_how_long_to_wait(double: RestDouble) -> None:
    pauses: list[float] = []
    double.headers["Retry-After"] = "7"
    double.fault = Failing("GET", 429, 1)
    client(double, pauses).get("namespaces", "list", "cloud")
    assert 7 < pauses[0] < 8


@pytest.mark.parametrize(
    ("after", "sent", "least"),
    [
        ("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:52 GMT", 7),  # by the server's own clock
        ("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", "no date", 0),  # it is past by ours
        ("soon", "Fri, 31 Dec 1999 23:59:52 GMT", 0),
    ],
)
def test_the_server_says_until_when_to_wait(double: RestDouble, after: str, sent: str, least: float) -> None:
    pauses: list[float] = []
    double.headers |= {"Retry-After": after, "Date": sent}
    double.fault = Failing("GET", 429, 1)
    client(double, pauses).get("namespaces", "list", "cloud")
    assert least < pauses[0] < least + 1


def test_no_patience_for_longer_than_the_time_limits_allow(double: RestDouble) -> None:
    pauses: list[float] = []
    double.headers["Retry-After"] = "3600"
    double.fault = Failing("GET", 429, 1000)
    with pytest.raises(TransientError, match="in 3600 s"):
        client(double, pauses).get("namespaces", "list", "cloud")
    assert pauses == []  # it would come too early


def test_a_throttled_commit_is_sent_again_as_late_as_the_server_wants(double: RestDouble) -> None:
    pauses: list[float] = []
    opened = client(double, pauses)
    double.headers["Retry-After"] = "5"
    double.files["m"] = {}
    double.fault = failing = Failing("POST", 429, 2)
    answer = opened.post("namespaces/a/register", {"name": "t", "metadata-location": "m"}, "commit", "a.t")
    assert (answer.is_ok, answer.tries, failing.met) == (True, 3, 2)
    assert all(5 < pause < 8 for pause in pauses)


def test_knobs_of_patience(double: RestDouble) -> None:
    pauses: list[float] = []
    properties = {"uri": double.uri, "token": "token-1", "rest.retries": "1", "rest.retry-pause-s": "0"}
    double.fault = failing = Failing("GET", 503, 1000)
    with pytest.raises(TransientError, match="503"):
        RestClient("cloud", properties, sleep=pauses.append).get("namespaces", "list", "cloud")
    assert (failing.met, pauses) == (2, [0.0])
    for wrong in ("many", "-1", "nan", "inf"):
        with pytest.raises(UsageError, match=r"rest\.retries"):
            RestClient("cloud", {**properties, "rest.retries": wrong})


class TestIdempotencyKeys:
    """Sent where the server has them; what was refused once is not asked for again under the same key."""

    @pytest.fixture(autouse=True)
    def keys(self, double: RestDouble) -> None:
        double.config["idempotency-key-lifetime"] = "PT30M"
        double.files["m"] = {}

    def post(self, double: RestDouble) -> Answer:
        opened = client(double, [])
        return opened.post("namespaces/a/register", {"name": "t", "metadata-location": "m"}, "commit", "a.t")

    def test_one_for_each_plan(self, double: RestDouble) -> None:
        self.post(double)
        self.post(double)
        first, second = double.keys
        assert (first.version, second.version, first == second) == (7, 7, False)

    def test_an_answer_that_was_lost_is_asked_for_again(self, double: RestDouble) -> None:
        double.fault = Failing("POST", "cut after", 1)
        assert self.post(double).is_ok  # without the key the table would be there already
        assert len(double.keys) == 2
        assert len(set(double.keys)) == 1

    def test_after_a_no_it_is_a_new_one(self, double: RestDouble) -> None:
        double.fault = Failing("POST", 429, 1)
        assert self.post(double).is_ok
        assert len(set(double.keys)) == 2

    def test_never_twice_in_vain(self, double: RestDouble) -> None:
        double.fault = failing = Failing("POST", "cut", 1000)
        with pytest.raises(UnknownOutcomeError):
            self.post(double)
        assert failing.met == 2

    def test_none_where_the_server_has_none(self, double: RestDouble) -> None:
        del double.config["idempotency-key-lifetime"]
        self.post(double)
        assert double.keys == []


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

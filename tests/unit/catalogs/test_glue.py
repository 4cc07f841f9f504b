"""Glue that misbehaves: what was done is told from what was not, by reading back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest

from lakemirror.catalogs import glue
from lakemirror.catalogs.glue import GlueCatalog
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.model.table import TableRef
from tests.glue_double import GlueDouble, Refused, Told, as_glue, glue_double

T = TableRef.parse("shop.orders")
FIRST, SECOND, THIRD = (Published(f"mem://m/{n}.json", {"location": "mem://m"}) for n in (1, 2, 3))
# What says nothing of whether the request was done: of Glue itself, and of whoever stands before it.
TROUBLE: tuple[Told, ...] = (
    (500, as_glue("InternalServiceException")),
    (500, as_glue("InternalFailure")),
    (503, as_glue("ServiceUnavailableException")),
    (429, as_glue("TooManyRequestsException")),
    (400, as_glue("ThrottlingException")),
    (400, as_glue("OperationTimeoutException")),
    (400, as_glue("FederationSourceRetryableException")),
    (408, b""),
    (429, b""),
    (500, b""),
    (502, b"<html><body>bad gateway</body></html>"),
    (502, b"<!DOCTYPE html>\n<html></html>"),
    (502, "<!DOCTYPE html><p>Dépassé".encode("latin-1")),
    (503, b"busy"),
    (504, b""),
)
# Of somebody on the way, too, but the client stumbles over them.
UNREADABLE: tuple[Told, ...] = (
    (502, b'"upstream down"'),
    (502, b"[]"),
    (502, b"null"),
    (503, b"502"),
    (403, b"[]"),
    (200, b"[]"),
    (200, b'"ok"'),
)
NO: tuple[Told, ...] = ((400, as_glue("AccessDeniedException")), (403, b"<html></html>"), (501, b""), (400, b""))


@pytest.fixture
def double() -> Iterator[GlueDouble]:
    with glue_double() as double:
        yield double


def catalog(double: GlueDouble, retries: int = 0) -> GlueCatalog:
    return GlueCatalog("cloud", {**double.properties, "glue.max-retries": str(retries)})


def head(opened: GlueCatalog) -> MirrorHead:
    found = opened.load(T)
    assert found is not None
    return found


@pytest.fixture
def opened(double: GlueDouble) -> GlueCatalog:
    opened = catalog(double)
    opened.commit(T, None, FIRST)
    return opened


class Once:
    def __init__(self, operation: str, fault: Told | str) -> None:
        self._left = [(operation, fault)]

    def __call__(self, operation: str) -> Told | str | None:
        if self._left and self._left[0][0] == operation:
            return self._left.pop()[1]
        return None


@pytest.mark.parametrize("fault", ["cut after", *TROUBLE, *UNREADABLE], ids=str)
def test_a_commit_that_was_made_and_never_answered_is_done(
    double: GlueDouble, opened: GlueCatalog, fault: Told | str
) -> None:
    double.fault = Once("UpdateTable", fault)
    opened.commit(T, head(opened), SECOND)
    assert head(opened).metadata_uri == SECOND.metadata_uri
    assert double.asked.count("UpdateTable") == 1


@pytest.mark.parametrize("fault", ["cut after", *TROUBLE, *UNREADABLE], ids=str)
def test_a_first_commit_that_was_made_and_never_answered_is_done(double: GlueDouble, fault: Told | str) -> None:
    double.fault = Once("CreateTable", fault)
    catalog(double).commit(T, None, FIRST)


@pytest.mark.parametrize("told", [*TROUBLE, *UNREADABLE, (200, b"<html>"), (200, b"null"), (200, b"{}")], ids=str)
def test_trouble_while_reading_passes(double: GlueDouble, opened: GlueCatalog, told: Told) -> None:
    double.fault = Once("GetTable", told)
    with pytest.raises(TransientError, match="Glue of catalog cloud"):
        opened.load(T)
    assert head(opened).metadata_uri == FIRST.metadata_uri


@pytest.mark.parametrize("told", [*UNREADABLE, (200, b"<html>"), (200, b'{"DatabaseList": ["x"]}')], ids=str)
def test_trouble_while_listing_passes(double: GlueDouble, told: Told) -> None:
    double.fault = Once("GetDatabases", told)
    with pytest.raises(TransientError, match="list tables cloud: Glue of catalog cloud did not answer"):
        catalog(double).tables()


def test_tables_are_listed(opened: GlueCatalog) -> None:
    assert opened.tables() == (T,)


def test_a_defect_of_ours_is_not_called_trouble(opened: GlueCatalog) -> None:
    with patch.object(glue, "is_iceberg", side_effect=KeyError("ours")), pytest.raises(KeyError, match="ours"):
        opened.tables()


@pytest.mark.parametrize("told", NO, ids=str)
def test_a_plain_no_does_not_pass(double: GlueDouble, opened: GlueCatalog, told: Told) -> None:
    double.fault = Once("GetTable", told)
    with pytest.raises(PermanentError, match="Glue of catalog cloud answered"):
        opened.load(T)


def test_a_commit_that_was_not_made_is_transient(double: GlueDouble, opened: GlueCatalog) -> None:
    double.fault = Once("UpdateTable", "cut")
    with pytest.raises(TransientError, match="the head is as before") as caught:
        opened.commit(T, head(opened), SECOND)
    assert not isinstance(caught.value, LostRaceError)


@pytest.mark.parametrize("operation", ["CreateTable", "UpdateTable"])
def test_the_client_that_asks_twice_does_not_lose_against_itself(double: GlueDouble, operation: str) -> None:
    double.fault = Once(operation, "cut after")
    opened = catalog(double, retries=3)
    opened.commit(T, None, FIRST)
    if operation == "UpdateTable":
        opened.commit(T, head(opened), SECOND)
    assert double.asked.count(operation) == 2


class Each:
    """One after the other, for one operation."""

    def __init__(self, operation: str, *faults: Told | str) -> None:
        self._operation = operation
        self._left = list(faults)

    def __call__(self, operation: str) -> Told | str | None:
        return self._left.pop(0) if operation == self._operation and self._left else None


REFUSED: tuple[Told, ...] = (
    (400, as_glue("AccessDeniedException")),
    (400, as_glue("InvalidInputException")),
    (403, as_glue("UnrecognizedClientException")),
)


class TestRefusedWhenAskedAgain:
    """The client's own second request is refused; the first one may have been the one that counted."""

    @pytest.mark.parametrize("told", REFUSED, ids=str)
    @pytest.mark.parametrize("operation", ["CreateTable", "UpdateTable"])
    def test_a_commit_that_was_made_is_done(self, double: GlueDouble, operation: str, told: Told) -> None:
        opened = catalog(double, retries=2)
        double.fault = Each(operation, "cut after", told)
        opened.commit(T, None, FIRST)
        if operation == "UpdateTable":
            opened.commit(T, head(opened), SECOND)
        assert double.asked.count(operation) == 2

    @pytest.mark.parametrize("told", REFUSED, ids=str)
    def test_a_commit_that_was_not_made_is_transient(self, double: GlueDouble, opened: GlueCatalog, told: Told) -> None:
        double.fault = Each("UpdateTable", "cut", Refused(*told))
        with pytest.raises(TransientError, match="when asked again; the head is as before"):
            catalog(double, retries=2).commit(T, head(opened), SECOND)

    @pytest.mark.parametrize("told", REFUSED, ids=str)
    def test_a_drop_that_was_done_is_done(self, double: GlueDouble, opened: GlueCatalog, told: Told) -> None:
        double.fault = Each("DeleteTable", "cut after", told)
        catalog(double, retries=2).drop(T, head(opened))
        assert double.tables == {}

    def test_a_drop_that_was_not_done_is_transient(self, double: GlueDouble, opened: GlueCatalog) -> None:
        double.fault = Each("DeleteTable", "cut", Refused(*REFUSED[0]))
        with pytest.raises(TransientError, match=r"drop shop\.orders: .* when asked again"):
            catalog(double, retries=2).drop(T, head(opened))

    @pytest.mark.parametrize("operation", ["CreateTable", "UpdateTable", "DeleteTable"])
    def test_a_refusal_at_once_is_the_answer(self, double: GlueDouble, operation: str) -> None:
        def change() -> None:
            opened.commit(T, None, FIRST)
            opened.commit(T, head(opened), SECOND)
            opened.drop(T, head(opened))

        opened = catalog(double, retries=2)
        double.fault = Each(operation, Refused(*REFUSED[0]))
        with pytest.raises(PermanentError, match="answered AccessDeniedException"):
            change()
        assert double.asked.count(operation) == 1


@pytest.mark.parametrize("fault", ["cut after", *UNREADABLE], ids=str)
def test_a_drop_that_was_done_and_never_answered_is_done(
    double: GlueDouble, opened: GlueCatalog, fault: Told | str
) -> None:
    double.fault = Once("DeleteTable", fault)
    opened.drop(T, head(opened))
    assert double.tables == {}


class TestWithoutTheRightToMakeDatabases:
    @pytest.fixture(autouse=True)
    def denied(self, double: GlueDouble) -> None:
        double.makes_databases = False

    def test_one_that_is_there_is_enough(self, double: GlueDouble) -> None:
        double.databases.add("shop")
        opened = catalog(double)
        opened.commit(T, None, FIRST)
        assert head(opened).metadata_uri == FIRST.metadata_uri

    def test_one_that_is_not_there(self, double: GlueDouble) -> None:
        """It is told what was refused, not that the database is missing: that follows from it."""
        with pytest.raises(PermanentError, match=r"register shop\.orders: .* answered AccessDeniedException"):
            catalog(double).commit(T, None, FIRST)
        assert double.tables == {}

    def test_nor_to_look_at_them(self, double: GlueDouble) -> None:
        double.databases.add("shop")
        double.fault = lambda operation: (400, as_glue("AccessDeniedException")) if operation == "GetDatabase" else None
        catalog(double).commit(T, None, FIRST)
        assert double.asked == ["CreateDatabase", "CreateTable"]

    def test_nor_to_make_tables(self, double: GlueDouble) -> None:
        double.databases.add("shop")
        double.fault = Once("CreateTable", (400, as_glue("InvalidInputException")))
        with pytest.raises(PermanentError, match="answered InvalidInputException"):
            catalog(double).commit(T, None, FIRST)


def test_levels_of_namespaces_are_refused_as_by_other_catalogs(double: GlueDouble) -> None:
    with pytest.raises(PermanentError, match="unsupported_by_catalog") as caught:
        catalog(double).commit(TableRef.parse("shop.inner.orders"), None, FIRST)
    assert (type(caught.value), caught.value.exit_code) == (PermanentError, 1)
    assert double.asked == []


def test_somebody_else_in_the_dark_is_a_lost_race(double: GlueDouble, opened: GlueCatalog) -> None:
    before = head(opened)
    other = catalog(double)

    def overtaken(operation: str) -> str | None:
        if operation != "UpdateTable":
            return None
        double.fault = lambda operation: None
        table = double.tables["shop", "orders"]
        table["Parameters"]["metadata_location"], table["VersionId"] = THIRD.metadata_uri, "7"
        return "cut"

    double.fault = overtaken
    with pytest.raises(LostRaceError, match="head had moved"):
        opened.commit(T, before, SECOND)
    assert head(other).metadata_uri == THIRD.metadata_uri


def test_where_glue_compares_versions_one_of_many_wins(double: GlueDouble, opened: GlueCatalog) -> None:
    """Our own check beforehand is not enough for that; moto's is missing."""
    before = head(opened)
    start = threading.Barrier(8)

    def commit(number: int) -> str:
        mine = catalog(double)
        mine.load(T)
        start.wait(30)
        try:
            mine.commit(T, before, Published(f"mem://m/race-{number}.json", {"location": "mem://m"}))
        except LostRaceError:
            return "lost"
        return "won"

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(commit, range(8))) == {"won": 1, "lost": 7}

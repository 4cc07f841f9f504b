"""BLMS: Google's login, the headers that it wants, and the rules that are checked before anything is sent."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemirror.catalogs.blms import URI, blms_properties, open_blms
from lakemirror.catalogs.ports import Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.errors import PermanentError, TransientError, UsageError
from lakemirror.model.table import TableRef
from tests.google_account import TokenServer, key_file
from tests.published_tables import Table
from tests.rest_double import RestDouble, rest_double

T = TableRef.parse("shop.orders")
HALF_A_KEY = '{"type": "service_account", "private_key": "hush-hush"}'  # pragma: allowlist secret
NEEDED = {"warehouse": "gs://bucket", "gcs.project-id": "shop-project"}


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        google = double.google = TokenServer(f"{double.uri}/token")
        double.signer = lambda verb, target, data, headers: google.lets_in(headers.get("Authorization"))
        yield double


def key(double: RestDouble) -> str:
    return json.dumps(key_file(f"{double.uri}/token"))


def catalog(double: RestDouble, **more: str) -> RestCatalog:
    given = {"uri": double.uri, "gcp.auth.credentials-json": key(double), "rest.retry-pause-s": "0"}
    return open_blms("cloud", {**NEEDED, **given, **more})


def google(double: RestDouble) -> TokenServer:
    assert double.google is not None
    return double.google


class TestLogin:
    def test_a_service_account_as_text(self, double: RestDouble) -> None:
        opened = catalog(double)
        assert opened.head(T) is None
        assert opened.head(T) is None
        assert len(google(double).issued) == 1

    def test_a_key_file(self, double: RestDouble, tmp_path: Path) -> None:
        (tmp_path / "key.json").write_text(key(double))
        given = {**NEEDED, "uri": double.uri, "gcp.auth.credentials-path": f"{tmp_path}/key.json"}
        assert open_blms("cloud", given).head(T) is None

    def test_the_machines_own(self, double: RestDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "key.json").write_text(key(double))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", f"{tmp_path}/key.json")
        assert open_blms("cloud", {**NEEDED, "uri": double.uri}).head(T) is None

    def test_it_travels_to_other_processes(self, double: RestDouble) -> None:
        assert pickle.loads(pickle.dumps(catalog(double))).head(T) is None

    def test_a_token_that_is_no_longer_taken_is_renewed_once(self, double: RestDouble) -> None:
        opened = catalog(double)
        opened.head(T)
        google(double).revoked.add(google(double).issued[0])
        assert opened.head(T) is None
        assert len(google(double).issued) == 2
        double.signer = lambda *_: False
        with pytest.raises(PermanentError, match="401"):
            opened.head(T)
        assert len(google(double).issued) == 3

    def test_a_token_is_renewed_before_it_ends(self, double: RestDouble) -> None:
        google(double).lifetime_s = 1  # Google's library asks anew minutes before the end
        opened = catalog(double)
        opened.head(T)
        opened.head(T)
        assert len(google(double).issued) > 1
        assert not google(double).revoked

    def test_a_key_that_google_does_not_know(self, double: RestDouble) -> None:
        wrong = {**json.loads(key(double)), "client_email": "other@shop.iam.gserviceaccount.com"}
        with pytest.raises(PermanentError, match="no token of Google's") as caught:
            catalog(double, **{"gcp.auth.credentials-json": json.dumps(wrong)}).head(T)
        assert "BEGIN PRIVATE" not in str(caught.value.as_json())

    @pytest.mark.parametrize("text", ["{", "[]", "{}", HALF_A_KEY])
    def test_a_key_that_is_none(self, double: RestDouble, text: str) -> None:
        with pytest.raises(PermanentError, match="no token of Google's") as caught:
            catalog(double, **{"gcp.auth.credentials-json": text}).head(T)
        assert "hush" not in str(caught.value.as_json())

    def test_a_token_server_that_is_away(self, double: RestDouble) -> None:
        away = json.dumps(key_file("http://127.0.0.1:9/token"))
        with pytest.raises(TransientError, match="no token of Google's"):
            catalog(double, **{"gcp.auth.credentials-json": away}).head(T)

    def test_nothing_of_it_reaches_the_store_or_a_repr(self, double: RestDouble) -> None:
        opened = catalog(double)
        assert not any("gcp.auth" in name for name in opened.file_io())
        assert "PRIVATE" not in repr(opened) + repr(opened._client) + repr(opened._client._login)


class TestProperties:
    def test_what_is_added(self) -> None:
        assert blms_properties("cloud", NEEDED) == {
            **NEEDED,
            "uri": URI,
            "header.x-goog-user-project": "shop-project",
            "header.X-Iceberg-Access-Delegation": "vended-credentials",
        }

    def test_what_is_given_wins(self) -> None:
        own = {"uri": "http://x", "header.X-Goog-User-Project": "p", "header.x-iceberg-access-delegation": ""}
        found = blms_properties("cloud", {"warehouse": "gs://b", **own})
        assert found == {
            "uri": "http://x",
            "warehouse": "gs://b",
            "header.x-goog-user-project": "p",
            "header.X-Iceberg-Access-Delegation": "",
        }

    @pytest.mark.parametrize("key", ["warehouse", "gcs.project-id"])
    def test_what_is_missing(self, key: str) -> None:
        with pytest.raises(UsageError, match="is missing"):
            blms_properties("cloud", {name: value for name, value in NEEDED.items() if name != key})

    @pytest.mark.parametrize("key", ["token", "credential", "rest.sigv4-enabled"])
    def test_other_logins(self, key: str) -> None:
        with pytest.raises(UsageError, match=f"{key} is not for a catalog of type blms"):
            blms_properties("cloud", {**NEEDED, key: "x"})


class TestRules:
    """Refused by name before anything is sent."""

    def refused(self, double: RestDouble, table: TableRef, new: dict[str, Any], **more: str) -> PermanentError:
        opened = catalog(double, **more)
        with pytest.raises(PermanentError, match=UNSUPPORTED) as caught:
            opened.commit(table, None, Published("mem://m/1.json", new))
        assert not any(one.startswith("POST /v1") for one in double.asked)
        return caught.value

    def made(self, version: int = 2, place: str = "mem://m/shop/orders") -> dict[str, Any]:
        table = Table(place, version)
        table.append(1)
        return table.publish()

    def test_format_1(self, double: RestDouble) -> None:
        assert "format version 1 is not taken, only 2, 3" in self.refused(double, T, self.made(1)).message

    def test_a_folder_of_another_name(self, double: RestDouble) -> None:
        error = self.refused(double, T, self.made(place="mem://m/shop/other"))
        assert "want …/orders, got mem://m/shop/other" in error.message

    def test_namespaces_of_several_levels(self, double: RestDouble) -> None:
        self.refused(double, TableRef.parse("shop.eu.orders"), self.made())

    def test_metadata_above_the_limit(self, double: RestDouble) -> None:
        made = self.made()
        made["properties"]["long"] = "x" * 1_000_000
        error = self.refused(double, T, made)
        assert "1000000 are allowed" in error.message
        assert "history_bytes" in error.hint
        catalog(double, **{"rest.max-metadata-bytes": "2000000"}).abilities()

    def test_a_limit_that_google_raised(self, double: RestDouble) -> None:
        made = self.made()
        made["properties"]["long"] = "x" * 1_000_000
        double.files["mem://m/1.json"] = made
        catalog(double, **{"rest.max-metadata-bytes": "2000000"}).commit(T, None, Published("mem://m/1.json", made))

    def test_the_logs_of_the_server_count(self, double: RestDouble) -> None:
        """They are not part of what we publish, and are part of what the server writes."""
        opened = catalog(double)
        made = Table("mem://m/shop/orders", 2)
        made.properties["write.metadata.previous-versions-max"] = "1000"
        made.append(1)
        first = Published("mem://m/1.json", made.publish())
        double.files[first.metadata_uri] = first.metadata
        opened.commit(T, None, first)
        entry = {"metadata-file": "mem://m/" + "x" * 1000, "timestamp-ms": 1}
        double.tables["namespaces/shop/tables/orders"][1]["metadata-log"] = [entry] * 1000
        made.append(2)
        with pytest.raises(PermanentError, match="1000000 are allowed"):
            opened.commit(T, opened.load(T), Published("mem://m/2.json", made.publish()))

    def test_a_table_that_would_move(self, double: RestDouble) -> None:
        opened = catalog(double)
        made = Table("mem://m/shop/orders", 2)
        made.append(1)
        first = Published("mem://m/1.json", made.publish())
        double.files[first.metadata_uri] = first.metadata
        opened.commit(T, None, first)
        made.location = "mem://m/else/orders"
        with pytest.raises(PermanentError, match="a table stays where it is"):
            opened.commit(T, opened.load(T), Published("mem://m/2.json", made.publish()))


def test_what_it_can_do(double: RestDouble) -> None:
    double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/register"]
    can = catalog(double).abilities()
    assert (can.type, can.formats, can.preview_formats, can.max_metadata_bytes) == ("blms", (2, 3), (3,), 1_000_000)
    assert not any((can.has_namespace_levels, can.has_multi_table_commit, can.has_idempotency_keys, can.has_drop))
    assert can.warnings({"format-version": 3}) == ("format version 3 is a preview on catalogs of type blms",)
    assert can.warnings({"format-version": 2}) == ()

"""The way of a commit over real servers: REST catalog and S3 on both sides, written by Spark, judged by two engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.services import Services
from tests.e2e.history import COLUMNS, MERGE_ON_READ, numbers
from tests.e2e.services_way import ServicesWay
from tests.judge import Judge

PROPERTIES = ", ".join(f"'{key}'='{value}'" for key, value in MERGE_ON_READ.items())


@pytest.fixture
def way(clean_services: Services, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServicesWay:
    for name, value in clean_services.environment().items():
        monkeypatch.setenv(name, value)
    return ServicesWay(clean_services, judge, tmp_path, "shop.orders").write()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.timeout(300)
def test_merge_on_read(way: ServicesWay, version: int) -> None:
    """Position deletes in v2, deletion vectors in v3; the follower's configuration knows no source."""
    way.sql(
        "CREATE NAMESPACE rest_source.shop",
        f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg PARTITIONED BY (dt)"
        f" TBLPROPERTIES ('format-version'='{version}', {PROPERTIES})",
        f"INSERT INTO {{t}} {numbers(0, 60)}",
    )
    way.check(by_cli=True)  # the first commit registers
    way.sql("DELETE FROM {t} WHERE id % 10 = 3", "ALTER TABLE {t} CREATE TAG one RETAIN 30 DAYS")
    way.check(by_cli=True)
    way.sql(
        "UPDATE {t} SET name = 'updated' WHERE id IN (4, 5)",
        "ALTER TABLE {t} ADD COLUMN more BIGINT",
        f"INSERT INTO {{t}} SELECT *, 7 FROM ({numbers(60, 90)})",
        "ALTER TABLE {t} SET TBLPROPERTIES ('color'='red')",
    )
    way.check()
    way.sql("ALTER TABLE {t} DROP TAG one", "ALTER TABLE {t} UNSET TBLPROPERTIES ('color')")
    way.check()

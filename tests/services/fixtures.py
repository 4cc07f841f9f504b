"""The services profile for tests: started once for a session, clean before each test that asks for it.

| fixture | gives |
|---|---|
| services | what is up: SeaweedFS twice, Iceberg REST twice, PostgreSQL, moto; not cleaned |
| clean_services | the same, with empty buckets and catalogs |
| gcs_services, hms_services, spark_services | with one more part; `dev.services.cleaning.clean` empties that, too |
| services_folder | the folder of all of these, for whoever stops and starts servers |

What ran before the session runs after it. Tests that ask for any of these carry the marker `services`. Processes that
run tests side by side (`pytest -n 2`) have servers each for themselves: the first those of `make up`, the others their
own in a folder below.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import pytest

from dev.services import Parts, Services, ServicesFolder, ToolMissing, down, running, stop, up
from dev.services.cleaning import clean
from dev.services.layout import OPTIONAL

FIXTURES = frozenset(("services", "clean_services", "gcs_services", "hms_services", "spark_services", "services_up"))
FIRST_WORKER = "gw0"


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The marker; and a time limit for the test alone, because the first start may build things for minutes."""
    timeout_s = float(config.getini("timeout") or 0)
    for item in items:
        if not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.services)
            wanted = item.get_closest_marker("timeout")
            limit = wanted.args[0] if wanted is not None and wanted.args else timeout_s
            item.add_marker(pytest.mark.timeout(limit, func_only=True), append=False)


def give_up(err: ToolMissing, environment: Mapping[str, str]) -> NoReturn:
    """In CI a missing tool is a failure; elsewhere those who need it are skipped."""
    if environment.get("CI") == "true":
        pytest.fail(str(err))
    pytest.skip(str(err))


def folder_of(worker: str) -> ServicesFolder:
    """By the name that pytest-xdist gives to the process; `master` is one that runs tests alone."""
    home = ServicesFolder()
    return home if worker in ("master", FIRST_WORKER) else home.inner(worker)


@pytest.fixture(scope="session")
def services_folder() -> ServicesFolder:
    return folder_of(os.environ.get("PYTEST_XDIST_WORKER", "master"))


@pytest.fixture(scope="session")
def services_up(services_folder: ServicesFolder) -> Iterator[Callable[[Parts], Services]]:
    """Starts what is missing, and at the end stops what did not run before."""
    folder = services_folder
    before = set(running(folder=folder))
    started: set[str] = set()

    def start(parts: Parts) -> Services:
        try:
            found = up(parts, folder=folder)
        except ToolMissing as err:
            give_up(err, os.environ)
        started.update(found.started)
        return found

    yield start
    if not before:
        down(folder=folder)
    else:
        for name in sorted((started & OPTIONAL) - before):
            stop(name, folder=folder)
        if started:
            up(folder=folder)  # the variables in .services/env are again those of what runs


@pytest.fixture(scope="session")
def services(services_up: Callable[[Parts], Services]) -> Services:
    return services_up(Parts())


@pytest.fixture
def clean_services(services: Services) -> Services:
    clean(services)
    return services


@pytest.fixture(scope="session")
def gcs_services(services_up: Callable[[Parts], Services]) -> Services:
    return services_up(Parts(gcs=True))


@pytest.fixture(scope="session")
def hms_services(services_up: Callable[[Parts], Services]) -> Services:
    return services_up(Parts(hms=True))


@pytest.fixture(scope="session")
def spark_services(services_up: Callable[[Parts], Services]) -> Services:
    return services_up(Parts(spark=True))

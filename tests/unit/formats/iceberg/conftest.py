"""What reads manifests is tested with both walkers."""

from __future__ import annotations

import pytest

from tests.walkers import ENGINES

WALKED = {"test_avro_walk", "test_damage", "test_manifest", "test_manifest_list"}


NOT_WALKED = ("position_deletes", "metadata_that_is_none")  # files of other formats among the tests of damage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_walked = metafunc.module.__name__.rpartition(".")[2] in WALKED
    if is_walked and not metafunc.function.__name__.endswith(NOT_WALKED) and "walker" not in metafunc.fixturenames:
        metafunc.fixturenames.append("walker")
    if "walker" in metafunc.fixturenames:
        metafunc.parametrize("walker", ENGINES, indirect=True)


@pytest.fixture
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The walker that everything in this test uses."""
    monkeypatch.setenv("LAKEMIRROR_WALKER", request.param)
    return str(request.param)

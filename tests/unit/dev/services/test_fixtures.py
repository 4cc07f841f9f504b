import pytest

from dev.services import ServicesFolder, ToolMissing
from tests.services.fixtures import folder_of, give_up


def test_a_missing_tool_is_a_failure_in_ci_and_a_skip_with_its_reason_elsewhere() -> None:
    with pytest.raises(pytest.fail.Exception, match="no Maven"):
        give_up(ToolMissing("no Maven"), {"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="no Maven"):
        give_up(ToolMissing("no Maven"), {})


def test_processes_that_run_tests_side_by_side_have_servers_of_their_own() -> None:
    home = ServicesFolder()

    assert [folder_of(worker) for worker in ("master", "gw0", "gw1")] == [home, home, home.inner("gw1")]

import pytest

from dev.services import ToolMissing
from tests.services.fixtures import give_up


def test_a_missing_tool_is_a_failure_in_ci_and_a_skip_with_its_reason_elsewhere() -> None:
    with pytest.raises(pytest.fail.Exception, match="no Maven"):
        give_up(ToolMissing("no Maven"), {"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="no Maven"):
        give_up(ToolMissing("no Maven"), {})

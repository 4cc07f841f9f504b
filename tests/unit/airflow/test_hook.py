from unittest.mock import MagicMock

import pytest

from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.app import App


@pytest.mark.parametrize("path", ["/c.yaml", None])
def test_the_configuration_named_is_the_one_loaded(app: MagicMock, path: str | None) -> None:
    with LakemirrorHook(config_path=path).app() as found:
        assert found is app
        app.close.assert_not_called()
    App.load.assert_called_once_with(path)  # type: ignore[attr-defined]  # it is patched
    app.close.assert_called_once_with()


def test_the_application_is_closed_after_an_error(app: MagicMock) -> None:
    def work() -> None:
        with LakemirrorHook(config_path="/c.yaml").app():
            raise KeyError("x")

    with pytest.raises(KeyError):
        work()
    app.close.assert_called_once_with()


def test_making_a_hook_loads_nothing(app: MagicMock) -> None:
    LakemirrorHook(config_path="/c.yaml")
    App.load.assert_not_called()  # type: ignore[attr-defined]  # it is patched

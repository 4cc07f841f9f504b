"""The way from an Airflow task to the library: a config path becomes an App."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from lakemirror.app import App


class LakemirrorHook(BaseHook):
    """Made inside `execute`, never in a constructor or at parse; the library is imported only when it is asked for."""

    def __init__(self, *, config_path: str | None = None) -> None:
        super().__init__()
        self.config_path = config_path

    @contextmanager
    def app(self) -> Iterator[App]:
        """The use cases over the configuration at `config_path` (None: where the CLI would look), closed after use."""
        from lakemirror.app import App

        app = App.load(self.config_path)
        try:
            yield app
        finally:
            app.close()

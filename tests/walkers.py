"""The two walkers, for tests that hold them to the same answers."""

from __future__ import annotations

import os

import pytest

from lakemirror.formats.iceberg.avro_walk import native_module

_IS_BUILT = native_module(None, {}) is not None

needs_c = pytest.mark.skipif(
    not _IS_BUILT and not os.environ.get("CI"), reason="the walker in C is not built: no C compiler at `make setup`"
)
ENGINES = [pytest.param("c", marks=needs_c), "python"]

"""Stores that join the contract suites by environment, as MinIO or a cloud would: here the second SeaweedFS."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from dev.services import Services
from tests.judge import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
SUITES = ("tests/contract/test_object_store.py", "tests/contract/test_wire.py")


def test_a_store_of_the_environment_passes_the_contract(services: Services) -> None:
    """A part of it: conditions and strange keys; that of the profile's own store passes all of it."""
    store = services.source_store
    named = {"by-name": {"root": f"s3://{store.bucket}/named", "properties": dict(store.properties)}}
    environment = {**os.environ, "LAKEMIRROR_TEST_STORES": json.dumps(named)}
    chosen = "by-name and (create or condition or strange)"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES, "-k", chosen]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert passed is not None
    assert int(passed[1]) > 10

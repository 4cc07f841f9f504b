"""The deadline of a run's copying: the same for all its processes, and a new one for the next run."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import pytest

from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Overwrite
from lakemirror.usecases import stages
from lakemirror.usecases.copy_deadline import shared_deadline
from tests.lake import ORDERS, Lake, rows

STORE = ObstoreStore({})


def test_a_run_keeps_its_deadline_and_another_one_has_its_own(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/copying.json"
    assert shared_deadline(STORE, uri, "run 1", 1000.0, 60) == 1060.0
    assert shared_deadline(STORE, uri, "run 1", 1050.0, 60) == 1060.0
    assert shared_deadline(STORE, uri, "run 1", 2000.0, 60) == 1060.0, "a retry has no more time"
    assert shared_deadline(STORE, uri, "run 2", 2000.0, 60) == 2060.0
    assert shared_deadline(STORE, uri, "run 2", 2010.0, 10) == 2020.0, "it was lowered meanwhile"


@pytest.mark.parametrize(
    "data", [b"{", b"{}", b'{"run": "run 1", "until": "never"}', b'{"run": "run 1", "until": 1e99}']
)
def test_what_nobody_wrote_is_written_anew(tmp_path: Path, data: bytes) -> None:
    uri = f"file://{tmp_path}/copying.json"
    STORE.put(uri, data, Overwrite())
    assert shared_deadline(STORE, uri, "run 1", 1000.0, 60) == 1060.0
    assert shared_deadline(STORE, uri, "run 1", 1010.0, 60) == 1060.0


def test_jobs_of_one_run_and_their_retries_share_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path, defaults={"small_change_files": 0, "fence": False})
    lake.create().append(rows(3))
    engine, app = LocalEngine(1), lake.app(owner="run 1")
    detected = app.detect(ORDERS)
    uri = str(app.plan_diff(ORDERS, str(detected.plan_uri), str(detected.source_name), engine).plan_uri)

    def until(owner: str) -> float:
        with patch.object(stages, "copy_objects", wraps=stages.copy_objects) as copying:
            lake.app(owner=owner).copy_objects(ORDERS, uri, engine)
        return float(copying.call_args.args[1].copying.settings.deadline_at)

    first = until("run 1")
    assert 86_000 < first - time.time() <= 86_400
    assert until("run 1") == first
    assert until("run 2") > first

"""The parts of the copy bench that need no server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dev.services import S3Store
from lakemirror.replicate.plan import PackSegments, Plan
from lakemirror.replicate.stage import Engine, StageContext, sum_requests
from lakemirror.replicate.transfer import Copied
from lakemirror.storage.abilities import LOCAL
from tests.perf import copying


def store(bucket: str) -> S3Store:
    return S3Store("http://127.0.0.1:1", "nowhere", "key", "secret", bucket)


def fields(*stores: S3Store) -> str:
    return json.dumps(
        [[one.endpoint, one.region, one.access_key_id, one.secret_access_key, one.bucket] for one in stores]
    )


def test_the_child_that_tells_its_memory_copies_with_what_was_probed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied: list[tuple[Plan, StageContext]] = []
    probed: list[str] = []

    def copy(plan: Plan, context: StageContext, engine: Engine, started_uri: str) -> Copied:
        copied.append((plan, context))
        context.copying.mirror()
        return Copied(1, 5, 0, {}, sum_requests([]), sum_requests([]))

    class Probed:
        def __init__(self, properties: object, location: str) -> None:
            self.location = location

        def __call__(self) -> object:
            probed.append(self.location)
            return LOCAL

    monkeypatch.setattr(copying, "copy_objects", copy)
    monkeypatch.setattr(copying, "ProbedAbilities", Probed)
    monkeypatch.setattr(PackSegments, "write", lambda *_: iter(()))
    arguments: Sequence[str] = [fields(store("from"), store("to"), store("probed")), "tiny", "5"]
    assert copying.main(list(arguments)) == 0
    assert len(copied) == 1
    assert probed == ["s3://probed"]
    assert int(capsys.readouterr().out) > Path("/proc/self/statm").stat().st_size

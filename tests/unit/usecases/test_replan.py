"""When a file is gone: a new plan if the head has moved, as often as allowed, and the error as it is otherwise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakemirror.errors import SourceVanishedError
from lakemirror.model.results import StageResult
from lakemirror.replicate.detect import Unchanged
from lakemirror.replicate.stage import Engine, LocalEngine
from lakemirror.usecases import replan
from lakemirror.usecases.mirror import MirrorRun


def gone() -> SourceVanishedError:
    return SourceVanishedError("copy", "s3://lake/f", "the source file is gone", "run again")


class Lease:
    """Notes for which plans it is held."""

    def __init__(self) -> None:
        self.plans: list[str] = []

    @contextmanager
    def whole_run(self, plan_id: str) -> Iterator[None]:
        self.plans.append(plan_id)
        yield

    def go_on(self, plan_id: str) -> None:
        self.plans.append(plan_id)


class Run:
    """A run whose source's head moves at every look; attempts fail as long as told."""

    def __init__(self, *, failures: int, max_replans: int = 2, moves: bool = True, is_unchanged: bool = False) -> None:
        self.knobs = SimpleNamespace(max_replans=max_replans, source_pin_seconds=None)
        self.layout = SimpleNamespace(plan=lambda plan_id: f"mirror/_plan/{plan_id}")
        self.table = "db.t"
        self.lease = Lease()
        self.tried: list[str] = []
        self._failures, self._moves, self._is_unchanged = failures, moves, is_unchanged
        self._looks = 0

    def change(self, number: int) -> Any:
        return SimpleNamespace(plan_id=f"p{number}", source_metadata_location=f"s3://lake/v{number}.json", head=number)

    def detect(self, target: int | None) -> Any:
        self._looks += 1
        if self._is_unchanged:
            return object.__new__(Unchanged)
        return self.change(self._looks if self._moves else 0)

    def target_of(self, plan_uri: str) -> int | None:
        return None

    def unchanged(self, found: Unchanged) -> str:
        return "unchanged"

    def _attempt(self, what: str) -> str:
        self.tried.append(what)
        if len(self.tried) <= self._failures:
            raise gone()
        return f"done {what}"

    def run(self, found: Any, engine: Engine | None, *, full_verify: bool) -> str:
        return self._attempt(found.plan_id)

    def pinned_plan(self, plan_uri: str, source_name: str) -> tuple[str, str]:
        return plan_uri, source_name

    def plan_once(self, plan_uri: str, source_name: str, engine: Engine) -> Any:
        self._attempt(f"plan {plan_uri} of {source_name}")
        return SimpleNamespace(plan_uri=plan_uri)


def mirrored(run: Run) -> Any:
    return replan.mirror(cast(MirrorRun, run), run.change(0), None, full_verify=False)


def test_a_head_that_moved_is_planned_anew_in_the_same_run() -> None:
    run = Run(failures=2)

    assert mirrored(run) == "done p2"
    assert run.tried == ["p0", "p1", "p2"]
    assert run.lease.plans == ["p0", "p1", "p2"], "the lease names the plan in flight"


def test_only_so_often() -> None:
    run = Run(failures=9)

    with pytest.raises(SourceVanishedError) as caught:
        mirrored(run)

    assert caught.value.__notes__ == ["gave up after 2 new plans (max_replans)"]
    assert run.tried == ["p0", "p1", "p2"]


def test_a_head_that_still_names_the_file_is_a_broken_table() -> None:
    run = Run(failures=9, moves=False)

    with pytest.raises(SourceVanishedError) as caught:
        mirrored(run)

    assert caught.value.__notes__ == ["the source's head names it still: no new plan could do without it"]
    assert run.tried == ["p0"]


def test_a_source_that_went_back_to_what_is_mirrored_needs_nothing() -> None:
    assert mirrored(Run(failures=1, is_unchanged=True)) == "unchanged"


def test_a_plan_that_cannot_be_made_is_made_of_the_head() -> None:
    run = Run(failures=1)

    made = replan.plan(cast(MirrorRun, run), "mirror/_plan/p0", "s3://lake/v0.json", LocalEngine())

    assert made.plan_uri == "mirror/_plan/p1"
    assert run.tried[-1] == "plan mirror/_plan/p1 of s3://lake/v1.json"


def test_a_later_stage_repeats_the_earlier_ones_for_the_new_plan() -> None:
    run = Run(failures=0)
    told: list[str] = []

    def step(name: str, *, fails_at: str = "") -> Callable[[str, Engine], StageResult]:
        def work(plan_uri: str, engine: Engine) -> StageResult:
            told.append(f"{name} {plan_uri}")
            if plan_uri.endswith(fails_at or "never"):
                raise gone()
            return cast(StageResult, f"{name} done")

        return work

    steps = (step("copy"), step("rewrite", fails_at="p0"))

    assert replan.stage(cast(MirrorRun, run), "mirror/_plan/p0", LocalEngine(), steps) == "rewrite done"
    assert told == ["rewrite mirror/_plan/p0", "copy mirror/_plan/p1", "rewrite mirror/_plan/p1"]
    assert run.tried == ["plan mirror/_plan/p1 of s3://lake/v1.json"]


def test_a_stage_and_the_plans_made_for_it_are_counted_together() -> None:
    run = Run(failures=0)
    made: list[str] = []

    def fails_at_times(plan_uri: str, source_name: str, engine: Engine) -> Any:
        made.append(plan_uri)
        if len(made) % 2:
            raise gone()
        return SimpleNamespace(plan_uri=plan_uri)

    def copy(plan_uri: str, engine: Engine) -> StageResult:
        raise gone()

    run.plan_once = fails_at_times  # type: ignore[method-assign]
    with pytest.raises(SourceVanishedError) as caught:
        replan.stage(cast(MirrorRun, run), "mirror/_plan/p0", LocalEngine(), (copy,))

    assert caught.value.__notes__ == ["gave up after 2 new plans (max_replans)"]
    assert made == ["mirror/_plan/p1", "mirror/_plan/p2"]
    assert run.lease.plans == ["p1", "p2"]

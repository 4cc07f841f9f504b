"""Random histories of a table made by hand: a few with a new seed in each run.

The same again: `make test T=tests/integration/test_random_histories.py PYTEST_ARGS="--history-seed=123"`. For hours:
`make soak`.
"""

from __future__ import annotations

import pytest

from lakemirror.formats.iceberg import metadata_json
from tests.histories.machine import HistoryMachine, run
from tests.histories.shortening import replay

pytestmark = pytest.mark.integration


@pytest.mark.timeout(600)  # a failure is shortened, which takes a while
def test_a_mirror_follows_any_history(history_seed: int) -> None:
    run(history_seed)


def test_a_mirror_that_forgets_tags_is_found_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    refs = metadata_json._refs

    def forgetful(*args: object) -> metadata_json.Json:
        return {name: ref for name, ref in refs(*args).items() if ref["type"] == "branch"}  # type: ignore[arg-type]

    monkeypatch.setattr(metadata_json, "_refs", forgetful)
    with pytest.raises(AssertionError) as caught:
        run(1)
    (told,) = (note for note in caught.value.__notes__ if note.startswith("The same in "))
    assert int(told.split()[3]) <= 4
    assert "'name_a_snapshot'" in told
    monkeypatch.undo()
    replay(HistoryMachine.trace)

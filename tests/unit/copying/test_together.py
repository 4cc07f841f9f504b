"""Of several failures the one to tell, however they came together."""

from __future__ import annotations

from itertools import permutations

import pytest

from lakemirror.copying.together import weightiest
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError

BUG = ValueError("not ours")
STOP = PermanentError("copy", "s3://b/a", "another object lies under this key")
GONE = SourceVanishedError("copy", "s3://b/b", "the source file is gone")
PASSING = TransientError("copy", "s3://b/c", "503")
BY_WEIGHT = [BUG, STOP, GONE, PASSING]


@pytest.mark.parametrize("first", range(len(BY_WEIGHT)))
def test_the_weightiest_is_told_wherever_it_stands(first: int) -> None:
    for errors in permutations(BY_WEIGHT[first:]):
        assert weightiest(errors) is BY_WEIGHT[first]
        assert weightiest([errors[0], BaseExceptionGroup("", errors)]) is BY_WEIGHT[first]

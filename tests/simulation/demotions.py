"""What was demoted and when, who brought it back, and what the world took away: as seen from outside.

A version is back only by the record that whoever restores writes. What a run puts late, with equal bytes or others, is
none, whatever the code under test makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

RESTORER = "reconciler"


@dataclass(frozen=True)
class Begun:
    """What was there to be seen when a run began, and when that was."""

    moment: int = 0
    dropped: int = 0
    is_foreign: bool = False  # whether the mirror's head was somebody else's


class Demotions:
    """`moment` counts whatever changes; `since` says of each version that is demoted when that came to be."""

    def __init__(self) -> None:
        self.moment = 0
        self.ever: set[int] = set()
        self.since: dict[int, int] = {}
        self.unready: dict[int, int] = {}  # when its ready marker was last deleted

    def demoted(self, number: int) -> None:
        self.ever.add(number)
        self.since.setdefault(number, self.moment)

    def restored(self, number: int, by: str) -> None:
        """The ready marker with its own bytes and the record are there; `by` is whoever wrote the last of them."""
        if by == RESTORER:
            self.since.pop(number, None)

    def is_known(self, number: int, begun: Begun) -> bool:
        """Whether it is demoted, and was when this run began."""
        return number in self.since and self.since[number] < begun.moment


class Damage:
    """Objects of published versions that are lost. It is known from the moment that somebody demotes because of it.

    `reason` is the version that is about to be demoted, with all that builds on it.
    """

    def __init__(self) -> None:
        self.lost: dict[str, bytes] = {}
        self.reason = 0
        self._of: dict[str, int] = {}  # the version that was found to lack it
        self._known: dict[str, int] = {}

    def lose(
        self,
        number: int,
        closures: Mapping[int, frozenset[str]],
        objects: dict[str, bytes],
        choose: Callable[[int], int],
    ) -> str | None:
        """Take a data file away that this version, and none before it, brought; None if there is none."""
        before = {uri for one, closure in closures.items() if one < number for uri in closure}
        found = sorted(closures.get(number, frozenset()) - before)
        found = [uri for uri in found if "/data/" in uri and uri in objects]
        if not found:
            return None
        uri = found[choose(len(found))]
        self.lost[uri], self._of[uri] = objects.pop(uri), number
        return uri

    def lacks(self, closure: frozenset[str], objects: Mapping[str, bytes]) -> bool:
        """Whether something of it was lost and is not back."""
        return any(uri in closure and uri not in objects for uri in self.lost)

    def notice(self, objects: Mapping[str, bytes], moment: int) -> None:
        for uri in self.lost:
            if self._of[uri] == self.reason and uri not in objects:
                self._known.setdefault(uri, moment)

    def known_before(self, closure: frozenset[str], objects: Mapping[str, bytes], begun: Begun) -> str | None:
        """Something of it that is lost, and was known to be when this run began."""
        found = (uri for uri, moment in self._known.items() if moment < begun.moment)
        return next((uri for uri in found if uri in closure and uri not in objects), None)

    def heal(self, objects: dict[str, bytes], closure: frozenset[str] | None = None) -> None:
        """What is still lost, of all or of this, is copied in place, as an operator does who is told of it.

        Readers may see it, and the ledger of a plan in flight may say that it is there.
        """
        objects.update(
            {uri: data for uri, data in self.lost.items() if uri not in objects and (closure is None or uri in closure)}
        )

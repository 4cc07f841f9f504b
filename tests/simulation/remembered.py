"""Makes the real stages of the replicator fast: what they did once, given the same answers, they do again.

Planning, copying, rewriting and verifying are deterministic: which request comes next follows from the answers to the
requests before. So every run of a stage is written into a tree of requests and answers. The next time the tree is
walked: each request is really made (with its effect, its faults, and other actors in between), only the computing
between two requests is spared. At an answer that was never seen at that place the stage itself runs: it gets the
answers that there were so far, must make the very same requests (else the simulation stops: the code is not
deterministic), and goes on for real.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenlet import getcurrent

from lakemirror.errors import LakemirrorError
from tests.simulation.world import Actor, Request, Violation

T = TypeVar("T")
Perform = Callable[[Request], Any]
KeyOf = Callable[[Request, Any], Hashable]
NODES_AT_MOST = 400_000


@dataclass(slots=True)
class Node:
    request: Request | None = None
    end: tuple[bool, Any] | None = None  # whether it ended well, and with what
    then: dict[Hashable, Node] = field(default_factory=dict)


@dataclass
class Memory:
    """The trees of all stages that ran in this process; `is_off` runs everything for real."""

    key_of: KeyOf
    is_off: bool = False
    trees: dict[Hashable, Node] = field(default_factory=dict)
    nodes: int = 0
    walked: int = 0
    ran: int = 0

    def grown(self) -> Node:
        self.nodes += 1
        return Node()

    def forget(self) -> None:
        self.trees.clear()
        self.nodes = 0

    def root(self, key: Hashable) -> Node:
        if self.nodes > NODES_AT_MOST:
            self.forget()
        node = self.trees.get(key)
        if node is None:
            node = self.trees[key] = self.grown()
        return node


class Stages:
    """One actor's way through the memory: `perform` is what its faces call."""

    def __init__(self, memory: Memory, actor: Actor, make: Perform) -> None:
        self._memory, self._actor, self._make = memory, actor, make
        self._run: _Run | None = None

    def perform(self, request: Request) -> Any:
        """A thread beside the stage is no part of it."""
        is_beside = self._run is None or getcurrent().actor is not self._actor
        return self._make(request) if is_beside or self._run is None else self._run.perform(request)

    def stage(self, key: Hashable, work: Callable[[], T]) -> T:
        memory = self._memory
        if memory.is_off or self._run is not None:
            return work()
        root = node = memory.root(key)
        answers: list[tuple[bool, Any]] = []
        while node.request is not None:
            answer = _answered(self._make, node.request)
            answers.append(answer)
            key_of = memory.key_of(node.request, answer[1])
            after = node.then.get(key_of)
            if after is None:
                after = node.then[key_of] = memory.grown()
            node = after
        if node.end is not None:
            memory.walked += 1
            is_well, found = node.end
            if is_well:
                return found  # type: ignore[no-any-return]
            raise copy(found)
        return self._for_real(root, answers, work)

    def _for_real(self, root: Node, answers: list[tuple[bool, Any]], work: Callable[[], T]) -> T:
        self._memory.ran += 1
        run = self._run = _Run(self._memory, self._make, root, answers)
        try:
            found = work()
        except LakemirrorError as err:
            run.node.end = False, copy(err)  # what was raised holds on to all that was at work
            raise
        else:
            run.node.end = True, found
            return found
        finally:
            self._run = None


class _Run:
    """A stage at work: first it gets the answers that are known, then real ones."""

    def __init__(self, memory: Memory, make: Perform, root: Node, answers: list[tuple[bool, Any]]) -> None:
        self._memory, self._make, self.node = memory, make, root
        self._known, self._place = answers, 0

    def perform(self, request: Request) -> Any:
        if self.node.request is None:
            self.node.request = request
        elif self.node.request != request:
            raise Violation(f"not deterministic: asked for {self.node.request!r} before, for {request!r} now")
        if self._place < len(self._known):
            answer = self._known[self._place]
            self._place += 1
        else:
            answer = _answered(self._make, request)
        key = self._memory.key_of(request, answer[1])
        after = self.node.then.get(key)
        if after is None:
            after = self.node.then[key] = self._memory.grown()
        self.node = after
        is_well, found = answer
        if is_well:
            return found
        raise copy(found)  # what is raised holds on to all that is at work, this run and its answers included


def _answered(make: Perform, request: Request) -> tuple[bool, Any]:
    try:
        return True, make(request)
    except LakemirrorError as err:
        return False, err.with_traceback(None)  # which holds on to whoever asked

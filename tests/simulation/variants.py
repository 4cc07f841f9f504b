"""Deliberately broken variants of the protocol. Each must be caught; if one is not, the simulation is blind to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from lakemirror import bridge
from lakemirror.app import App
from lakemirror.catalogs import rest_commits, sql, structure, updates
from lakemirror.catalogs.rest_commits import RestCommits
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.follow import follower, groups
from lakemirror.formats.iceberg import avro, metadata_json
from lakemirror.replicate import detect, fence, pipeline
from lakemirror.replicate.transfer import Copied
from lakemirror.storage.port import Overwrite
from lakemirror.storage.wrappers.retry import RetryingStore
from lakemirror.usecases import drop, mirror, stages
from lakemirror.usecases.mirror import MirrorRun
from tests.simulation.mutations import broken, replaced

Variant = Callable[[], AbstractContextManager[None]]


@contextmanager
def ready_before_copied() -> Iterator[None]:
    """The files come after the marker that says that they are there."""
    late: list[Callable[[], Any]] = []
    copy, publish = mirror.copy_objects, MirrorRun.put_marker

    def later(*arguments: Any) -> Copied:
        late.append(lambda: copy(*arguments))
        return Copied(0, 0, 0, {}, {}, {})

    def publish_first(run: MirrorRun, *arguments: Any, **named: Any) -> Any:
        mine, late[:] = late[:], []
        marker = publish(run, *arguments, **named)
        for work in mine:
            work()
        return marker

    with (
        patch.object(mirror, "copy_objects", later),
        patch.object(stages, "copy_objects", later),
        patch.object(MirrorRun, "put_marker", publish_first),
        patch.object(pipeline, "verify_l0", lambda *arguments: 0),
    ):
        yield


def plain_put() -> AbstractContextManager[None]:
    """The ready marker is written whatever is there."""
    old = "store.put(uri, data, Create())"
    return replaced(bridge, "publish", old, "store.put(uri, data, Overwrite())", Overwrite=Overwrite)


def ordinal_reused() -> AbstractContextManager[None]:
    """The next ordinal is counted from what is ready: one that was demoted is taken again."""
    old = "max((0, *(version for kind in by_kind.values() for version in kind)))"
    return replaced(bridge, "published", old, "max((0, *back))")


def blind_retry() -> AbstractContextManager[None]:
    """A write that got no answer is made again, without its condition."""
    old = "self._inner.put(uri, body, condition), failures)"
    new = "self._inner.put(uri, body, Overwrite() if failures else condition), failures)"
    return replaced(RetryingStore, "put", old, new, Overwrite=Overwrite)


def no_version_check() -> AbstractContextManager[None]:
    """The follower commits what it has listed, also where the mirror is further."""
    return replaced(follower, "follow", "shown >= marker.version", "shown == marker.version")


def source_asked_first() -> AbstractContextManager[None]:
    """The head of the source may then be older than what the markers say."""
    old = """chain = _read_chain(sides, layout)
    return _step_to(table, layout, sides, policy, chain, sides.catalog.head(table), target_snapshot_id)"""
    new = """head = sides.catalog.head(table)
    return _step_to(table, layout, sides, policy, _read_chain(sides, layout), head, target_snapshot_id)"""
    return patch.object(mirror, "detect", broken(detect, "detect", old, new))


def pointer_moved_blindly() -> AbstractContextManager[None]:
    """A move of the catalog's pointer that got no answer is made again after a pause, wherever the pointer is."""
    old = "self._settle(table, expected, metadata_uri, err)\n        return"
    new = """self._perform(("sleep", 20.0))
        with self._connection("commit", str(table)) as connection:
            connection.execute(_BLIND, values)
        return"""
    return replaced(SqlCatalog, "swap", old, new, _BLIND=sql._SWAP.removesuffix(" AND metadata_location = :old"))


def updates_sent_blindly() -> AbstractContextManager[None]:
    """After a commit to a REST catalog that got no answer, and a pause, that version is put over whatever is there."""
    old = "now = self._load(table)"
    new = """self._client._sleep(20.0)
        now = self._load(table)
        if now is not None and now.metadata is not None and not _shows(now, new):
            self._post(table, commit_of(now.metadata, new.metadata).as_json())
            return"""
    return replaced(RestCommits, "_settle", old, new)


@contextmanager
def silence_is_success() -> Iterator[None]:
    """A commit that got no answer is told as done, and nobody looks."""
    looked = "_read_back(table, layout, catalog, store, marker, head, follows_drop=new.follows_drop)"
    told = "Head(MirrorHead(marker.metadata_uri), marker.version, marker.snapshot_id, marker.epoch)"
    with (
        replaced(SqlCatalog, "_settle", "now = self.head(table)", "return"),
        replaced(RestCommits, "_settle", "now = self._load(table)", "return"),
        replaced(follower, "follow", looked, told),
    ):
        yield


def built_on_demoted() -> AbstractContextManager[None]:
    """A ready marker counts whatever became of the one that it builds on."""
    return replaced(bridge, "published", "_builds_on(store, layout, back[-1], gone, dropped)", "False")


@contextmanager
def late_is_back() -> Iterator[None]:
    """A ready marker beside a demoted one counts if it has the same bytes, whoever put it."""
    old = "return is_same and _find(store, layout.restored(version)) is not None"
    with (
        replaced(bridge, "published", 'demoted.difference(by_kind["restored"])', "frozenset()"),
        replaced(bridge, "is_back", old, "return is_same"),
    ):
        yield


def late_built_on() -> AbstractContextManager[None]:
    """Whoever reads the newest marker does not ask whether it is the one that was listed."""
    return replaced(bridge, "refuse_late", "if newest.is_as_listed:", "if True:")


def gaps_left() -> AbstractContextManager[None]:
    """What a version leaves out, because it builds on something demoted, is not demoted before it is published."""
    return replaced(bridge, "take_back_between", "if version == (parent or 0) + 1:", "if True:")


def demoted_at_once() -> AbstractContextManager[None]:
    """Whoever demotes does not look whether a follower was faster."""
    return replaced(bridge, "demote", "if head is None or head < version:", "if True:")


def foreign_not_judged() -> AbstractContextManager[None]:
    """The follower goes over whatever the catalog shows."""
    return replaced(follower, "follow", "if head is not None and head.version is None:", "if False:")


def foreign_dropped() -> AbstractContextManager[None]:
    """A mirror is dropped whoever wrote its head."""
    old = "if head is not None and head.version is None and not overwrite_foreign:"
    return replaced(drop, "drop_mirror", old, "if False:")


def noted_too_late() -> AbstractContextManager[None]:
    """What is current is noted as of when it is written, not as of when the source was asked."""
    old = "self._asked_at - timedelta(seconds=self.knobs.clock_skew_seconds)"
    return replaced(MirrorRun, "note_current", old, "self.now() + timedelta(seconds=60)")


def noted_of_any() -> AbstractContextManager[None]:
    """A note counts for whatever version readers see."""
    old = "current is not None and current.version == shown.version"
    return replaced(groups, "reached", old, "current is not None")


def token_kept() -> AbstractContextManager[None]:
    """Whoever takes over a lease goes on under its token."""
    return replaced(fence.Fence, "acquire", "else found[0].token) + 1", "else found[0].token - 1) + 1")


def swapped_without_lease() -> AbstractContextManager[None]:
    """Whoever looks at the head last may swap it as a whole."""
    old = "self._lease_of(table)"
    return replaced(RestCommits, "_swap", old, "nullcontext(NoFence())", nullcontext=nullcontext, NoFence=fence.NoFence)


def swapped_again_blindly() -> AbstractContextManager[None]:
    """A whole swap that was throttled is sent again, whatever has come meanwhile."""
    old = 'partial(self._look_again, "commit", table, expected, turn)'
    return replaced(RestCommits, "_alone", old, "lambda: None")


def swapped_when_over() -> AbstractContextManager[None]:
    """Whoever slept when he had looked goes on, though his lease has ended."""
    return replaced(rest_commits, "_refuse", "turn.is_over()", "False")


def dropped_again_blindly() -> AbstractContextManager[None]:
    """A drop that was throttled is sent again, whatever has come meanwhile."""
    old = 'partial(self._look_again, "drop", table, expected, turn)'
    return replaced(RestCommits, "drop", old, "lambda: None")


def dropped_without_lease() -> AbstractContextManager[None]:
    """Whoever looks at the head last may drop it, whenever that arrives."""
    return replaced(RestCommits, "drop", "self._lease_of(table)", "None")


def committed_after_drop() -> AbstractContextManager[None]:
    """The first commit after a drop is made while that may still be on its way."""
    return replaced(RestCommits, "commit", "if new.follows_drop else None", "if False else None")


def told_after_drop() -> AbstractContextManager[None]:
    """A group promises a table that is gone, until it is told."""
    return replaced(App, "drop_mirror", "grouping.record_drop(store, location, table, self._now())", "pass")


def lowered_too_late() -> AbstractContextManager[None]:
    """The watermark goes back when readers see less already."""
    return replaced(App, "follow", "before_commit=partial(self._announce_in_group, table),", "")


def raised_though_announced() -> AbstractContextManager[None]:
    """Whoever has seen the version before says more of it, though another one is about to be shown."""
    return replaced(groups, "record", "before.coming.get(table, 0)", "0")


def dropped_counts() -> AbstractContextManager[None]:
    """What was published before a drop is published still."""
    old = "if version > dropped and version not in late"
    return replaced(bridge, "published", old, "if version not in late")


def number_falls() -> AbstractContextManager[None]:
    """What is registered has the same number in every version: commits that were sent before a drop name it, too."""
    return replaced(metadata_json, "for_mirror", 'source["last-column-id"] + lift', 'source["last-column-id"]')


def left_where_they_are() -> AbstractContextManager[None]:
    """A run has nothing to do though a version was demoted that readers may have seen."""
    return replaced(detect, "_step_to", "newest if chain.ordinals.is_newest_last else None", "newest")


def unguarded() -> AbstractContextManager[None]:
    """A commit that brings no new head to a REST catalog moves no number that requirements can name."""
    old = "is_guarded = may_guard and not _has_new_head(old, new)"
    return patch.object(rest_commits, "commit_of", broken(updates, "commit_of", old, "is_guarded = False"))


def packed_by_chance() -> AbstractContextManager[None]:
    """What is rewritten holds the same records each time, and not the same bytes."""
    new = "(*blocks, *(Block(0, b'') for _ in range(random.randrange(2))))"
    return replaced(avro, "assembled", "in blocks", f"in {new}", random=random)


def spec_left() -> AbstractContextManager[None]:
    """A REST catalog goes on with the partition spec that it had."""
    old = 'old.get("default-spec-id") != new.get("default-spec-id")'
    return replaced(structure, "_specs", old, "False")


@dataclass(frozen=True)
class Broken:
    """One place broken, and the invariants (of `watch`) that this breaks."""

    made: Variant
    breaks: frozenset[str]
    kind: str = ""
    """The schedules (of `scene.KINDS`) that it is looked for in; empty: ordinary ones."""
    first: int = 0
    """The seed from which it is looked for. One that hundreds of schedules survive begins shortly before the one that
    is known to catch it: as long as that is so, nobody need wait for it; afterwards the search goes on."""


def _of(made: Variant, *breaks: int | str, kind: str = "", first: int = 0) -> Broken:
    return Broken(made, frozenset(map(str, breaks)), kind, first)


BROKEN: dict[str, Broken] = {
    "ready before the copy has finished": _of(ready_before_copied, 2),
    "plain put instead of create-only": _of(plain_put, 2, 3),
    "an ordinal reused after demotion": _of(ordinal_reused, 3, first=2),
    "blind retry after a timeout": _of(blind_retry, 2, 3, 6),
    "follower that skips the version check": _of(no_version_check, 4),
    "source asked before the markers": _of(source_asked_first, 4, first=1_440),
    "blind retry of a commit by pointer": _of(pointer_moved_blindly, 4, kind="pointers"),
    "blind retry of a commit by updates": _of(updates_sent_blindly, 1, 4, kind="updates"),
    "a commit without an answer taken for done": _of(silence_is_success, 8),
    "a version counts though its parent was demoted": _of(built_on_demoted, 1, 8, 9, 10, kind="markers"),
    "a ready marker beside a demoted one always counts": _of(late_is_back, 1, 8, 9, 10, kind="markers"),
    "a marker that came late is built on": _of(late_built_on, 1, 5, 8, kind="markers", first=440),
    "gaps of the chain are left without a record": _of(gaps_left, 5),
    "demoting without a second look": _of(demoted_at_once, 8),
    "a foreign head is gone over": _of(foreign_not_judged, 12, first=220),
    "a foreign head is dropped": _of(foreign_dropped, 12, first=1_540),
    "what is current is noted too late": _of(noted_too_late, 11, kind="groups"),
    "a note of any version counts": _of(noted_of_any, 11, kind="groups"),
    "the watermark is lowered after the commit": _of(lowered_too_late, 11, kind="groups", first=250),
    "an entry is raised though a newer version is announced": _of(
        raised_though_announced, 11, kind="announced", first=8_670
    ),
    "commits of properties without a guard": _of(unguarded, 1, 4, kind="guards"),
    "a partition spec that no update sets": _of(spec_left, 1, kind="guards"),
    "a lease taken over under its token": _of(token_kept, 6),
    "a whole swap without the lease": _of(swapped_without_lease, 1, 4, kind="swaps"),
    "a throttled swap sent again without a look": _of(swapped_again_blindly, 1, 4, kind="throttled", first=530),
    "a throttled drop sent again without a look": _of(dropped_again_blindly, 4, kind="throttled", first=1_280),
    "a swap when the lease has ended": _of(swapped_when_over, 1, 4, kind="throttled", first=1_260),
    "a drop without the lease": _of(dropped_without_lease, 4, kind="dropped"),
    "a commit after a drop without the lease": _of(committed_after_drop, 4, kind="dropped"),
    "a group that is told of a drop when the table is gone": _of(told_after_drop, 11, kind="dropped"),
    "dropped versions count": _of(dropped_counts, 4, 9),
    "a number that falls with a drop": _of(number_falls, 1, 4, kind="dropped", first=1_190),
    "bytes that differ from run to run": _of(packed_by_chance, 13, "not deterministic"),
    "nothing to do after a demotion": _of(left_where_they_are, 9, kind="undone"),
}

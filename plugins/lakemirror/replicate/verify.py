"""L0: before a version is published, look at what was copied and written, by the ledger and the store, never by trust.

Existence and size of a sample of copied files, rewritten delete files and new manifests, and the CRC32C of as many of
them as a budget of bytes allows; every new manifest list, the index and the metadata to the byte. `full` looks at
every file and reads every byte. What this very process wrote, and its store proved to have, is otherwise asked for by
HEAD: the same e_tag is the same bytes (`storage.wrappers.own_writes`). A file that its store copied by itself, telling
no sum of it, is looked at for its size only: there is nothing to compare its bytes with.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakemirror.errors import PermanentError, VerificationError
from lakemirror.replicate import index as indexes
from lakemirror.replicate.assemble import Assembled
from lakemirror.replicate.change import Change
from lakemirror.replicate.ledger import Item, Ledgers, ledger_folder, read_ledger
from lakemirror.replicate.plan import Plan
from lakemirror.storage.checksum import checksum_of
from lakemirror.storage.port import ObjectNotFound, ObjectStore

CRC_BUDGET_BYTES = 64 * 1024 * 1024
SEGMENTS_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Sampling:
    """`clamp(ceil(n * p), k_min, k_max)`, or everything."""

    p: float
    k_min: int
    k_max: int
    concurrency: int
    full: bool = False

    def count(self, total: int) -> int:
        return total if self.full else min(total, max(self.k_min, min(self.k_max, math.ceil(total * self.p))))


def verify_l0(
    store: ObjectStore,
    change: Change,
    plan: Plan,
    assembled: Assembled,
    ledger_uri: str,
    sampling: Sampling,
    ledgers: Ledgers | None = None,
) -> int:
    """Raises VerificationError at the first thing that is wrong; gives the number of objects looked at."""
    looked = 0
    with ThreadPoolExecutor(max_workers=sampling.concurrency) as pool:
        budget = _Budget(sampling)
        again = f"delete {ledger_uri} and run again: what is missing is copied anew"
        for role in ("delete", "copy", "split"):
            for files in _samples(store, plan, role, ledger_uri, sampling, ledgers or {}):
                looked += _look(store, pool, budget, files, again)
        looked += _look(store, pool, budget, _new_manifests(store, change, assembled, sampling))
        lists = [{"target": uri, "size": length, "crc32c": crc32c} for uri, length, crc32c in assembled.lists]
        list(pool.map(lambda item: _check_bytes(store, item), lists))
    if hashlib.sha256(_get(store, assembled.metadata_uri)).hexdigest() != assembled.metadata_sha256:
        raise VerificationError("verify", assembled.metadata_uri, "its hash does not fit", "run again")
    return looked + len(assembled.lists) + 2


class _Budget:
    """How many bytes may still be read back; without an end if everything is to be read."""

    def __init__(self, sampling: Sampling) -> None:
        self._left = math.inf if sampling.full else float(CRC_BUDGET_BYTES)

    def allows(self, item: Item) -> bool:
        if item["crc32c"] is None or item["size"] > self._left:
            return False
        self._left -= item["size"]
        return True


def _look(
    store: ObjectStore, pool: ThreadPoolExecutor, budget: _Budget, files: list[Item], hint: str = "run again"
) -> int:
    """What is read back needs no look at its size before."""
    is_read = {item["target"]: budget.allows(item) for item in files}

    def check(item: Item) -> None:
        if is_read[item["target"]]:
            _check_bytes(store, item, hint)
        else:
            _check_size(item, _head(store, item["target"], hint))

    list(pool.map(check, files))
    return len(files)


def _new_manifests(store: ObjectStore, change: Change, assembled: Assembled, sampling: Sampling) -> list[Item]:
    """Rows of the index, which the next run will build on: its hash is checked on the way."""
    try:
        index = indexes.load(store, assembled.index_uri, assembled.index_sha256)
    except PermanentError as err:
        raise VerificationError(
            "verify", assembled.index_uri, f"the index is not as written ({err})", "run again"
        ) from err
    added = set(change.rows("added")["target"].to_pylist())
    rows = [{**row, "size": row["target_length"]} for row in index.manifests.to_pylist() if row["target"] in added]
    return sorted(rows, key=_spread)[: sampling.count(len(rows))]


def _samples(
    store: ObjectStore, plan: Plan, role: str, ledger_uri: str, sampling: Sampling, ledgers: Ledgers
) -> Iterator[list[Item]]:
    """Rows of the ledger, some of each of a few segments spread over the plan, or all of all.

    The ledger of a segment must hold all that was planned for it.
    """
    segments = plan.of(role)
    if not sampling.full:
        segments = tuple(sorted(segments, key=lambda segment: _spread({"target": segment.uri})))[:SEGMENTS_LOOKED_AT]
    wanted = sampling.count(sum(segment.files for segment in plan.of(role)))
    for number, segment in enumerate(segments):
        found = read_ledger(store, ledger_folder(ledger_uri, segment.uri), parts=ledgers.get(segment.uri))
        rows = {row["target"]: row for row in found}
        if len(rows) != segment.files:
            raise VerificationError(
                "verify",
                segment.uri,
                f"the ledger does not hold all files (want {segment.files}, got {len(rows)})",
                "run again",
            )
        share = math.ceil(wanted / (len(segments) - number))
        sample = sorted(rows.values(), key=_spread)[:share]
        wanted -= len(sample)
        yield sample


def _spread(item: Item) -> bytes:
    """A fixed order that has nothing to do with names, so that a sample is spread over the table."""
    return hashlib.sha256(item["target"].encode()).digest()


def _head(store: ObjectStore, uri: str, hint: str = "run again") -> int:
    try:
        return store.head(uri).size_bytes
    except ObjectNotFound as err:
        raise VerificationError("verify", uri, "it is not in the mirror", hint) from err


def _get(store: ObjectStore, uri: str) -> bytes:
    try:
        return store.get(uri).data
    except ObjectNotFound as err:
        raise VerificationError("verify", uri, "it is not in the mirror", "run again") from err


def _check_size(item: Item, got: int) -> None:
    if got != item["size"]:
        why = f"its size is wrong (want {item['size']}, got {got})"
        raise VerificationError("verify", item["target"], why, "find out who altered it")


def _check_bytes(store: ObjectStore, item: Item, hint: str = "run again") -> None:
    try:
        got = checksum_of(store, item["target"])
    except ObjectNotFound as err:
        raise VerificationError("verify", item["target"], "it is not in the mirror", hint) from err
    _check_size(item, got.size_bytes)
    if got.crc32c != item["crc32c"]:
        raise VerificationError(
            "verify",
            item["target"],
            f"its crc32c is wrong (want {item['crc32c']:08x}, got {got.crc32c:08x})",
            "it was altered: find out by whom; delete it, and the ledger of this plan, and run again",
        )

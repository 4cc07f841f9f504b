"""L0: before a version is published, look at what was copied, by the ledger and the store, never by trust.

Existence and size of a sample of files, the CRC32C of as many of them as a budget of bytes allows, and every metadata
object of the version. `full` looks at every file and reads every byte.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakemirror.errors import VerificationError
from lakemirror.replicate.assemble import Assembled
from lakemirror.replicate.change import Change
from lakemirror.replicate.copy import Item, ledger_folder, read_ledger
from lakemirror.replicate.plan import Plan
from lakemirror.storage.checksum import checksum_of
from lakemirror.storage.port import ObjectNotFound, ObjectStore

CRC_BUDGET_BYTES = 64 * 1024 * 1024


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
    store: ObjectStore, change: Change, plan: Plan, assembled: Assembled, ledger_uri: str, sampling: Sampling
) -> int:
    """Raises VerificationError at the first thing that is wrong; gives the number of objects looked at."""
    files = _sample(store, plan, ledger_uri, sampling)
    with ThreadPoolExecutor(max_workers=sampling.concurrency) as pool:
        list(pool.map(lambda item: _check_size(store, item["target"], item["size"]), files))
        list(pool.map(lambda item: _check_bytes(store, item), _within_budget(files, sampling)))
    manifests = change.rows("added").to_pylist()
    lists = [change.paths.map(uri) for _, uri in change.new_lists]
    metadata = store.get(assembled.metadata_uri).data
    if hashlib.sha256(metadata).hexdigest() != assembled.metadata_sha256:
        raise VerificationError("verify", assembled.metadata_uri, "its hash does not fit", "run again")
    for uri in [row["target"] for row in manifests[: sampling.count(len(manifests))]] + lists:
        _head(store, uri)
    return len(files) + min(len(manifests), sampling.count(len(manifests))) + len(lists) + 1


def _sample(store: ObjectStore, plan: Plan, ledger_uri: str, sampling: Sampling) -> list[Item]:
    """Rows of the ledger, segment by segment, until there are enough; the ledger must hold all that was planned."""
    wanted = sampling.count(sum(segment.files for segment in plan.of("copy")))
    sample: list[Item] = []
    for segment in plan.of("copy"):
        if len(sample) >= wanted:
            break
        rows = {row["target"]: row for row in read_ledger(store, ledger_folder(ledger_uri, segment.uri))}
        if len(rows) != segment.files:
            raise VerificationError(
                "verify",
                segment.uri,
                f"the ledger does not hold all files (want {segment.files}, got {len(rows)})",
                "run again",
            )
        sample += sorted(rows.values(), key=_spread)[: wanted - len(sample)]
    return sample


def _spread(item: Item) -> bytes:
    """A fixed order that has nothing to do with names, so that a sample is spread over the table."""
    return hashlib.sha256(item["target"].encode()).digest()


def _within_budget(files: list[Item], sampling: Sampling) -> Iterator[Item]:
    left = CRC_BUDGET_BYTES
    for item in files:
        if sampling.full or item["size"] <= left:
            left -= item["size"]
            yield item


def _head(store: ObjectStore, uri: str) -> int:
    try:
        return store.head(uri).size_bytes
    except ObjectNotFound as err:
        raise VerificationError("verify", uri, "it is not in the mirror", "run again") from err


def _check_size(store: ObjectStore, uri: str, want: int) -> None:
    got = _head(store, uri)
    if got != want:
        raise VerificationError("verify", uri, f"its size is wrong (want {want}, got {got})", "find out who altered it")


def _check_bytes(store: ObjectStore, item: Item) -> None:
    got = checksum_of(store, item["target"]).crc32c
    if got != item["crc32c"]:
        raise VerificationError(
            "verify",
            item["target"],
            f"its crc32c is wrong (want {item['crc32c']:08x}, got {got:08x})",
            "it was altered",
        )

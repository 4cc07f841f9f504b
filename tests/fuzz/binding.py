"""A child that throws mutated blocks, hostile arguments and mutated files at the extension that was built for it.

    python -m tests.fuzz.binding FOLDER BLOCKS FILES SEED

Blocks go straight to what Python sees of the extension, each in memory of exactly its size; files go the way that
manifests and lists go through the library. `sanitized.throw` starts it: a read outside a buffer ends it. FOLDER has the
corpus, as `corpus.write` makes it (to make it here would import much, which is slow), and `at`, which says what came
last. The same seed gives the same run.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from tests.fuzz import mutate_bytes

WALKER = "FUZZ_WALKER"  # the variable that says where the extension is
NAME = "lakemirror.formats.iceberg._walk"
RULES = (
    (b"s3://lake/wh/t/cold/", b"gs://cloud/t/_roots/cold/"),
    (b"s3://lake/wh/t/", b"gs://cloud/t/"),
    (b"/lake/", b"file:///mirror/a/longer/place/"),
)
NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 7, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
REFUSALS = (ValueError, TypeError, MemoryError, OverflowError)


@dataclass(frozen=True, slots=True)
class Example:
    code: bytes
    slots: int
    count: int
    data: bytes
    at: tuple[int, ...]  # slots of an entry, as `corpus.places` gives them


def examples(corpus: bytes) -> Iterator[Example]:
    at = 0
    while at < len(corpus):
        slots, count, code_size, data_size, *places = struct.unpack_from("=16q", corpus, at)
        middle = at + 16 * 8 + code_size
        yield Example(corpus[at + 16 * 8 : middle], slots, count, corpus[middle : middle + data_size], tuple(places))
        at = middle + data_size


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(NAME, Path(os.environ[WALKER]))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_in_place(walk: ModuleType) -> None:
    """Of the extension that the library would load."""
    sys.modules[NAME] = walk
    package, _, name = NAME.rpartition(".")
    setattr(importlib.import_module(package), name, walk)


def exactly(data: bytes, rng: Random) -> Any:
    """A buffer with nothing behind its last byte, or one that does not begin where numbers may."""
    whole = (ctypes.c_char * len(data)).from_buffer_copy(data)
    if rng.random() < 0.9:
        return whole
    return memoryview(b"x" + data)[1:]


def throw_block(walk: ModuleType, one: Example, rng: Random) -> bool:
    """One block through all that the extension does; True if it was taken."""
    code, slots, count, data = one.code, one.slots, one.count, one.data
    if rng.random() < 0.1:
        code = mutate_bytes.mutate(code, code, rng)
    if rng.random() < 0.05:
        slots = rng.choice((slots - 1, slots + 1, 0, rng.choice(NUMBERS)))
    if rng.random() < 0.7:
        data = mutate_bytes.mutate(data, data, rng)
    if rng.random() < 0.1:
        count = rng.choice((count + 1, count - 1, 0, rng.choice(NUMBERS)))
    start = 0 if rng.random() < 0.9 else rng.choice((1, len(data), len(data) + 1, rng.choice(NUMBERS)))
    try:
        ranges, _ = walk.Program(exactly(code, rng), slots).walk(exactly(data, rng), start, count)
    except REFUSALS:
        return False
    use(walk, data[start:], ranges, slots, one.at, rng)
    return True


def use(walk: ModuleType, data: bytes, ranges: bytes, slots: int, at: tuple[int, ...], rng: Random) -> None:
    """What was walked is rewritten and read as entries, now and then with places that nobody walked."""
    if rng.random() < 0.2:
        numbers = list(struct.unpack(f"={len(ranges) // 8}q", ranges))
        for _ in range(rng.randrange(4) if numbers else 0):
            numbers[rng.randrange(len(numbers))] = rng.choice((*NUMBERS, len(data), len(data) + 1, len(data) - 1))
        ranges = struct.pack(f"={len(numbers)}q", *numbers)[: len(ranges) - rng.choice((0, 0, 8, 1))]
    refusals: tuple[type[Exception], ...] = REFUSALS
    if rng.random() < 0.1:
        refusals = (*REFUSALS, SystemError)  # a caller that contradicts itself is noticed after measuring
        at = tuple(number if rng.random() < 0.8 else rng.choice((slots, -2, *NUMBERS)) for number in at)
    rules = RULES if rng.random() < 0.9 else rng.choice(((), RULES * 400, ((b"", b""),), ((b"s", b"t" * 70_000),)))
    status, content, size = at[:3]
    key, path, referenced = (at[first : first + 3] for first in (3, 6, 9))
    paths: tuple[tuple[int, ...], ...] = (path, referenced) if referenced[0] >= 0 else (path,)
    paths = paths if rng.random() < 0.95 else paths * rng.choice((0, 2, 9))
    block = (exactly(data, rng), exactly(ranges, rng), slots)
    with contextlib.suppress(*refusals):
        walk.rewrite(*block, paths, rules)
    with contextlib.suppress(*refusals):
        walk.entries(*block, (status, content, size), key, path, referenced, rules)


def throw_file(seed: int, index: int) -> str:
    """A mutated manifest or list through the library's readers and rewriters; what came of it."""
    from tests.fuzz import cases, worker

    answer = worker.run(cases.make_avro(seed, index))
    if answer["outcome"] == "finding":
        print(f"fuzz: {answer['signature']}\n{answer['text']}", file=sys.stderr)
    return str(answer["outcome"])


def main(folder: Path, blocks: int, files: int, seed: int) -> int:
    walk = load()
    known = list(examples((folder / "corpus").read_bytes()))
    note = os.open(folder / "at", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    taken = 0
    for index in range(blocks):
        os.pwrite(note, f"block {index:12d} of seed {seed}\n".encode(), 0)
        rng = Random(f"{seed}:{index}")
        taken += throw_block(walk, rng.choice(known), rng)
    outcomes: Counter[str] = Counter()
    if files:
        put_in_place(walk)
    for index in range(files):
        os.pwrite(note, f"file  {index:12d} of seed {seed}\n".encode(), 0)
        outcomes[throw_file(seed, index)] += 1
    print(f"binding: {blocks} blocks ({taken} taken, {blocks - taken} refused), ", end="")
    print(f"{files} files ({outcomes['taken']} taken, {outcomes['refused']} refused), {outcomes['finding']} findings")
    return 1 if outcomes["finding"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *(int(number) for number in sys.argv[2:5])))

"""JSON made hostile: values of another type, extremes, paths that lead elsewhere, depth, twins, and what is no JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

ELSEWHERE = (
    *("file:///etc/passwd", "/etc/passwd", "file:/etc/passwd", "http://127.0.0.1/x", "https://x/y", "s3://other/x"),
    *("gs://mirror/lake/db/other/x", "relative", "../up", "", "/", "file:///", "s3://", "file://host/x", "://", ".."),
    *("mailto:x", "gs://mirror/lake/db/t/_ready/v9.ready.json", "memory://b/k", "file:///tmp/lakemirror-corpus/../x"),
)
TEXTS = (
    *("", "x", "a\nERROR forged: line", "a\r\x1b[31mb", "\x00", "\ud800", "\u202e", "²", "١٢", "9" * 30, "-1", "1e5"),
    *("9" * 4400, "A" * 50_000, "é" * 300, "{}", "null", "v1", "v" + "9" * 25, "v0", "1_000", " 1"),
)
NUMBERS = (0, -1, 1, 2, 3, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**40, 0.5, 1e308, -0.0, 1.0)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": {}}, [{}], {"type": "struct", "fields": 0})
_RAW = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "01", "'x'", '"\\ud800"', '"\\udfff\\ud800"')
_DEPTHS = (20, 90, 200, 900, 1500, 100_000)
Slot = tuple[Any, Any]


def mutate(document: Any, rng: Random, home: str = "file:///tmp/lakemirror-corpus/v2") -> bytes:
    """The text of a document after one to three changes; the document itself is not changed."""
    tree = json.loads(json.dumps(document))
    raw: dict[str, str] = {}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tree = _change(tree, rng, raw, home)
    try:
        text = json.dumps(tree, ensure_ascii=rng.random() < 0.5)
    except RecursionError:
        text = json.dumps(document)
    for placeholder, instead in raw.items():
        text = text.replace(json.dumps(placeholder), instead)
    if rng.random() < 0.05:
        text = _twin(text, rng)
    return text.encode("utf-8", "surrogatepass")


def slots(tree: Any) -> Iterator[Slot]:
    """Every place of a document, as what holds it and the key there, the outer ones first."""
    level = [tree]
    for _ in range(60):
        below = []
        for part in level:
            for key in list(part) if isinstance(part, dict) else range(len(part)):
                yield part, key
                if isinstance(part[key], dict | list):
                    below.append(part[key])
        level = below


def _change(tree: Any, rng: Random, raw: dict[str, str], home: str) -> Any:
    found = list(slots(tree)) if isinstance(tree, dict | list) else []
    if not found or rng.random() < 0.02:
        return rng.choice((*OTHERS, *NUMBERS, *TEXTS))
    # what lies near the top is what most code looks at
    part, key = found[int(len(found) * rng.random() ** 1.5)]
    rng.choice(_CHANGES)(part, key, rng, raw, home)
    return tree


def text_like(value: str, rng: Random, home: str) -> str:
    """A hostile text for the place of another."""
    ways: tuple[Callable[[], str], ...] = (
        lambda: rng.choice(ELSEWHERE),
        lambda: rng.choice(TEXTS),
        lambda: (
            f"{home}/{rng.choice(('../../etc/passwd', './x', '/x', '_ready/v9.ready.json', 'a' * 5000, '%2e%2e/x'))}"
        ),
        lambda: value.replace("/", "/../", 1),
        lambda: value.replace("file:", rng.choice(("FILE:", "s3:", "http:", "")), 1),
        lambda: value + rng.choice(("\n", "/", "/..", "\x00", "#", "?x")),
        lambda: value[: rng.randrange(len(value) + 1)],
        lambda: value.upper(),
    )
    return rng.choice(ways)()


def _replace(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    part[key] = rng.choice((*OTHERS, *NUMBERS, *TEXTS, *ELSEWHERE))


def _similar(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    """Of the same type, so that it gets further."""
    value = part[key]
    if isinstance(value, str):
        part[key] = text_like(value, rng, home)
    elif isinstance(value, bool):
        part[key] = not value
    elif isinstance(value, int | float):
        part[key] = rng.choice((*NUMBERS, -value, value + 1))
    elif isinstance(value, list):
        part[key] = rng.choice(([], value * 2, value * 300, [*value, None], value[::-1], value[1:]))
    elif isinstance(value, dict):
        part[key] = rng.choice(({}, {**value, "unknown": 1}, {"x": value}, [value]))


def _remove(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    del part[key]


def _rename(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    if isinstance(part, dict):
        part[rng.choice((*TEXTS[:9], "snapshot-id", "location", key + " "))] = part.pop(key)


def _unreadable(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    placeholder = f"@@{len(raw)}@@"
    instead = rng.choice((*_RAW, _deep(rng)))
    raw[placeholder] = instead
    part[key] = placeholder


def _deep(rng: Random) -> str:
    depth = rng.choice(_DEPTHS)
    start, end = rng.choice((("[", "]"), ('{"a":', "}"), ('{"type":"struct","fields":[', "]}")))
    return start * depth + "0" + end * depth


def _swap(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    keys = list(part) if isinstance(part, dict) else range(len(part))
    other = rng.choice(list(keys))
    part[key], part[other] = part[other], part[key]


def _many(part: Any, key: Any, rng: Random, raw: dict[str, str], home: str) -> None:
    count = rng.choice((1000, 20_000))
    if isinstance(part, dict):
        part.update({f"k{number}": part[key] if isinstance(part[key], str) else number for number in range(count)})
    else:
        part += [rng.choice((0, {}, [], "x"))] * count


_CHANGES: tuple[Callable[[Any, Any, Random, dict[str, str], str], None], ...] = (
    *(_replace, _replace, _replace, _similar, _similar, _similar, _similar, _remove, _remove),
    *(_rename, _unreadable, _unreadable, _swap, _many),
)


def _twin(text: str, rng: Random) -> str:
    """The same key twice in the first object."""
    return text.replace("{", '{"location": "file:///etc", "snapshots": 7, ', 1)

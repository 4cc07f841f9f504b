"""YAML with lines: anchors and merges work, and no document can hurt the process that reads it."""

from __future__ import annotations

import datetime

import pytest

from lakemirror.config.document import MAX_DEPTH, MAX_VALUES, read_document

NO_TEXT_MAPS: frozenset[tuple[str | int, ...]] = frozenset()


def problems(text: str) -> list[tuple[int | None, str, str]]:
    return [(f.line, f.message, f.hint) for f in read_document(text, NO_TEXT_MAPS).findings]


def test_every_key_and_item_has_its_line() -> None:
    document = read_document("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n", NO_TEXT_MAPS)
    assert document.data == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    assert document.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }
    assert document.findings == ()


def test_scalars_have_the_types_of_yaml() -> None:
    document = read_document("{a: 1, b: 1.5, c: yes, d: , e: x, f: '1', g: 2026-01-02, h: =}", NO_TEXT_MAPS)
    assert document.data == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": "x",
        "f": "1",
        "g": datetime.date(2026, 1, 2),
        "h": "=",
    }


def test_below_a_text_map_scalars_stay_as_written() -> None:
    text = "catalog: {id: 0123, size: 1_000, flag: Yes, day: 2026-01-02, none: , deep: {id: 0123}}"
    document = read_document(text, frozenset({("catalog",)}))
    assert document.data == {
        "catalog": {
            "id": "0123",
            "size": "1_000",
            "flag": "true",
            "day": "2026-01-02",
            "none": None,
            "deep": {"id": 83},
        }
    }


def test_anchors_aliases_and_merges_work_and_keep_the_line_of_their_origin() -> None:
    text = """\
one: &one {a: 1, b: 1}
two: &two
  <<: *one
  b: 2
three:
  <<: [*two, {c: 3, a: 3}]
  d: *one
"""
    document = read_document(text, NO_TEXT_MAPS)
    assert document.findings == ()
    assert document.data == {
        "one": {"a": 1, "b": 1},
        "two": {"b": 2, "a": 1},
        "three": {"d": {"a": 1, "b": 1}, "b": 2, "a": 1, "c": 3},
    }
    assert (document.lines["two", "a"], document.lines["two", "b"], document.lines["three", "b"]) == (1, 4, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(None, "the file is empty", "see include/config/lakemirror.yaml for one that works")]),
        ("# only words\n", [(None, "the file is empty", "see include/config/lakemirror.yaml for one that works")]),
        ("- a\n", [(1, "want a map of sections, got a list", "start with `mirror:`")]),
        ("just text", [(1, "want a map of sections, got 'just text'", "start with `mirror:`")]),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", [(4, "`b.c` is given twice, first in line 3", "keep one of them")]),
        ("a: 1\n'a': 2\n", [(2, "`a` is given twice, first in line 1", "keep one of them")]),
        ("a: 1\n? [x]\n: 2\n", [(2, "a key must be plain text", "")]),
        ("a: {<<: 5}\n", [(1, "`<<` merges a map or a list of maps", "")]),
        ("a:\n  - !!python/none x\n", [(2, "`a[0]`: the tag tag:yaml.org,2002:python/none is not allowed", "")]),
        ("a: !secret x\n", [(1, "`a`: the tag !secret is not allowed", "")]),
        ("a: 2026-13-45\n", [(1, "`a`: cannot be read as timestamp", "quote it")]),
        ("a: !!int x\n", [(1, "`a`: cannot be read as int", "quote it")]),
        ("a: !!bool maybe\n", [(1, "`a`: cannot be read as bool", "quote it")]),
        ("a: 1\n b: 2\n", [(2, "not valid YAML: mapping values are not allowed in this context", "")]),
        ("a: [1\n", [(2, "not valid YAML: while parsing a flow sequence did not find expected ',' or ']'", "")]),
        ("a: *b\n", [(1, "not valid YAML: found undefined alias", "")]),
        (
            "a: 1\n---\nb: 2\n",
            [(2, "not valid YAML: expected a single document in the stream but found another document", "")],
        ),
        (
            "a:\n\tb: 2\n",
            [
                (
                    2,
                    "not valid YAML: while scanning for the next token found character that cannot start any token",
                    "",
                )
            ],
        ),
    ],
)
def test_what_is_no_good_is_named_with_its_line(text: str, expected: list[tuple[int | None, str, str]]) -> None:
    assert problems(text) == expected


def test_control_characters_are_no_yaml() -> None:
    [(line, message, _)] = problems("a: \x00\n")
    assert line is None
    assert message.startswith("not valid YAML: ")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_hundred_thousand_levels_are_refused_not_fatal(opening: str) -> None:
    """The C composer would end the process."""
    assert problems(opening * 100_000) == [(1, f"nested deeper than {MAX_DEPTH} levels", "no configuration needs that")]


def test_the_deepest_allowed_level() -> None:
    text = "a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert problems(text) == []
    assert problems(f"a: [{text[3:]}]") == [
        (1, f"nested deeper than {MAX_DEPTH} levels", "no configuration needs that")
    ]


def test_an_anchor_inside_itself_is_refused() -> None:
    assert problems("a: &a [*a]\n") == [(1, f"nested deeper than {MAX_DEPTH} levels", "no configuration needs that")]
    assert problems("a: &a {<<: *a}\n") == [
        (1, f"nested deeper than {MAX_DEPTH} levels", "no configuration needs that")
    ]


def test_aliases_that_multiply_are_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    [(_, message, hint)] = problems("\n".join(lines))
    assert message == f"unfolds into more than {MAX_VALUES} values"
    assert hint == "aliases that repeat aliases grow fast; write less"


def test_merges_that_multiply_are_bounded() -> None:
    wide = [", ".join([f"*a{n}"] * 20_000) for n in range(2)]
    lines = ["a0: &a0 {k: 1}", f"a1: &a1 {{<<: [{wide[0]}]}}", f"a2: {{<<: [{wide[1]}]}}"]
    [(_, message, _hint)] = problems("\n".join(lines))
    assert message == f"unfolds into more than {MAX_VALUES} values"
    keys = ", ".join(f"k{n}: 1" for n in range(20_000))
    [(_, message, _hint)] = problems(f"a0: &a0 {{{keys}}}\na1: {{<<: [{wide[0]}]}}")
    assert message == f"unfolds into more than {MAX_VALUES} values"

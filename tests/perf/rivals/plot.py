"""Draws `docs/benchmarks.svg` from what `make bench BENCH_ARGS="rivals large"` left in `.bench/rivals.json`.

python -m tests.perf.rivals.plot
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from tests.perf.rivals.measure import NUMBERS, PROJECT

OUT = PROJECT / "docs" / "benchmarks.svg"
WIDTH, HEIGHT = 900, 330
THEIRS, OURS, LINE, TEXT = "#b35900", "#1f6f8b", "#c8ccd0", "#2b2f33"
_STYLE = "font-family='sans-serif' font-size='13'"
Json = dict[str, Any]


def bars(numbers: Json, left: int, width: int) -> list[str]:
    """Seconds of both sides, on a scale of powers of ten."""
    rows = [
        ("one commit: rewrite_table_path", numbers["theirs"]["commit"]["seconds"], THEIRS),
        ("one commit: Lakemirror, task lane", numbers["ours commit task"]["seconds"], OURS),
        ("everything: rewrite_table_path", numbers["theirs"]["full"]["seconds"], THEIRS),
        ("everything: Lakemirror, task lane", numbers["ours full task"]["seconds"], OURS),
        ("everything: Lakemirror, Spark lane", numbers["ours full spark"]["seconds"], OURS),
    ]
    low, high = 0.1, 10 ** math.ceil(math.log10(max(seconds for _, seconds, _ in rows)))
    scale = width / math.log10(high / low)

    def at(seconds: float) -> float:
        return left + math.log10(max(seconds, low) / low) * scale

    parts = [_text(left, 40, "Seconds (logarithmic), 1,000 commits of 100 files", bold=True)]
    step = low
    while step <= high * 1.01:
        parts += [_line(at(step), 55, at(step), 285), _text(at(step), 302, f"{step:g}", anchor="middle")]
        step *= 10
    for number, (name, seconds, colour) in enumerate(rows):
        top = 62 + number * 45
        parts.append(_text(left + 4, top + 11, name))
        parts.append(
            f"<rect x='{left}' y='{top + 16}' width='{at(seconds) - left:.1f}' height='16' fill='{colour}' rx='2'/>"
        )
        parts.append(_text(at(seconds) + 5, top + 29, f"{seconds:.3g} s"))
    return parts


def growth(numbers: Json, left: int, width: int) -> list[str]:
    """Seconds of the first plan by the number of files."""
    points = sorted((int(files), answer["seconds"]) for files, answer in numbers.items() if files.isdigit())
    most_files, most_s = points[-1][0], max(seconds for _, seconds in points) * 1.15

    def place(files: float, seconds: float) -> tuple[float, float]:
        return left + files / most_files * width, 285 - seconds / most_s * 220

    parts = [_text(left, 40, "First plan in the Spark lane, heap of 2 GB: seconds by files", bold=True)]
    parts += [_line(left, 285, left + width, 285), _line(left, 60, left, 285)]
    first_files, first_s = points[0]
    end = place(most_files, first_s / first_files * most_files)
    parts.append(_line(left, 285, *end, dashes="4 4"))
    parts.append(_path([place(*point) for point in points]))
    for files, seconds in points:
        x, y = place(files, seconds)
        parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{OURS}'/>")
        parts.append(_text(x - 8, y - 8, f"{seconds:.3g} s", anchor="end"))
        parts.append(_text(x, 302, f"{files / 1e6:g} M", anchor="middle"))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = " font-weight='bold'" if bold else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' fill='{TEXT}' text-anchor='{anchor}'{weight}>{text}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, *, dashes: str = "") -> str:
    pattern = f" stroke-dasharray='{dashes}'" if dashes else ""
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{LINE}'{pattern}/>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polyline points='{places}' fill='none' stroke='{OURS}' stroke-width='2'/>"


def draw(numbers: Json) -> str:
    parts = [*bars(numbers["rivals"], 30, 380), *growth(numbers["large"], 510, 340)]
    box = f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>"
    lines = "\n".join((box, *parts))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' {_STYLE} role='img' "
        f"aria-label='Speed beside rewrite_table_path, and growth of the first plan'>\n{lines}\n</svg>\n"
    )


def main() -> int:
    OUT.write_text(draw(json.loads(NUMBERS.read_text())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A schedule as a person reads it: who did what, when, and what came of it."""

from __future__ import annotations

from typing import Any

from tests.simulation.scene import Scene
from tests.simulation.watch import ROOT

_ENTRY = "{step:5d} {time:10.2f} s  {name:14s} {what}{how}"


def told(scene: Scene) -> str:
    lines = [f"story {scene.story.name}, {scene.settings}, {scene.world.weather}"]
    for step, time, name, request, how in scene.world.trace:
        lines.append(_ENTRY.format(step=step, time=time, name=name, what=_what(request), how=how and f"  [{how}]"))
    return "\n".join([*lines, f"VIOLATION {scene.world.violation}"])


def _what(request: tuple[Any, ...]) -> str:
    verb, subject = request[0], str(request[1]).replace(f"{ROOT}/", "")
    if verb == "put":
        return f"put {subject} ({type(request[4]).__name__}, {len(request[3])} bytes)"
    if verb in ("select", "commit"):
        places = {name: str(value).rsplit("/", 1)[-1] for name, value in request[2] if name in ("old", "new")}
        return f"{subject.split()[0]} {places or ''}".rstrip()
    if verb == "POST":
        return f"POST {subject} {request[2][:300].decode()}"
    return f"{verb} {subject}"

"""The emulator of Google Cloud Storage and Pub/Sub: one Go program, everything in memory, one bucket made for us."""

from __future__ import annotations

import json
from pathlib import Path

from dev.services.builds import Build
from dev.services.servers import Server
from dev.services.tools import GO, run
from dev.services.trouble import ServicesError
from dev.services.waiting import answers, status

NAME = "gcsemu"
TITLE = "the emulator of GCS and Pub/Sub (GCS=1)"
PROJECT_ID = "lakemirror"
BUCKET = "mirror"
BUILD_TIMEOUT_S = 900


def _check() -> None:
    GO.need(TITLE, "to be built")


def _make(sources: Path, into: Path) -> None:
    go = GO.need(TITLE, "to be built")
    command = [go, "build", "-trimpath", "-mod=readonly", "-o", str(into / "gcsemu"), "."]
    # Without cgo no C compiler is needed.
    run(command, what=f"building {TITLE}", folder=sources, timeout_s=BUILD_TIMEOUT_S, env={"CGO_ENABLED": "0"})


BUILD = Build("gcsemu", TITLE, _make, _check)


def server(port: int, pubsub_port: int, build: Path) -> Server:
    command = (str(build / "gcsemu"), "-addr", f"127.0.0.1:{port}", "-pubsub", f"127.0.0.1:{pubsub_port}")
    return Server(NAME, command, lambda: answers(f"{endpoint(port)}/_internal/healthcheck"), stop_timeout_s=3.0)


def endpoint(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def make_bucket(endpoint: str) -> None:
    """Idempotent."""
    body = json.dumps({"name": BUCKET}).encode()
    url = f"{endpoint}/storage/v1/b?project={PROJECT_ID}"
    got = status(url, method="POST", data=body, headers={"Content-Type": "application/json"})
    if got not in (200, 409):
        raise ServicesError(f"make bucket {BUCKET} at {endpoint}: want 200 or 409, got {got}")

"""Bounded waits for servers, and the small questions that tell whether one is there."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

POLL_S = 0.1
ANSWER_TIMEOUT_S = 3.0

# Whatever proxy the shell names, these servers are on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class GaveUp(Exception):
    """The bound was reached, the process ended, or somebody pressed Ctrl-C."""


def until(
    is_there: Callable[[], bool],
    *,
    timeout_s: float,
    is_possible: Callable[[], bool] = lambda: True,
    cancelled: threading.Event | None = None,
) -> None:
    """Returns once `is_there`; raises GaveUp when time is over or it has become impossible."""
    deadline = time.monotonic() + timeout_s
    while not is_there():
        if not is_possible():
            raise GaveUp("it ended by itself")
        if cancelled is not None and cancelled.is_set():
            raise GaveUp("interrupted")
        if time.monotonic() > deadline:
            raise GaveUp(f"not healthy after {timeout_s:.0f} s")
        time.sleep(POLL_S)


def status(
    url: str, *, method: str = "GET", data: bytes | None = None, headers: Mapping[str, str] | None = None
) -> int | None:
    """The HTTP status of an answer, also of a refusal; None if nobody answers."""
    request = urllib.request.Request(url, data=data, method=method, headers=dict(headers or {}))
    try:
        with _OPENER.open(request, timeout=ANSWER_TIMEOUT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as err:
        err.close()
        return err.code
    except (OSError, http.client.HTTPException):  # refused, reset, not HTTP
        return None


def answers(url: str) -> bool:
    return status(url) == 200

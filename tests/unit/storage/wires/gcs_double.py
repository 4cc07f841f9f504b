"""As much of GCS as unit tests need where the emulator cannot be made to misbehave: answers are given by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.serving import QuietHandler, serving


@dataclass(frozen=True)
class Asked:
    """What came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]


@dataclass
class GcsDouble:
    """`answer` makes (status, headers, body) of a request; every request is noted."""

    answer: Callable[[Asked], tuple[int, dict[str, str], bytes]]
    asked: list[Asked] = field(default_factory=list)
    endpoint: str = ""


@contextmanager
def gcs_double(answer: Callable[[Asked], tuple[int, dict[str, str], bytes]]) -> Iterator[GcsDouble]:
    double = GcsDouble(answer)

    class Handler(QuietHandler):
        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            double.asked.append(asked)
            status, headers, body = double.answer(asked)
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    with serving(Handler) as port:
        double.endpoint = f"http://127.0.0.1:{port}"
        yield double

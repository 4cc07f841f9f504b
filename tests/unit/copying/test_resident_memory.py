"""What a process that copies takes in memory, as the system counts it: within the bound, whatever the sizes.

The copies run in a process of their own, between two buckets of a server in this one, which makes bytes up and keeps
none. `VmHWM` is the most that was resident; `ru_maxrss` would be that of whoever started the process, if he had more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.serving import QuietHandler, serving

MIB: Final = 1024**2
MEMORY_BYTES: Final = 64 * 10**6
SMALL, LARGE = 200, 256 * MIB
COPY: Final = f"""
import sys
from lakemirror.copying.crew import run_loop, work_off
from lakemirror.copying.model import CopyItem, CopySettings, wire_to
from lakemirror.copying.ports import CopyPorts, opened

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":"))

async def copied(sizes):
    async with opened(CopyPorts(wire, wire, settings), "t") as made:
        async def jobs():
            for name, size in sizes.items():
                item = CopyItem(f"s3://source/{{size}}/{{name}}", f"s3://mirror/{{size}}/{{name}}", size)
                yield lambda item=item: made.copier.copy(item)
        failure = await work_off(jobs(), settings.concurrency)
        if failure is not None:
            raise failure

endpoint, memory_bytes = sys.argv[1], int(sys.argv[2])
keys = {{"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.region": "r"}}
wire = wire_to({{**keys, "s3.endpoint": endpoint}})
settings = CopySettings(memory_bytes=memory_bytes)
run_loop(copied({{f"warm{{number}}": 1000 for number in range(64)}}))
before = resident("VmRSS")
run_loop(copied({{**{{f"f{{number}}": {MIB} for number in range({SMALL})}}, "large": {LARGE}}}))
print(resident("VmHWM") - before)
"""


class Endless(QuietHandler):
    """Every object is there in `source`, as large as the first part of its key says; none is in `mirror` for long."""

    def do_HEAD(self) -> None:
        self._answer({"content-length": str(self._size)})

    def do_GET(self) -> None:
        start, end, status = 0, self._size, 200
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", "")):
            start, end, status = int(asked[1]), int(asked[2]) + 1, 206
        headers = {"content-length": str(end - start), "content-range": f"bytes {start}-{end - 1}/{self._size}"}
        self._answer(headers, status=status)
        for at in range(start, end, MIB):
            self.wfile.write(bytes(min(MIB, end - at)))

    def do_PUT(self) -> None:
        self._read()
        self._answer({"content-length": "0"})

    def do_POST(self) -> None:
        self._read()
        is_begun = "uploads" in parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        text = "<R><UploadId>u</UploadId></R>" if is_begun else "<R><ETag>e</ETag></R>"
        self._answer({"content-length": str(len(text))})
        self.wfile.write(text.encode())

    @property
    def _size(self) -> int:
        return int(self.path.split("/")[2])

    def _read(self) -> None:
        left = int(self.headers.get("content-length") or 0)
        while left:
            left -= len(self.rfile.read(min(left, MIB)))

    def _answer(self, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"etag": '"e"', "last-modified": "Fri, 02 Jan 2026 03:04:05 GMT", **headers}.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def endpoint() -> Iterator[str]:
    with serving(Endless) as port:
        yield f"http://127.0.0.1:{port}"


def grown(endpoint: str, memory_bytes: int) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", COPY, endpoint, str(memory_bytes)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_a_process_grows_by_no_more_than_its_bound(endpoint: str) -> None:
    assert grown(endpoint, MEMORY_BYTES) <= MEMORY_BYTES


def test_without_the_bound_it_would(endpoint: str) -> None:
    """That the bound is what the test above sees."""
    assert grown(endpoint, 20 * MEMORY_BYTES) > 2 * MEMORY_BYTES

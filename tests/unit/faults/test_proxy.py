"""The proxy does the harm that it was asked for, and no other."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.faults import rules
from tests.faults.proxy import FaultProxy, deaf_url
from tests.faults.rules import Rule, expired, storm

BODY = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    daemon_threads = True
    bodies: list[bytes]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._send(BODY)

    def do_PUT(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(b"")

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.bodies = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
        yield proxy


def ask(proxy: FaultProxy, method: str = "GET", target: str = "/x", body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_without_a_fault_all_passes(proxy: FaultProxy, server: Server) -> None:
    assert ask(proxy) == (200, BODY)
    assert ask(proxy, "PUT", "/a%20b?c=d", b"abc") == (200, b"")
    assert server.bodies == [b"abc"]
    assert proxy.requests == [("GET", "/x"), ("PUT", "/a%20b?c=d")]


def test_rules_choose_by_method_target_and_number(proxy: FaultProxy) -> None:
    proxy.rules.append(Rule(rules.Answer(500), method="GET", target="^/bad", skip=1, times=2))
    assert [ask(proxy, target=target)[0] for target in ("/x", "/bad", "/bad", "/bad", "/bad")] == [
        200,
        200,
        500,
        500,
        200,
    ]
    assert ask(proxy, "PUT", "/bad", b"")[0] == 200


def test_storms_and_expired_credentials(proxy: FaultProxy) -> None:
    proxy.rules += [storm(503, times=1), expired(skip=1)]
    answers = [ask(proxy) for _ in range(3)]
    assert [status for status, _ in answers] == [503, 200, 403]
    assert b"SlowDown" in answers[0][1]
    assert b"ExpiredToken" in answers[2][1]


@pytest.mark.parametrize("fault", [rules.Reset(), rules.LoseAnswer(), rules.CutAnswer(100_000)])
def test_a_connection_that_breaks(proxy: FaultProxy, fault: rules.Fault) -> None:
    proxy.rules.append(Rule(fault))
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(proxy)
    assert ask(proxy) == (200, BODY)


def test_a_lost_answer_was_a_deed(proxy: FaultProxy, server: Server) -> None:
    proxy.rules.append(Rule(rules.LoseAnswer()))
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(proxy, "PUT", body=b"done")
    assert server.bodies == [b"done"]


def test_a_request_that_is_cut_never_arrives_whole(proxy: FaultProxy, server: Server) -> None:
    proxy.rules.append(Rule(rules.CutRequest(10)))
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(proxy, "PUT", body=BODY)
    time.sleep(0.2)
    assert BODY not in server.bodies


def test_wrong_bytes_both_ways(proxy: FaultProxy, server: Server) -> None:
    proxy.rules += [Rule(rules.FlipAnswer(70_000), method="GET"), Rule(rules.FlipRequest(1), method="PUT")]
    _, got = ask(proxy)
    assert [place for place in range(len(BODY)) if BODY[place] != got[place]] == [70_000]
    ask(proxy, "PUT", body=b"abc")
    assert server.bodies == [b"acc"]


def test_an_answer_that_says_it_is_shorter(proxy: FaultProxy) -> None:
    proxy.rules.append(Rule(rules.ShortenAnswer(1000)))
    assert ask(proxy) == (200, BODY[:1000])


@pytest.mark.parametrize("fault", [rules.Stall(0.5), rules.StallInAnswer(70_000, 0.5), rules.Drip(len(BODY) * 2)])
def test_slow_answers_are_whole(proxy: FaultProxy, fault: rules.Fault) -> None:
    proxy.rules.append(Rule(fault))
    start = time.monotonic()
    assert ask(proxy) == (200, BODY)
    assert time.monotonic() - start >= 0.4


def test_cut_off_and_healed(proxy: FaultProxy) -> None:
    with proxy.cut_off(), pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(proxy)
    assert ask(proxy) == (200, BODY)


def test_a_request_that_is_held(proxy: FaultProxy, server: Server) -> None:
    proxy.rules.append(Rule(hold := rules.Hold()))
    asking = threading.Thread(target=ask, args=(proxy, "PUT", "/x", b"late"))
    asking.start()
    assert proxy.rules[0].seen.wait(10)
    while not hold.ports:
        time.sleep(0.01)
    assert server.bodies == []
    hold.released.set()
    asking.join(10)
    assert (server.bodies, len(hold.ports)) == ([b"late"], 1)


def test_a_drip_of_less_than_a_byte_a_second(proxy: FaultProxy) -> None:
    proxy.rules.append(Rule(rules.Drip(0.5)))
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=1)
    connection.request("GET", "/x")
    answer = connection.getresponse()
    assert answer.read(1) == BODY[:1]
    with pytest.raises(TimeoutError):
        answer.read(1)
    connection.close()


def test_connecting_to_the_deaf_never_ends() -> None:
    with deaf_url() as url, pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=0.5)

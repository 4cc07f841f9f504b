import random
import socket
from pathlib import Path

import pytest

from dev.services import ports
from dev.services.trouble import ServicesError


def choose(
    names: list[str], kept: dict[str, int], busy: set[int], held: tuple[str, ...] = (), others: tuple[int, ...] = ()
) -> dict[str, int]:
    fresh = iter(range(100, 110))
    return ports.choose(names, kept, held=held, others=others, is_free=lambda port: port not in busy, fresh=fresh)


def test_new_ports_differ_and_are_free() -> None:
    assert choose(["a", "b"], {}, {100, 102}) == {"a": 101, "b": 103}


def test_what_is_still_free_is_kept() -> None:
    assert choose(["a", "b"], {"a": 7, "b": 8}, set()) == {"a": 7, "b": 8}


def test_what_somebody_else_took_is_replaced() -> None:
    assert choose(["a", "b"], {"a": 7, "b": 8}, {7}) == {"a": 100, "b": 8}


def test_what_our_own_server_holds_is_kept() -> None:
    assert choose(["a"], {"a": 7}, {7}, held=("a",)) == {"a": 7}


def test_a_new_port_is_none_that_is_kept_for_another() -> None:
    assert choose(["a", "b"], {"b": 100}, set()) == {"a": 101, "b": 100}


def test_what_another_profile_has_chosen_is_not_taken_though_nobody_listens_there_yet() -> None:
    assert choose(["a", "b"], {"b": 7}, set(), others=(100, 7)) == {"a": 101, "b": 102}
    assert choose(["b"], {"b": 7}, set(), held=("b",), others=(7,)) == {"b": 7}


def test_one_port_for_two_names_is_not_believed() -> None:
    assert choose(["a", "b"], {"a": 7, "b": 7}, set()) == {"a": 7, "b": 100}


def test_the_search_ends() -> None:
    with pytest.raises(ServicesError, match=r"no free port between 20000 and 32000 on 127\.0\.0\.1 for a"):
        choose(["a"], {}, set(range(100, 110)))


def test_candidates_are_bounded_and_below_the_range_of_outgoing_connections() -> None:
    found = list(ports.candidates(random.Random(1)))

    assert len(found) == ports.MOST_TRIES
    assert min(found) >= ports.FIRST
    assert max(found) <= ports.LAST < 32_768


def test_a_port_with_a_listener_is_not_free_and_free_again_afterwards() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        assert not ports.is_free(port)

    assert ports.is_free(port)


def test_a_file_that_cannot_be_understood_keeps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    ports.write(file, {"a": 7})

    assert ports.read(file) == {"a": 7}
    for damage in ("", "[1]", '{"a": null}', '{"a": "x"}'):
        file.write_text(damage)
        assert ports.read(file) == {}
    assert ports.read(tmp_path / "none") == {}

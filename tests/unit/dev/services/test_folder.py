import threading
from pathlib import Path

from dev.services.folder import ServicesFolder


def test_whoever_chooses_ports_sees_what_all_others_chose(tmp_path: Path) -> None:
    home = ServicesFolder(tmp_path)
    one, other = home.inner("one"), home.inner("other")
    for folder in (home, one, other):
        with folder.locked():
            folder.ports.write_text("{}")

    with one.choosing_ports(home.path) as files:
        assert files == {home.ports, other.ports}
    with home.choosing_ports(home.path) as files:
        assert files == {one.ports, other.ports}
    assert home.inner_ones() == [one, other]


def test_one_at_a_time_chooses_ports(tmp_path: Path) -> None:
    home = ServicesFolder(tmp_path)
    has_entered = threading.Event()

    def enter() -> None:
        with home.inner("other").choosing_ports(home.path):
            has_entered.set()

    second = threading.Thread(target=enter)
    with home.choosing_ports(home.path):
        second.start()
        assert not has_entered.wait(0.2)
    second.join(10)
    assert has_entered.is_set()

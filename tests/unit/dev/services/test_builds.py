import threading
import time
from pathlib import Path

import pytest

from dev.services import builds
from dev.services.builds import Build, Cache, content_hash
from dev.services.trouble import ToolMissing


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    sources = tmp_path / "sources" / "thing"
    sources.mkdir(parents=True)
    (sources / "a.txt").write_text("one")
    monkeypatch.setattr(builds, "SOURCES", tmp_path / "sources")
    return Cache(tmp_path / "cache")


def copy(sources: Path, into: Path) -> None:
    (into / "made").write_text((sources / "a.txt").read_text())


def nothing() -> None:
    """Nothing is missing."""


def test_it_is_made_once_for_each_content(cache: Cache) -> None:
    told: list[str] = []
    build = Build("thing", "the thing", copy, nothing)

    first = build.ensure(cache, told.append)
    again = build.ensure(cache, told.append)
    (build.sources / "a.txt").write_text("two")
    other = build.ensure(cache, told.append)

    assert first == again != other
    assert ((first / "made").read_text(), (other / "made").read_text()) == ("one", "two")
    assert told == ["the thing: building it, once"] * 2


def test_a_failed_build_leaves_nothing(cache: Cache) -> None:
    def fail(sources: Path, into: Path) -> None:
        (into / "half").touch()
        raise ToolMissing("no luck")

    build = Build("thing", "the thing", fail, nothing)
    with pytest.raises(ToolMissing, match="no luck"):
        build.ensure(cache, lambda line: None)

    assert not build.is_made(cache)
    assert [path.name for path in cache.path.iterdir()] == [".thing.lock"]


def test_tools_are_looked_for_before_anything_is_made(cache: Cache) -> None:
    def check() -> None:
        raise ToolMissing("no tool")

    with pytest.raises(ToolMissing, match="no tool"):
        Build("thing", "the thing", copy, check).ensure(cache, lambda line: None)


def test_two_at_once_make_it_once(cache: Cache) -> None:
    made: list[Path] = []

    def slowly(sources: Path, into: Path) -> None:
        made.append(into)
        time.sleep(0.1)

    build = Build("thing", "the thing", slowly, nothing)
    threads = [threading.Thread(target=build.ensure, args=(cache, lambda line: None)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(made) == 1
    assert build.is_made(cache)


def test_the_hash_knows_names_and_borders(tmp_path: Path) -> None:
    def of(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        return content_hash(folder)

    assert of(a="1", b="2") == of(b="2", a="1")
    assert len({of(a="1", b="2"), of(a="12", b=""), of(a="1", c="2"), of(a="1")}) == 4

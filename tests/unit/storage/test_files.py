from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.file_status import explained
from lakemirror.storage.files import LOCK_TIMEOUT_S, FileObjects
from lakemirror.storage.port import CREATE, Condition, ConditionFailed, IfMatch, ObjectNotFound, Overwrite
from tests.unit.storage import racers

ROOT = Path(__file__).parents[3]


@pytest.fixture
def store() -> FileObjects:
    return FileObjects({})


@pytest.fixture(params=["nameless", "hidden-name"])
def spooling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on file systems with nameless files, and as if on one without."""
    if request.param == "hidden-name":
        monkeypatch.delattr(os, "O_TMPFILE")


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_listing_that_shows_a_write_shows_those_before_it(
    tmp_path: Path, store: FileObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is listed, first `a` is written, which is new, then `b` anew: its e_tag is not the new one then."""
    store.put(f"{tmp_path}/b", b"old")
    before = store.head(f"{tmp_path}/b").e_tag
    read = os.scandir
    reads: list[object] = []

    def while_others_write(folder: str) -> object:
        if reads:
            store.put(f"{tmp_path}/a", b"first")
            store.put(f"{tmp_path}/b", b"then", Overwrite())
        reads.append(folder)
        return read(folder)

    monkeypatch.setattr(os, "scandir", while_others_write)
    found = {info.uri.rpartition("/")[2]: info.e_tag for info in store.list(str(tmp_path))}
    assert found == {"a": None, "b": before}


class TestProcesses:
    def test_one_of_many_creators_wins_with_a_whole_object(self, tmp_path: Path, store: FileObjects) -> None:
        racing, rounds = 6, 25
        start_all(racing, lambda number, start: (racers.create_in_rounds, (f"{tmp_path}", rounds, number, start)))
        won = [info.uri.rpartition("/")[2] for info in store.list(f"{tmp_path}/won")]
        assert sorted(int(name.split("-")[0]) for name in won) == list(range(rounds))
        for name in won:
            number, racer = name.split("-")
            assert store.get(f"{tmp_path}/{number}").data == bytes([int(racer)]) * racers.BODY_BYTES
        assert len(everything(tmp_path)) == 2 * rounds

    def test_no_increment_is_lost_or_done_twice(self, tmp_path: Path, store: FileObjects) -> None:
        racing, times = 6, 40
        uri = f"file://{tmp_path}/cell"
        store.put(uri, b"000000")
        start_all(racing, lambda number, start: (racers.increment, (uri, times, start)))
        assert store.get(uri).data == f"{racing * times:06}".encode()
        assert everything(tmp_path) == ["cell"]

    def test_a_killed_writer_leaves_nothing(self, tmp_path: Path, store: FileObjects) -> None:
        uri = f"file://{tmp_path}/deep/x"
        command = [sys.executable, "-m", "tests.unit.storage.racers", uri]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'plugins'}"}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=-1, stdout=-1, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "half\n"
            writer.kill()
        assert list(store.list(f"file://{tmp_path}")) == []
        assert everything(tmp_path) == []
        assert store.put(uri, b"now").size_bytes == 3


def start_all(racing: int, job: Callable[[int, object], tuple[Callable[..., None], tuple[object, ...]]]) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(racing)
    jobs = [job(number, start) for number in range(racing)]
    processes = [context.Process(target=target, args=arguments) for target, arguments in jobs]
    for process in processes:
        process.start()
    for process in processes:
        process.join(racers.WAIT_S)
    assert [process.exitcode for process in processes] == [0] * racing


@pytest.mark.usefixtures("spooling")
class TestWriting:
    def test_a_folder_holds_only_objects_after_every_kind_of_write(self, tmp_path: Path, store: FileObjects) -> None:
        uri = f"file://{tmp_path}/a/b"
        first = store.put(uri, b"1")
        store.put(uri, iter([b"2"]), Overwrite())
        with pytest.raises(ConditionFailed):
            store.put(uri, b"3")
        with pytest.raises(ConditionFailed):
            store.put(uri, b"3", IfMatch(first.e_tag or ""))
        with pytest.raises(RuntimeError):
            store.put(f"file://{tmp_path}/a/c", broken())
        store.copy(uri, f"file://{tmp_path}/a/d")
        assert everything(tmp_path) == ["a/b", "a/d"]

    def test_what_a_dead_replacer_left_is_dropped(
        self, tmp_path: Path, store: FileObjects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri = f"file://{tmp_path}/cell"
        store.put(uri, b"old")
        with monkeypatch.context() as dying:
            dying.setattr(os, "rename", stop)
            with pytest.raises(KeyboardInterrupt):
                store.put(uri, b"never", Overwrite())
        assert len(everything(tmp_path)) == 2
        assert [info.uri for info in store.list(f"file://{tmp_path}")] == [uri]
        assert store.get(uri).data == b"old"
        store.put(uri, b"new", Overwrite())
        assert store.get(uri).data == b"new"
        assert everything(tmp_path) == ["cell"]

    def test_memory_stays_bounded(self, tmp_path: Path, store: FileObjects) -> None:
        size_bytes, piece = 64 * 1024 * 1024, b"x" * 1024 * 1024
        tracemalloc.start()
        try:
            store.put(f"{tmp_path}/big", (piece for _ in range(64)))
            assert sum(map(len, store.stream(f"{tmp_path}/big", chunk_bytes=len(piece)))) == size_bytes
            assert tracemalloc.get_traced_memory()[1] < 8 * len(piece)
        finally:
            tracemalloc.stop()

    def test_the_mode_is_that_of_any_new_file(self, tmp_path: Path, store: FileObjects) -> None:
        (tmp_path / "plain").write_bytes(b"")
        store.put(f"{tmp_path}/object", b"")
        assert (tmp_path / "object").stat().st_mode == (tmp_path / "plain").stat().st_mode


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def broken() -> Iterator[bytes]:
    yield b"x"
    raise RuntimeError("broken")


class TestReplacing:
    def test_a_replacement_is_younger_even_if_the_clock_stands(self, tmp_path: Path, store: FileObjects) -> None:
        uri = f"{tmp_path}/cell"
        store.put(uri, b"a")
        later_ns = 4_000_000_000 * 10**9
        os.utime(uri, ns=(later_ns, later_ns))
        store.put(uri, b"b", Overwrite())
        assert os.stat(uri).st_mtime_ns > later_ns

    def test_waiting_for_a_lock_ends(self, tmp_path: Path) -> None:
        now = 0.0
        naps: list[float] = []

        def nap(seconds: float) -> None:
            nonlocal now
            naps.append(seconds)
            now += LOCK_TIMEOUT_S / 3

        store = FileObjects({}, clock=lambda: now, sleep=nap)
        uri = f"file://{tmp_path}/cell"
        store.put(uri, b"a")
        with open(f"{tmp_path}/cell", "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for write in (lambda: store.put(uri, b"b", Overwrite()), lambda: store.delete([uri])):
                with pytest.raises(TransientError, match="no lock in 30 s"):
                    write()
        assert 6 <= len(naps) <= 10
        store.put(uri, b"b", Overwrite())
        assert store.get(uri).data == b"b"

    def test_a_key_replaced_while_waiting_is_looked_at_again(self, tmp_path: Path) -> None:
        uri = f"file://{tmp_path}/cell"
        other = FileObjects({})
        seen = other.put(uri, b"a")
        held = os.open(f"{tmp_path}/cell", os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)

        def other_writer_finishes(_: float) -> None:
            os.rename(f"{tmp_path}/other", f"{tmp_path}/cell")
            os.close(held)

        (tmp_path / "other").write_bytes(b"b")
        store = FileObjects({}, sleep=other_writer_finishes)
        with pytest.raises(ConditionFailed):
            store.put(uri, b"c", IfMatch(seen.e_tag or ""))
        assert other.get(uri).data == b"b"

    def test_overwriting_what_is_created_meanwhile_replaces_that(
        self, tmp_path: Path, store: FileObjects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri = f"file://{tmp_path}/cell"
        link = os.link

        def just_too_late(source: str, target: str, *, src_dir_fd: int) -> None:
            if not os.path.exists(uri.removeprefix("file://")):
                (tmp_path / "cell").write_bytes(b"theirs")
            link(source, target, src_dir_fd=src_dir_fd)

        monkeypatch.setattr(os, "link", just_too_late)
        store.put(uri, b"ours", Overwrite())
        assert store.get(uri).data == b"ours"
        assert everything(tmp_path) == ["cell"]


class TestFolders:
    def test_a_folder_is_no_object(self, tmp_path: Path, store: FileObjects) -> None:
        uri = f"file://{tmp_path}/folder"
        store.put(f"{uri}/x", b"")
        for read in (store.head, store.get, store.stream):
            with pytest.raises(ObjectNotFound):
                read(uri)
        store.delete([uri])
        assert [info.uri for info in store.list(uri)] == [f"{uri}/x"]

    @pytest.mark.parametrize("condition", [CREATE, Overwrite()], ids=["create", "overwrite"])
    def test_a_and_a_slash_b_cannot_both_be_files(
        self, tmp_path: Path, store: FileObjects, condition: Condition
    ) -> None:
        store.put(f"file://{tmp_path}/a/b", b"")
        store.put(f"file://{tmp_path}/c", b"")
        for uri in (f"file://{tmp_path}/a", f"file://{tmp_path}/c/d", f"file://{tmp_path}/c/d/e"):
            with pytest.raises(PermanentError, match="in the way") as raised:
                store.put(uri, b"", condition)
            assert type(raised.value) is PermanentError
        assert everything(tmp_path) == ["a/b", "c"]

    def test_unfinished_writes_of_anyone_are_not_listed(self, tmp_path: Path, store: FileObjects) -> None:
        for name in ("x#1", ".abc#0", "x#12", "x#y", "x"):
            (tmp_path / name).write_bytes(b"")
        assert [info.uri for info in store.list(f"{tmp_path}")] == [f"file://{tmp_path}/x", f"file://{tmp_path}/x#y"]

    def test_links_are_followed_but_not_in_circles(self, tmp_path: Path, store: FileObjects) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "x").write_bytes(b"x")
        (tmp_path / "lake").mkdir()
        (tmp_path / "lake" / "a").symlink_to(tmp_path / "real")
        (tmp_path / "lake" / "b").symlink_to(tmp_path / "nowhere")
        lake = f"file://{tmp_path}/lake"
        assert [info.uri for info in store.list(lake)] == [f"{lake}/a/x"]
        assert store.get(f"{lake}/a/x").data == b"x"
        (tmp_path / "real" / "back").symlink_to(tmp_path / "lake")
        with pytest.raises(PermanentError, match="leads back"):
            list(store.list(lake))

    def test_other_things_in_a_folder_are_no_objects(self, tmp_path: Path, store: FileObjects) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert list(store.list(f"file://{tmp_path}")) == []
        with pytest.raises(ObjectNotFound):
            store.get(f"file://{tmp_path}/pipe")

    def test_a_name_that_is_not_unicode_stops_a_listing(self, tmp_path: Path, store: FileObjects) -> None:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_bytes(b"")
        with pytest.raises(PermanentError, match="not valid UTF-8"):
            list(store.list(f"file://{tmp_path}"))

    def test_every_way_to_write_a_path_means_the_same_object(self, tmp_path: Path, store: FileObjects) -> None:
        assert store.put(f"{tmp_path}/x", b"").uri == f"file://{tmp_path}/x"
        infos = [store.head(f"{start}{tmp_path}/x") for start in ("", "file:", "file://")]
        assert infos == [store.head(f"{tmp_path}/x")] * 3
        assert list(store.list(f"file:{tmp_path}")) == infos[:1]


class TestReading:
    def test_a_file_that_shrinks_while_it_is_read_is_cut_short(self, tmp_path: Path, store: FileObjects) -> None:
        (tmp_path / "x").write_bytes(b"0123456789")
        pieces = store.stream(f"file://{tmp_path}/x", chunk_bytes=4)
        assert next(pieces) == b"0123"
        os.truncate(tmp_path / "x", 6)
        assert next(pieces) == b"45"
        with pytest.raises(TransientError, match=r"want 10 bytes, got 6") as raised:
            next(pieces)
        assert (raised.value.op, raised.value.subject) == ("stream", f"file://{tmp_path}/x")

    def test_a_stream_reads_on_what_it_opened_when_the_key_is_replaced(
        self, tmp_path: Path, store: FileObjects
    ) -> None:
        uri = f"file://{tmp_path}/x"
        store.put(uri, b"old old")
        pieces = store.stream(uri, chunk_bytes=3)
        store.put(uri, b"new", Overwrite())
        assert b"".join(pieces) == b"old old"

    def test_an_unread_stream_closes_its_file(self, tmp_path: Path, store: FileObjects) -> None:
        store.put(f"{tmp_path}/x", b"x")
        before = len(os.listdir("/proc/self/fd"))
        pieces = store.stream(f"{tmp_path}/x")
        assert len(os.listdir("/proc/self/fd")) == before + 1
        del pieces
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), ObjectNotFound),
        (NotADirectoryError(errno.ENOTDIR, "x"), ObjectNotFound),
        (PermissionError(errno.EACCES, "x"), PermanentError),
        (OSError(errno.ENOSPC, "x"), PermanentError),
        (OSError(errno.EROFS, "x"), PermanentError),
        (OSError(errno.EIO, "x"), TransientError),
        (OSError(errno.ESTALE, "x"), TransientError),
        (TimeoutError(errno.ETIMEDOUT, "x"), TransientError),
    ],
)
def test_errors_of_the_operating_system_are_told_apart_by_kind(error: OSError, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised, explained("get", "file:///x"):
        raise error
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(("properties", "synced"), [({}, 0), ({"file.sync": "true"}, 2)])
def test_file_and_folder_are_synced_if_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], synced: int
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    FileObjects(properties).put(f"{tmp_path}/x", b"x")
    assert len(calls) == synced


def test_pickles(tmp_path: Path, store: FileObjects) -> None:
    store.put(f"{tmp_path}/x", b"x")
    assert pickle.loads(pickle.dumps(store)).get(f"{tmp_path}/x").data == b"x"

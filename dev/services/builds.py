"""Things made once from sources: kept under `.cache/services/` by the hash of what they were made from.

A build appears under its name only when it is whole. Two commands that want the same one make it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dev.services.folder import PROJECT

SOURCES = Path(__file__).parent / "sources"


@dataclass(frozen=True, slots=True)
class Cache:
    """Where builds are kept."""

    path: Path = PROJECT / ".cache" / "services"


@dataclass(frozen=True, slots=True)
class Build:
    """`make(sources, into)` fills an empty folder. `check` raises ToolMissing where it could not."""

    name: str
    title: str
    make: Callable[[Path, Path], None]
    check: Callable[[], None]

    @property
    def sources(self) -> Path:
        return SOURCES / self.name

    def folder(self, cache: Cache) -> Path:
        return cache.path / f"{self.name}-{content_hash(self.sources)[:16]}"

    def is_made(self, cache: Cache) -> bool:
        return self.folder(cache).is_dir()

    def ensure(self, cache: Cache, tell: Callable[[str], None]) -> Path:
        """The folder of the finished build."""
        folder = self.folder(cache)
        if folder.is_dir():
            return folder
        cache.path.mkdir(parents=True, exist_ok=True)
        with (cache.path / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():  # somebody else was at it
                return folder
            self.check()
            tell(f"{self.title}: building it, once")
            part = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=cache.path))
            try:
                self.make(self.sources, part)
                part.chmod(0o755)
                part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return folder


def content_hash(folder: Path) -> str:
    """Of all files below a folder, names included."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()

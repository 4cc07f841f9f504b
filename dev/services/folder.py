"""The folder that holds all of one services profile: `.services/` of a project.

| file | what |
|---|---|
| env | the shell exports of INTERFACES, mode 0600; only while the services are up |
| pids/NAME.json | who runs: pid, start time, what it was started with |
| logs/NAME.log | what each server says |
| data/NAME/ | what each server keeps, over `make down` too |
| ports.json, secrets.json | chosen once, kept as long as they can be |
| lock | held while somebody starts or stops |
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class ServicesFolder:
    """Where things are; makes folders, writes nothing else."""

    path: Path = PROJECT / ".services"

    @property
    def env(self) -> Path:
        return self.path / "env"

    @property
    def ports(self) -> Path:
        return self.path / "ports.json"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets.json"

    @property
    def pids(self) -> Path:
        return self.path / "pids"

    def pid(self, name: str) -> Path:
        return self.pids / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def data(self, name: str) -> Path:
        folder = self.path / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time starts or stops; a second one waits for the first."""
        for folder in (self.path, self.pids, self.path / "logs", self.path / "data"):
            folder.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for nobody else to read."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)

"""The folder that holds all of one services profile: `.services/` of a project.

| file | what |
|---|---|
| env | the shell exports of INTERFACES, mode 0600; only while the services are up |
| pids/NAME.json | who runs: pid, start time, what it was started with |
| logs/NAME.log | what each server says |
| data/NAME/ | what each server keeps, over `make down` too |
| ports.json, secrets.json | chosen once, kept as long as they can be |
| lock | held while somebody starts or stops |
| ports.lock | held while somebody chooses ports, for this folder or one of those below |
| NAME/ | a whole profile of its own, as tests have them that run side by side |
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
HOME = PROJECT / ".services"


@dataclass(frozen=True, slots=True)
class ServicesFolder:
    """Where things are; makes folders, writes nothing else."""

    path: Path = HOME

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

    def inner(self, name: str) -> ServicesFolder:
        """A profile beside this one: servers, data, ports and secrets of its own."""
        return ServicesFolder(self.path / name)

    def inner_ones(self) -> list[ServicesFolder]:
        """Those below this one that were ever used."""
        return [ServicesFolder(file.parent) for file in sorted(self.path.glob("*/ports.json"))]

    @contextmanager
    def choosing_ports(self, home: Path = HOME) -> Iterator[set[Path]]:
        """One at a time chooses ports in this project; gives the files of what all others have chosen.

        A port is free until its server listens, which takes a while: only what is written down says that it is meant.
        """
        home.mkdir(parents=True, exist_ok=True)
        with (home / "ports.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield {*home.glob("ports.json"), *home.glob("*/ports.json")} - {self.ports}

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

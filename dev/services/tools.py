"""Programs that are not in the pinned environment: Maven, a Java compiler, Go. Looked for before anything starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.services.trouble import ServicesError, ToolMissing

LAST_WORDS = 3000


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, and what to do where it is missing."""

    command: str
    title: str
    remedy: str

    def find(self, which: Callable[[str], str | None] = shutil.which) -> str | None:
        home = os.environ.get("JAVA_HOME") if self.command == "javac" else None
        return which(str(Path(home, "bin", self.command))) if home else which(self.command)

    def need(self, part: str, why: str, which: Callable[[str], str | None] = shutil.which) -> str:
        """Its path, or a sentence that says which part of the profile needs it, and for what."""
        if (found := self.find(which)) is None:
            verb = "need" if part.endswith("s") else "needs"
            raise ToolMissing(f"{part} {verb} {self.title} {why}, and '{self.command}' is not there: {self.remedy}.")
        return found


MAVEN = Tool("mvn", "Maven", "install Maven 3.8 or newer and put it on PATH")
JAVAC = Tool("javac", "a Java compiler", "install a JDK 17 (more than a runtime), on PATH or at JAVA_HOME")
GO = Tool("go", "Go 1.26", "install Go 1.26 or newer and put it on PATH, or leave GCS=1 away")


def run(
    command: Sequence[str], *, what: str, folder: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> None:
    """Runs to the end with the caller's environment, which says where packages come from; words only if it fails."""
    try:
        subprocess.run(
            command,
            check=True,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
    except subprocess.CalledProcessError as err:
        said = err.output.decode(errors="replace").strip()[-LAST_WORDS:]
        raise ServicesError(f"{what} failed (exit {err.returncode}):\n{said}") from err
    except subprocess.TimeoutExpired as err:
        raise ServicesError(f"{what} did not end in {timeout_s:.0f} s: look at the network and run again") from err

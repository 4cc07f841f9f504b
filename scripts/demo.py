"""`make demo`: mirrors a small lake end to end on this machine. Exit 0 only if source and mirror agree."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

PROJECT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--profile", default="embedded", help="embedded: catalogs on SQLite, files on this disk")
    parser.add_argument("--keep", action="store_true", help="leave Airflow up at the end")
    parser.add_argument("--stop", action="store_true", help="stop the Airflow that --keep left up")
    args = parser.parse_args(argv)
    if args.profile != "embedded":
        print(f"make demo: profile {args.profile} is not in this version; PROFILE=embedded is", file=sys.stderr)
        return 2
    sys.path[:0] = [str(PROJECT), str(PROJECT / "plugins")]
    if args.stop:
        from dev.airflow_standalone import stop_left_over
        from dev.demo.home import DemoHome

        was_up = stop_left_over(DemoHome(PROJECT / ".demo").airflow)
        print("stopped" if was_up else "no Airflow of the demo is up")
        return 0
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _as_interrupt)
    from dev.demo.story import Demo

    try:
        return Demo(PROJECT, keep=args.keep).run()
    except KeyboardInterrupt:
        print("interrupted; everything the demo started is stopped", file=sys.stderr)
        return 130


def _as_interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

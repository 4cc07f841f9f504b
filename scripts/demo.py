"""`make demo`: mirrors a small lake end to end on this machine. Exit 0 only if source and mirror agree."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

PROJECT = Path(__file__).resolve().parent.parent
PROFILES = ("embedded", "services")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument(
        "--profile",
        default="embedded",
        help=" or ".join(PROFILES),
    )
    parser.add_argument("--keep", action="store_true", help="leave Airflow up at the end")
    parser.add_argument("--stop", action="store_true", help="stop the Airflow that --keep left up")
    args = parser.parse_args(argv)
    if args.profile not in PROFILES:
        print(f"make demo: no profile {args.profile}; there are {' and '.join(PROFILES)}", file=sys.stderr)
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
    try:
        return run_on_services(keep=args.keep) if args.profile == "services" else run_embedded(keep=args.keep)
    except KeyboardInterrupt:
        print("interrupted; everything the demo started is stopped", file=sys.stderr)
        return 130


def run_embedded(*, keep: bool) -> int:
    from dev.demo.home import DemoHome
    from dev.demo.story import Demo

    return Demo(PROJECT, DemoHome(PROJECT / ".demo"), keep=keep).run()


def run_on_services(*, keep: bool) -> int:
    """On the servers of `make up`; what was not up before is stopped at the end, unless it is to be kept."""
    from dev.demo.services_home import ServicesHome
    from dev.demo.story import Demo
    from dev.services import ServicesError, down, running, up

    was_up = bool(running())
    try:
        services = up(tell=lambda line: print(f"services: {line}", flush=True))
        agrees = Demo(PROJECT, ServicesHome(PROJECT / ".demo", services), keep=keep).run()
    except ServicesError as err:
        print(f"make demo: {err}", file=sys.stderr)
        return 2
    finally:
        if not was_up and not keep:
            down()
    return agrees


def _as_interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

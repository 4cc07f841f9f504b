"""`python -m dev.services up [--gcs] [--hms] [--spark] | down | status | ls URI`: the hands of `make up` and `down`.

`--folder` before the command is another folder than `.services`. `down` also stops the profiles below it, which test
runs that were killed leave behind.

Exit 0: done. Exit 1: something did not start. Exit 2: a tool is missing, and nothing was started.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dev.services.folder import HOME, ServicesFolder
from dev.services.layout import Parts
from dev.services.stack import down, running, up
from dev.services.trouble import ServicesError, ToolMissing


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="services", description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=HOME, help="where the servers live")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start what is missing")
    for part, what in (("gcs", "GCS and Pub/Sub"), ("hms", "Hive Metastore"), ("spark", "a Spark cluster")):
        start.add_argument(f"--{part}", action="store_true", help=f"with {what}")
    commands.add_parser("down", help="stop what was started")
    commands.add_parser("status", help="what runs")
    listing = commands.add_parser("ls", help="what is below s3://lake/… or s3://mirror/…")
    listing.add_argument("uri")
    args = parser.parse_args(argv)
    folder = ServicesFolder(args.folder)
    try:
        if args.command == "up":
            _up(Parts(args.gcs, args.hms, args.spark), folder)
        elif args.command == "down":
            _down(folder)
        elif args.command == "ls":
            _list(args.uri, folder)
        else:
            for name, pid in running(folder=folder).items():
                print(f"{name:<16} pid {pid:<8} {short(folder.log(name))}")
    except ToolMissing as err:
        print(_sentence(err), file=sys.stderr)
        return 2
    except ServicesError as err:
        print(_sentence(err), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; `make down` stops what was started", file=sys.stderr)
        return 130
    return 0


def _up(parts: Parts, folder: ServicesFolder) -> None:
    begin = time.monotonic()
    services = up(parts, folder=folder, tell=_tell)
    what = f"{len(services.started)} started" if services.started else "all of them were up"
    print(f"services: {what}, in {time.monotonic() - begin:.1f} s; to use them: source {short(folder.env)}")


def _tell(line: str) -> None:
    """In one piece, because several servers report at once."""
    sys.stdout.write(f"services: {line}\n")
    sys.stdout.flush()


def _down(folder: ServicesFolder) -> None:
    begin = time.monotonic()
    stopped = down(folder=folder)
    for inner in folder.inner_ones():
        stopped += [f"{name} of {inner.path.name}" for name in down(folder=inner)]
    what = f"stopped {', '.join(stopped)} in {time.monotonic() - begin:.1f} s" if stopped else "nothing was up"
    print(f"services: {what}")


def _list(uri: str, folder: ServicesFolder) -> None:
    if not running(folder=folder):
        raise ServicesError(f"ls {uri}: the services are not up; run `make up`")
    services = up(folder=folder)
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    stores = {store.bucket: store for store in (services.source_store, services.mirror_store)}
    if scheme != "s3" or bucket not in stores:
        raise ServicesError(f"ls {uri}: want one of {', '.join(f's3://{name}/…' for name in stores)}")
    for page in stores[bucket].client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for one in page.get("Contents", []):
            print(f"{one['Size']:>12,}  {one['LastModified']:%Y-%m-%d %H:%M:%S}  s3://{bucket}/{one['Key']}")


def _sentence(err: ServicesError) -> str:
    return f"services: {err}"


def short(path: Path) -> Path:
    """As one would type it from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

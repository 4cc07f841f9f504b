"""Small objects from one SeaweedFS to the other, by obstore, by the wire, and by rclone where it is installed.

    make up && .venv/bin/python -m tests.perf.wires --objects 2000

Seconds elapsed, and seconds of the processor in the copying process: client and servers share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import obstore

from dev.services import S3Store, Services, up
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.clients import Clients
from lakemirror.storage.keys import check_key
from lakemirror.storage.wire import open_wire

SIZE_BYTES = 65_536
Copy = Callable[[str, str], Awaitable[None]]


async def at_once(count: int, names: Sequence[str], work: Callable[[str], Awaitable[None]]) -> None:
    waiting = iter(names)

    async def worker() -> None:
        for name in waiting:
            await work(name)

    await asyncio.gather(*(worker() for _ in range(count)))


async def measure(services: Services, objects: int, tasks: int) -> None:
    source, mirror = services.source_store, services.mirror_store
    run = uuid.uuid4().hex
    names = [f"{number:06d}" for number in range(objects)]
    reading, writing = Clients(source.properties, None), Clients(mirror.properties, None)
    read_wire, write_wire = open_wire(source.properties), open_wire(mirror.properties)

    def from_(name: str) -> str:
        return f"s3://{source.bucket}/{run}/{name}"

    async def seed(name: str) -> None:
        address = check_key(from_(name))
        await obstore.put_async(reading.open(address), address.key, os.urandom(SIZE_BYTES))

    async def obstore_get(name: str) -> bytes:
        address = check_key(from_(name))
        answer = await obstore.get_async(reading.open(address), address.key)
        return (await answer.bytes_async()).to_bytes()

    async def obstore_put(uri: str, data: bytes) -> None:
        address = check_key(uri)
        await obstore.put_async(writing.open(address), address.key, data, mode="create", use_multipart=False)

    async def wire_get(name: str) -> bytes:
        return await read_wire.read(from_(name), 0, SIZE_BYTES)

    async def wire_get_compared(name: str) -> bytes:
        return await read_wire.read(from_(name), 0, SIZE_BYTES, size_bytes=SIZE_BYTES)

    async def wire_put(uri: str, data: bytes) -> None:
        await write_wire.create(uri, data, crc32c_of(data))

    await at_once(tasks, names, seed)
    for label, get, put in (
        ("obstore / obstore", obstore_get, obstore_put),
        ("obstore / wire", obstore_get, wire_put),
        ("wire / wire", wire_get, wire_put),
        ("wire, MD5 compared / wire", wire_get_compared, wire_put),
    ):
        to = f"s3://{mirror.bucket}/{uuid.uuid4().hex}"

        async def copy(name: str, get: object = get, put: object = put, to: str = to) -> None:
            await put(f"{to}/{name}", await get(name))  # type: ignore[operator]

        began, busy = time.perf_counter(), time.process_time()
        await at_once(tasks, names, copy)
        told(label, time.perf_counter() - began, time.process_time() - busy)
    await read_wire.close()
    await write_wire.close()
    rclone = Path(sys.executable).with_name("rclone")
    if rclone.exists() or shutil.which("rclone"):
        by_rclone(str(rclone if rclone.exists() else "rclone"), source, mirror, run, tasks)


def by_rclone(rclone: str, source: S3Store, mirror: S3Store, run: str, tasks: int) -> None:
    settings = {
        f"RCLONE_CONFIG_{name}_{key}": value
        for name, store in (("SOURCE", source), ("MIRROR", mirror))
        for key, value in {
            "TYPE": "s3",
            "PROVIDER": "SeaweedFS",
            "ENDPOINT": store.endpoint,
            "REGION": store.region,
            "ACCESS_KEY_ID": store.access_key_id,
            "SECRET_ACCESS_KEY": store.secret_access_key,
        }.items()
    }
    paths = [f"source:{source.bucket}/{run}", f"mirror:{mirror.bucket}/{uuid.uuid4().hex}"]
    command = [rclone, "copy", *paths, "--transfers", str(tasks), "--checkers", str(tasks), "--config", os.devnull]
    began, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, env={**os.environ, **settings}, timeout=600)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    told("rclone", time.perf_counter() - began, busy)


def told(label: str, elapsed_s: float, busy_s: float) -> None:
    print(f"{label:26} {elapsed_s:7.2f} s   processor {busy_s:6.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--tasks", type=int, default=32)
    arguments = parser.parse_args()
    asyncio.run(measure(up(), arguments.objects, arguments.tasks))


if __name__ == "__main__":
    main()

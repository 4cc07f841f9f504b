"""Starts the servers of the profile side by side, each after those it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from dev.services import gcsemu, hms, iceberg_rest, moto, postgres, seaweed, spark_cluster
from dev.services.builds import Build, Cache
from dev.services.endpoints import STATE_DATABASE, Services
from dev.services.folder import ServicesFolder
from dev.services.iceberg_rest import RestCatalog
from dev.services.layout import DATABASES, MIRROR_CATALOG, MIRROR_STORE, SOURCE_CATALOG, SOURCE_STORE, Parts
from dev.services.seaweed import S3Store
from dev.services.servers import Server, Servers
from dev.services.trouble import ServicesError

T = TypeVar("T")
MOST_AT_ONCE = 16  # more than there are steps: a step that waits for another must not keep it from running


class _NeededFailed(ServicesError):
    """Something that this one needs did not start; that one is reported, this one need not be."""


class Starting:
    """One run of `up`."""

    def __init__(
        self,
        folder: ServicesFolder,
        cache: Cache,
        servers: Servers,
        tell: Callable[[str], None],
        services: Services,
        at: Mapping[str, int],
    ) -> None:
        self._folder = folder
        self._cache = cache
        self._servers = servers
        self._tell = tell
        self._services = services
        self._at = at
        self._started: list[str] = []
        self._guard = threading.Lock()

    def run(self, parts: Parts) -> tuple[str, ...]:
        """The names of those that did not run before. ServicesError: what did not start, all of it."""
        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            futures = self._submit(pool, parts)
        failures = [future.exception() for future in futures]
        told = [err for err in failures if err is not None and not isinstance(err, _NeededFailed)]
        strange = next((err for err in told if not isinstance(err, ServicesError)), None)
        if strange is not None:
            raise strange
        if told:
            raise ServicesError("\n".join(str(err) for err in told))
        return tuple(sorted(self._started))

    def _submit(self, pool: ThreadPoolExecutor, parts: Parts) -> Sequence[Future[Any]]:
        services = self._services
        made = {build.name: pool.submit(self._build, build) for build in parts.builds}
        sql = pool.submit(self._postgres, parts)
        futures: list[Future[Any]] = [*made.values(), sql]
        for name, store in ((SOURCE_STORE, services.source_store), (MIRROR_STORE, services.mirror_store)):
            futures.append(pool.submit(self._seaweed, name, store))
        futures.append(pool.submit(self._run, moto.server(self._at["moto/http"])))
        rest = made[iceberg_rest.BUILD.name]
        for name, catalog, store in (
            (SOURCE_CATALOG, services.source_catalog, services.source_store),
            (MIRROR_CATALOG, services.mirror_catalog, services.mirror_store),
        ):
            futures.append(pool.submit(self._rest, name, catalog, store, rest, sql))
        if parts.gcs:
            futures.append(pool.submit(self._gcsemu, made[gcsemu.BUILD.name]))
        if parts.hms:
            futures.append(pool.submit(self._hms, made[hms.BUILD.name], sql))
        if parts.spark:
            master = pool.submit(self._spark_master)
            futures.append(master)
            futures += [pool.submit(self._spark_worker, name, master) for name in spark_cluster.WORKERS]
        return futures

    def _run(self, server: Server) -> None:
        if self._servers.ensure(server):
            self._tell(f"{server.name}: up")
            with self._guard:
                self._started.append(server.name)

    def _build(self, build: Build) -> Path:
        return build.ensure(self._cache, self._tell)

    def _postgres(self, parts: Parts) -> None:
        self._run(postgres.server(self._folder, self._services.postgres))
        names = [STATE_DATABASE, *DATABASES.values(), *([hms.DATABASE] if parts.hms else [])]
        postgres.make_databases(self._services.postgres, names)

    def _seaweed(self, name: str, store: S3Store) -> None:
        self._run(seaweed.server(name, self._folder, {one: self._at[f"{name}/{one}"] for one in seaweed.PORTS}, store))
        seaweed.make_bucket(store)

    def _rest(
        self,
        name: str,
        catalog: RestCatalog,
        store: S3Store,
        build: Future[Path],
        sql: Future[None],
    ) -> None:
        needed(sql)
        server = iceberg_rest.server(
            name,
            self._at[f"{name}/http"],
            needed(build),
            catalog=catalog,
            database=(self._services.postgres, DATABASES[name]),
            store=store,
            gcs_endpoint=gcsemu.endpoint(self._at[f"{gcsemu.NAME}/http"]),
        )
        self._run(server)

    def _gcsemu(self, build: Future[Path]) -> None:
        port, pubsub = self._at[f"{gcsemu.NAME}/http"], self._at[f"{gcsemu.NAME}/pubsub"]
        self._run(gcsemu.server(port, pubsub, needed(build)))
        gcsemu.make_bucket(gcsemu.endpoint(port))

    def _hms(self, build: Future[Path], sql: Future[None]) -> None:
        needed(sql)
        hms.make_schema(needed(build), self._services.postgres)
        self._run(hms.server(self._folder, self._at[f"{hms.NAME}/thrift"], needed(build), self._services.postgres))

    def _spark_master(self) -> None:
        name = spark_cluster.MASTER
        self._run(spark_cluster.master(self._at[f"{name}/rpc"], self._at[f"{name}/web"]))

    def _spark_worker(self, name: str, master: Future[None]) -> None:
        needed(master)
        worker = spark_cluster.worker(
            name,
            self._folder,
            self._at[f"{name}/rpc"],
            self._at[f"{name}/web"],
            master_web_port=self._at[f"{spark_cluster.MASTER}/web"],
            master_uri=spark_cluster.uri(self._at[f"{spark_cluster.MASTER}/rpc"]),
        )
        self._run(worker)


def needed(future: Future[T]) -> T:
    """The result of another step."""
    if future.exception() is not None:
        raise _NeededFailed("what this needs did not start")
    return future.result()

"""The readers and rewriters of single files, each given hostile bytes directly: a hundred times faster than a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.formats.iceberg import delete_files, manifest, manifest_list, metadata_json
from lakemirror.formats.iceberg.avro_walk import Engine, native_module
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.formats.iceberg.plain_manifest import PlainRules
from lakemirror.model.lease import Lease
from lakemirror.model.marker import Marker
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate import segments
from tests.fuzz import seeds

MIRROR = "gs://mirror/lake/db/t"
# One place, or two whose order the map turns round, so that rows must be sorted.
MAPS = (
    PrefixMap.of({seeds.PLACE: MIRROR}),
    PrefixMap.of(
        {f"{seeds.PLACE}/v2": f"{MIRROR}/z", seeds.PLACE: f"{MIRROR}/a", f"{seeds.PLACE}/v2_orc": f"{MIRROR}/b"}
    ),
)


class _AnyManifest(Mapping[str, manifest_list.MirroredManifest]):
    """Every manifest was rewritten."""

    def __getitem__(self, path: str) -> manifest_list.MirroredManifest:
        return manifest_list.MirroredManifest(MAPS[0].map(path), 7)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(())

    def __len__(self) -> int:
        return 0


class _AnyFacts(Mapping[str, DeleteFileFacts]):
    """The facts of every delete file are known."""

    def __getitem__(self, target: str) -> DeleteFileFacts:
        return DeleteFileFacts(7, b"a", b"b")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(())

    def __len__(self) -> int:
        return 0


def read(uri: str, data: bytes) -> None:
    """All that is done with a file of this name; the last error is raised after all was tried."""
    failure: LakemirrorError | None = None
    for use in _uses(uri.rsplit("/", 1)[-1]):
        try:
            use(data, uri)
        except LakemirrorError as err:
            failure = err
    if failure is not None:
        raise failure


@lru_cache(maxsize=1)
def _engines() -> tuple[Engine, ...]:
    return ("c", "python") if native_module(None, {}) is not None else ("python",)


def _uses(name: str) -> list[Callable[[bytes, str], object]]:
    if name.endswith(".metadata.json"):
        return [_metadata]
    if name.endswith(".ready.json"):
        return [Marker.from_bytes]
    if name.endswith("lease.json"):
        return [Lease.from_bytes]
    if "deletes" in name or name.endswith(".stats"):
        return [_deletes(name)]
    if name.startswith("snap-"):
        return [manifest_list.read, _rewrite_list]
    if name.endswith(".avro"):
        return [use for engine in _engines() for use in (_read_manifest(engine), _rewrite_manifest(engine))]
    return [lambda data, uri: segments.decode(data, uri, pa.schema([]))]


def _metadata(data: bytes, uri: str) -> None:
    metadata = metadata_json.parse(data, uri)
    metadata_json.refuse_unsupported(metadata, uri)
    head = metadata_json.current_snapshot_id(metadata)
    kept = metadata_json.snapshots(metadata)
    metadata_json.statistics_files(metadata, kept)
    if head is None or head in kept:
        metadata_json.fingerprint_fields(metadata, head)
        metadata_json.for_mirror(metadata, MAPS[0], 1, head, kept, location=MIRROR)


def _deletes(name: str) -> Callable[[bytes, str], object]:
    file_format = "puffin" if name.endswith(".stats") else name.rpartition(".")[2]

    def use(data: bytes, uri: str) -> None:
        for paths in MAPS:
            new = delete_files.rewrite(data, uri, file_format, paths)
            delete_files.is_same(new.data, data, file_format, paths)

    return use


def _rewrite_list(data: bytes, uri: str) -> object:
    return manifest_list.rewrite(data, uri, _AnyManifest())


def _read_manifest(engine: Engine) -> Callable[[bytes, str], object]:
    def use(data: bytes, uri: str) -> None:
        for _ in manifest.live_parts(data, uri, MAPS[0], PlainRules.mapping(MAPS[0]), engine=engine):
            pass

    return use


def _rewrite_manifest(engine: Engine) -> Callable[[bytes, str], object]:
    def use(data: bytes, uri: str) -> None:
        for _ in manifest.rewritten(data, uri, MAPS[0], _AnyFacts(), engine=engine):
            pass

    return use

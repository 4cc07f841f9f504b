"""What is written is a function of the source and the prefix map: the same bytes on every machine and in every lane."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyiceberg.avro.codecs import KNOWN_CODECS

from lakemirror.errors import PermanentError
from lakemirror.replicate import manifests
from tests.avro_bytes import CODECS, block_bodies, header_of, packed, raw_container, unpacked
from tests.iceberg_files import data_files, delete_positions
from tests.integration.looking import check_whole, stable_objects
from tests.lake import Lake, path_of, rows
from tests.walkers import needs_c

pytestmark = pytest.mark.integration


def history(lake: Lake, codec: str = "gzip") -> None:
    """Data, position deletes, a delete and a schema change, mirrored in two steps."""
    from pyiceberg.types import StringType

    orders = lake.create(partitioned_by=["city"], properties={"write.avro.compression-codec": codec})
    orders.append(rows(5))
    orders.append(rows(5, 5, "Chur"))
    delete_positions(orders, [(data_files(orders)[0], 1)])
    lake.sync()
    with orders.refresh().update_schema() as schema:
        schema.add_column("note", StringType())
    orders.append(rows(3, 20))
    orders.delete("city = 'Chur'")
    lake.sync()


def again(lake: Lake) -> None:
    """Forget the mirror and make it anew from the same source."""
    shutil.rmtree(lake.mirror_folder)
    (lake.folder / "mirror.db").unlink()


def test_two_runs_write_the_same_bytes(lake: Lake) -> None:
    history(lake)
    again(lake)
    lake.sync()
    first = stable_objects(lake)
    again(lake)
    lake.sync()
    assert stable_objects(lake) == first
    check_whole(lake)


@needs_c
def test_both_walkers_streamed_or_whole_write_the_same_bytes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    history(lake)
    made = []
    for walker in ("c", "python"):
        for whole_bytes in (manifests.WHOLE_BYTES, 0):
            monkeypatch.setenv("LAKEMIRROR_WALKER", walker)
            monkeypatch.setattr(manifests, "WHOLE_BYTES", whole_bytes)
            again(lake)
            lake.sync()
            made.append(stable_objects(lake))
            check_whole(lake)
    assert all(one == made[0] for one in made)


class Snappy:
    """For pyiceberg, which has none without a package that is not here."""

    @staticmethod
    def compress(data: bytes) -> tuple[bytes, int]:
        return (body := packed("snappy", data)), len(body)

    @staticmethod
    def decompress(data: bytes) -> bytes:
        return unpacked("snappy", data)


@pytest.mark.parametrize("codec", CODECS)
def test_both_lanes_and_any_portioning_write_the_same_bytes(
    lake: Lake, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pyiceberg packs manifests and lists with; the mirror's are packed alike."""
    monkeypatch.setitem(KNOWN_CODECS, "snappy", Snappy)
    history(lake, codec)
    made = []
    for knobs in ("{}", "{small_change_files: 0}", "{small_change_files: 0, bin_files: 1, ledger_flush_files: 1}"):
        again(lake)
        text = lake.config_path.read_text().splitlines()
        lake.config_path.write_text(
            "\n".join(f"defaults: {knobs}" if line.startswith("defaults:") else line for line in text)
        )
        lake.sync()
        made.append(stable_objects(lake))
    assert made[0] == made[1] == made[2]
    check_whole(lake)
    theirs, ours = (
        {path.name: header_of(path.read_bytes())["avro.codec"] for path in folder.glob("**/metadata/*.avro")}
        for folder in (lake.warehouse, lake.mirror_folder)
    )
    assert ours.items() <= theirs.items()
    assert [*ours.values()].count(codec) > 3
    assert lake.mirror_rows() == lake.source_rows()


def recompressed(path: Path) -> int:
    """The same Avro file, as another compressor would have written it."""
    data = path.read_bytes()
    new = raw_container(header_of(data), block_bodies(data), level=0)
    new = new.replace(bytes(range(16)), _sync(data))
    assert len(new) != len(data)
    path.write_bytes(new)
    return len(new)


def _sync(data: bytes) -> bytes:
    return data[-16:]


def test_rewritten_files_of_another_compressor_are_adopted_with_their_lengths(lake: Lake) -> None:
    """A run on another machine was killed before it published; its manifests are as good as ours."""
    history(lake)
    again(lake)
    lake.mirror()
    shutil.rmtree(lake.mirror_folder / "shop/orders/_ready")
    for kind in ("_plan", "_ledger"):
        shutil.rmtree(lake.mirror_folder / "shop/orders" / kind)
    manifests = [*(lake.mirror_folder / "shop/orders/metadata").glob("*-m*.avro")]
    lengths = {f"file://{path}": recompressed(path) for path in manifests}
    for path in (lake.mirror_folder / "shop/orders/metadata").glob("snap-*.avro"):
        path.unlink()
    lake.sync()
    seen = check_whole(lake)
    assert {path: one["manifest_length"] for path, one in seen.manifests.items()} == lengths
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("kind", ["*-m*.avro", "snap-*.avro"])
def test_other_records_under_a_rewritten_files_key_are_a_stop(lake: Lake, kind: str) -> None:
    history(lake)
    again(lake)
    lake.mirror()
    folder = lake.mirror_folder / "shop/orders"
    shutil.rmtree(folder / "_ready")
    path = next(folder.joinpath("metadata").glob(kind))
    data = path.read_bytes()
    bodies = [(count, body.replace(b"mirror", b"MIRROR")) for count, body in block_bodies(data)]
    path.write_bytes(raw_container(header_of(data), bodies))
    with pytest.raises(PermanentError, match="another object with other records lies under this key") as caught:
        lake.mirror()
    assert caught.value.subject == f"file://{path}"
    assert lake.ready() == []


@pytest.mark.parametrize(
    ("same_size", "words"),
    [
        (False, r"want \d+ bytes with crc32c [0-9a-f]{8}, got 7 bytes"),
        (True, r"want \d+ bytes with crc32c [0-9a-f]{8}, got \d+ with [0-9a-f]{8}"),
    ],
)
def test_a_foreign_object_under_a_data_files_key_is_a_stop_naming_both(lake: Lake, same_size: bool, words: str) -> None:
    orders = lake.create()
    orders.append(rows(3))
    (source,) = data_files(orders)
    target = Path(source.removeprefix("file://").replace(str(lake.warehouse), str(lake.mirror_folder)))
    target.parent.mkdir(parents=True)
    foreign = path_of(source).read_bytes()[::-1] if same_size else b"foreign"
    target.write_bytes(foreign)
    with pytest.raises(PermanentError, match=words):
        lake.mirror()
    assert (target.read_bytes(), lake.ready()) == (foreign, [])
    target.unlink()
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()

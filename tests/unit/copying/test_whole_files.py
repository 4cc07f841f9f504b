"""Files that go whole: which ones, and how an MD5 that only their ETag tells is compared by the mirror's store."""

from __future__ import annotations

import hashlib

import pytest

from lakemirror.copying.copier import Copier
from lakemirror.copying.model import CopyItem, CopySettings
from lakemirror.storage.md5_tags import Md5Tag
from tests.unit.copying.conftest import Buckets, run
from tests.wires import Act, FaultyWire, WireFault

BODY = b"12345678"
FLIP = [WireFault("read", Act.FLIP)]


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        (CopySettings(), 64 * 1024**2),
        (CopySettings(whole_bytes=1), 16 * 1024**2),
        (CopySettings(memory_bytes=60 * 10**6), 16 * 1024**2),
        (CopySettings(memory_bytes=90 * 10**6), 24 * 10**6),
    ],
)
def test_a_file_goes_whole_if_memory_holds_three_or_if_it_is_a_part(settings: CopySettings, most: int) -> None:
    assert settings.most_whole_bytes == most


@pytest.mark.parametrize(("size", "verbs"), [(20, ["create"]), (21, ["begin", "put_part", "put_part", "put_part"])])
def test_larger_ones_go_in_parts(buckets: Buckets, size: int, verbs: list[str]) -> None:
    item = buckets.put("f", b"x" * size)
    copier, _, mirror = buckets.copier(whole_bytes=20)
    run(copier.copy(item))
    assert [verb for verb, _ in mirror.calls if verb != "finish"] == verbs


def handed_over(
    buckets: Buckets, tag: bytes = BODY, **faults: list[WireFault]
) -> tuple[CopyItem, Copier, FaultyWire, FaultyWire]:
    """A copy whose source leaves the MD5 of `tag`, to a mirror that checks it."""
    item = buckets.put("f", BODY)
    copier, source, mirror = buckets.copier(**faults)  # type: ignore[arg-type]
    source.tags[item.source] = Md5Tag(hashlib.md5(tag, usedforsecurity=False).digest(), 0)
    mirror.checks_md5 = True
    return item, copier, source, mirror


def test_the_mirrors_store_compares_it(buckets: Buckets) -> None:
    item, copier, source, mirror = handed_over(buckets)
    run(copier.copy(item))
    assert (buckets.mirrored(), source.matched) == ({"f": BODY}, [item.source])
    assert (source.count("read"), mirror.count("create")) == (1, 1)


def test_a_bit_that_turned_on_the_way_from_the_source_is_found_by_it(buckets: Buckets) -> None:
    item, copier, source, mirror = handed_over(buckets, source=FLIP)
    run(copier.copy(item))
    assert (buckets.mirrored(), source.matched) == ({"f": BODY}, [])
    assert (source.count("read"), mirror.count("create")) == (2, 2)


def test_a_bit_that_turned_on_the_way_to_the_mirror_is_sent_again_without_reading(buckets: Buckets) -> None:
    item, copier, source, mirror = handed_over(buckets, mirror=[WireFault("create", Act.FLIP)])
    run(copier.copy(item))
    assert (buckets.mirrored(), source.matched) == ({"f": BODY}, [item.source])
    assert (source.count("read"), mirror.count("create")) == (1, 2)


def test_an_e_tag_that_is_no_md5_costs_a_second_read(buckets: Buckets) -> None:
    item, copier, source, _ = handed_over(buckets, tag=b"something else")
    run(copier.copy(item))
    assert (buckets.mirrored(), source.matched, source.count("read")) == ({"f": BODY}, [], 2)


def test_bytes_that_were_misread_do_not_make_a_stranger_of_what_is_there(buckets: Buckets) -> None:
    item, copier, source, _ = handed_over(buckets, source=FLIP)
    buckets.put("f", BODY, "mirror")
    source.tags[item.source] = Md5Tag(hashlib.md5(BODY, usedforsecurity=False).digest(), 0)
    assert run(copier.copy(item)).adopted


def test_a_mirror_that_does_not_check_is_sent_none(buckets: Buckets) -> None:
    item, copier, source, mirror = handed_over(buckets)
    mirror.checks_md5 = False
    run(copier.copy(item))
    assert (buckets.mirrored(), source.matched) == ({"f": BODY}, [])

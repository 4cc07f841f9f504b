from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from lakemirror.errors import PermanentError
from lakemirror.storage.objects import MemoryBuckets, ObstoreStore, capabilities
from lakemirror.storage.port import ObjectNotFound

ROOT = Path(__file__).parents[3]


def test_importing_and_making_a_store_loads_no_client_library() -> None:
    code = """
import sys
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wrappers import count, dry_run, fault, limit, retry
ObstoreStore({"s3.region": "r"})
print(sorted({"obstore", "google_crc32c", "pyiceberg", "pyarrow"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "plugins", capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_each_uri_goes_to_its_own_store(tmp_path: Path) -> None:
    store = ObstoreStore({})
    store.put("memory://m/x", b"memory")
    store.put(f"{tmp_path}/x", b"file")
    assert store.get("memory://m/x").data == b"memory"
    assert (tmp_path / "x").read_bytes() == b"file"
    with pytest.raises(ObjectNotFound):
        store.get("memory://other/x")
    store.delete(["memory://m/x", f"file:{tmp_path}/x"])
    assert [*store.list("memory://m"), *store.list(f"file://{tmp_path}")] == []


def test_nothing_is_deleted_if_one_key_is_bad(tmp_path: Path) -> None:
    store = ObstoreStore({})
    store.put(f"{tmp_path}/x", b"")
    with pytest.raises(PermanentError):
        store.delete([f"{tmp_path}/x", "memory://m/a//b"])
    assert (tmp_path / "x").exists()


def test_memory_is_shared_only_on_purpose() -> None:
    shared = MemoryBuckets()
    ObstoreStore({}, memory=shared).put("memory://m/x", b"1")
    assert ObstoreStore({}, memory=shared).get("memory://m/x").data == b"1"
    with pytest.raises(ObjectNotFound):
        ObstoreStore({}).get("memory://m/x")


def test_pickles(tmp_path: Path) -> None:
    store = ObstoreStore({"file.sync": "true"})
    store.put(f"{tmp_path}/x", b"1")
    copy: ObstoreStore = pickle.loads(pickle.dumps(store))
    assert copy.get(f"{tmp_path}/x").data == b"1"
    assert repr(copy) == repr(store) == "ObstoreStore(file.sync='true')"


def test_capabilities_are_those_of_the_scheme() -> None:
    assert capabilities("file:///a").atomic_create_streams
    assert capabilities("memory://m").atomic_create_streams
    assert capabilities("s3a://b/k").atomic_create_streams
    assert not capabilities("gs://b").e_tags_in_lists

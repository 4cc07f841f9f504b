"""What travels to executors with a store: its own properties, and nothing of the catalog beside it."""

from __future__ import annotations

import pickle

from lakemirror.storage.objects import ObstoreStore


def test_a_catalogs_secrets_stay_at_home() -> None:
    catalog = {"uri": "postgresql://u:hush@h/db", "credential": "hush", "token": "hush"}  # pragma: allowlist secret
    store = ObstoreStore({**catalog, "s3.endpoint": "http://127.0.0.1:1", "s3.secret-access-key": "bucket-key"})
    data = pickle.dumps(store)
    assert b"hush" not in data
    assert b"bucket-key" in data

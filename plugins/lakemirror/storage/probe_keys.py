"""Which characters of keys a store keeps: written, listed, and read back under the very same spelling."""

from __future__ import annotations

from typing import Final

from lakemirror.errors import PermanentError
from lakemirror.storage.port import ObjectStore

ODD: Final = "=%+, ü雪;:@&$!'()*~^`|<>{}[]\"#?\\"
"""Those of table paths first (partition values), then what else a key may hold."""


def spoiled_characters(store: ObjectStore, folder: str) -> str:
    """The odd characters that the store does not keep; a few requests if it keeps all, some for each if not."""
    if _keeps(store, f"{folder}/all", f"a{ODD}z%25z+%2B"):
        return ""
    return "".join(
        character
        for number, character in enumerate(ODD)
        if not _keeps(store, f"{folder}/{number}", f"a{character}z/{character}/x{character}")
    )


def _keeps(store: ObjectStore, folder: str, key: str) -> bool:
    uri = f"{folder}/{key}"
    try:
        store.put(uri, key.encode())
        listed = [info.uri for info in store.list(folder)]
        return listed == [uri] and store.get(uri).data == key.encode()
    except PermanentError:
        return False

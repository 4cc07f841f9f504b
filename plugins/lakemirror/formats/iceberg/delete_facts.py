"""What every rewriter of delete files works with: the paths it mapped, and the file and facts that come out."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.model.paths import PrefixMap

MAX_FILES = 1 << 20  # that one delete file may be for
DELETE_POSITION = 2147483545  # the reserved field id of a position delete's pos column; its path's is in `manifest`


@dataclass(frozen=True, slots=True)
class RewrittenDeletes:
    """A delete file for the mirror; the facts' bounds are those of all paths in it.

    A deletion vector's own bounds are its referenced data file.
    """

    data: bytes
    facts: DeleteFileFacts


@dataclass(frozen=True, slots=True)
class MappedPaths:
    """The paths of one delete file and their places in the mirror, each mapped once."""

    paths: PrefixMap  # of the source to the mirror
    seen: dict[str, str] = field(default_factory=dict)

    def map(self, path: str | None, uri: str) -> str:
        found = self.seen.get(path) if path else None
        if found is not None:
            return found
        if not path:
            raise damaged(uri, "a row has no path")
        if len(self.seen) >= MAX_FILES:
            raise UnsupportedError(
                "read position deletes", uri, f"it is for more than {MAX_FILES} data files", "rewrite it on the source"
            )
        return self.seen.setdefault(path, self.paths.map(path))

    @property
    def must_sort(self) -> bool:
        """True if rows sorted by path would not be so any more: another order, or two spellings of one file."""
        targets = [self.seen[path] for path in sorted(self.seen)]
        return targets != sorted(targets) or len({*targets}) < len(targets)

    def rewritten(self, data: bytes, uri: str) -> RewrittenDeletes:
        """A file without rows has no bounds."""
        targets = self.seen.values()
        lower, upper = (min(targets).encode(), max(targets).encode()) if targets else (None, None)
        return RewrittenDeletes(data, DeleteFileFacts(len(data), lower, upper))


def damaged(uri: str, what: object) -> PermanentError:
    return PermanentError(
        "read position deletes", uri, str(what), "the source's file is damaged, or not a position delete file"
    )

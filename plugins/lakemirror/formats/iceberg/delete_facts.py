"""What comes out of rewriting a delete file of any kind: its bytes, and what its manifest entries must say of it."""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.formats.iceberg.manifest import DeleteFileFacts


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """One deletion vector of a Puffin file, as its manifest entry must describe it."""

    referenced_data_file: str  # in the mirror
    offset: int  # content_offset
    length: int  # content_size_in_bytes
    cardinality: int  # record_count


@dataclass(frozen=True, slots=True)
class RewrittenDeletes:
    """A delete file for the mirror; `vectors` is empty for position deletes.

    The bounds in the facts are those of all paths in the file. A deletion vector's own are its referenced data file.
    """

    data: bytes
    facts: DeleteFileFacts
    vectors: tuple[DeletionVector, ...] = ()

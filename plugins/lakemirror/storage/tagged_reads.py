"""Whether whole objects read over a line without TLS are what S3 keeps: by their ETag, where that is an MD5.

As `wires.sums`, for the synchronous store: other bytes than the ETag's are read once more. The same bytes twice are
what the store has, and its ETags are no MD5s; as soon as such odd ones outnumber the matching ones, none is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakemirror.storage.checksum import Tally
from lakemirror.storage.md5_tags import Md5Sum, Md5Tag, fits
from lakemirror.storage.port import Blob
from lakemirror.storage.wires.sums import misread


class TaggedReads:
    """The comparison for the objects of one store, with what it has learned of their ETags."""

    def __init__(self) -> None:
        self._matching = self._odd = 0

    def blob(self, read: Callable[[], Blob]) -> Blob:
        """What `read` reads, by one call of it if all is well."""
        blob = read()
        if self._fits(blob):
            return blob
        again = read()
        if self._fits(again):
            return again
        if again.data != blob.data:
            raise misread(blob.info.uri, "two reads gave two contents, neither of them that of its ETag")
        self._odd += 1
        return again

    def pieces(
        self, uri: str, e_tag: str | None, first: Iterator[bytes], again: Callable[[], Iterator[bytes]]
    ) -> Iterator[bytes]:
        """The pieces of `first`; at the end TransientError unless they are what the store keeps."""
        tag = self._tag(e_tag)
        if tag is None:
            yield from first
            return
        summed, tally = Md5Sum(tag), Tally()
        for piece in tally.over(first):
            summed.add(piece)
            yield piece
        if summed.fits:
            self._matching += 1
            return
        second = Tally()
        for _ in second.over(again()):
            continue
        if (second.size_bytes, second.crc32c) != (tally.size_bytes, tally.crc32c):
            raise misread(uri, "two reads gave two contents, and the first is not that of its ETag")
        self._odd += 1

    def _tag(self, e_tag: str | None) -> Md5Tag | None:
        tag = None if self._odd > self._matching else Md5Tag.of(e_tag)
        return tag if tag is not None and tag.is_comparable else None

    def _fits(self, blob: Blob) -> bool:
        tag = self._tag(blob.info.e_tag)
        if tag is None:
            return True
        is_equal = fits(tag, blob.data)
        self._matching += is_equal
        return is_equal

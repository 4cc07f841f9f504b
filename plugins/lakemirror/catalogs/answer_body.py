"""The body of an answer, read within a time and a size: a server that drips byte by byte is never silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lakemirror.errors import PermanentError

if TYPE_CHECKING:
    from requests import Response

MAX_ANSWER_BYTES: Final = 1 << 28
_PIECE_BYTES: Final = 1 << 16


def read_body(response: Response, op: str, subject: str, *, time_s: float, clock: Callable[[], float]) -> bytes:
    """OSError if it breaks off or is not whole after `time_s`; PermanentError if it is too large."""
    from urllib3.exceptions import HTTPError

    end_at = clock() + time_s
    data = bytearray()
    try:
        while piece := response.raw.read1(_PIECE_BYTES, decode_content=True):  # what came, not so many bytes
            data += piece
            if len(data) > MAX_ANSWER_BYTES:
                raise PermanentError(op, subject, f"the answer has more than {MAX_ANSWER_BYTES} bytes", "ask for less")
            if clock() > end_at:
                raise TimeoutError(f"the answer was not whole after {time_s:g} s")
    except HTTPError as err:
        raise OSError(f"{type(err).__name__}: {err}") from err
    return bytes(data)

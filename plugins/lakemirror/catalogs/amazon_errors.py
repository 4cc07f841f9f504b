"""Which errors of Amazon's services pass: by their code, or by the status where a proxy answered and there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_PASSING: Final = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "InternalServiceException",
        "OperationTimeoutException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "InternalError",
        "ExpiredToken",
        "ExpiredTokenException",
        "IDPCommunicationError",
    }
)


def code_of(err: ClientError) -> str:
    return str(err.response.get("Error", {}).get("Code", ""))


def passes(err: ClientError) -> bool:
    """The service is busy or in trouble, or the way to it is; what was asked may have been done. 501 is a plain no."""
    status = int(err.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return code_of(err) in _PASSING or status in (408, 429) or (status >= 500 and status != 501)


@contextmanager
def reading() -> Iterator[None]:
    """Around a call of botocore's and what is taken from its answer, never around what we make of that.

    Whatever botocore stumbles over in an answer that is no service's becomes its own ResponseParserError. Neither the
    text of the error nor the error itself is kept: they quote the answer, which may be one with a secret.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (BotoCoreError, ClientError, OSError):
        raise
    except Exception as err:  # noqa: BLE001 - KeyError, TypeError, …: botocore does not check what it reads
        raise ResponseParserError(type(err).__name__) from None

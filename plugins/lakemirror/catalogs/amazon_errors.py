"""Which errors of Amazon's services pass: by their code, or by the status where a proxy answered and there is none."""

from __future__ import annotations

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

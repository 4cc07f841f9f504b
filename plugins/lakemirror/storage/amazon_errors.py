"""Errors of Amazon's services and of logging in to them: which pass, and what may be told of them.

A service's own error passes by its code, or by the status where a proxy answered and there is none. Whoever lends
credentials may be far away, too. Their errors are told by type and code alone: what else they say may quote what was
sent, or an answer with a secret in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

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
        "FederationSourceRetryableException",
    }
)
_ON_THIS_MACHINE: Final = ("custom-process", "Environment")  # providers; all others are asked over the network
_LOGINS: Final = ("botocore.credentials", "botocore.tokens")


def code_of(err: Exception) -> str:
    """Empty if no service told it."""
    from botocore.exceptions import ClientError

    return str(err.response.get("Error", {}).get("Code", "")) if isinstance(err, ClientError) else ""


def passes(err: Exception) -> bool:
    """The service is busy or in trouble, or the way to it is; what was asked may have been done. 501 is a plain no.

    A file that cannot be read passes: somebody else writes it, as the tokens of a cluster.
    """
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError

    if isinstance(err, boto.ClientError):
        status = int(err.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return code_of(err) in _PASSING or status in (408, 429) or (status >= 500 and status != 501)
    if isinstance(err, boto.CredentialRetrievalError):
        return err.kwargs.get("provider") not in _ON_THIS_MACHINE
    far = (boto.HTTPClientError, boto.ConnectionError, boto.MetadataRetrievalError, boto.IncompleteReadError)
    return isinstance(err, (*far, ResponseParserError, OSError))


def wordless(err: Exception) -> str:
    """What may be told of it everywhere."""
    told = code_of(err)
    if isinstance(err, OSError):
        told = err.strerror or "no more is told"
    return f"{type(err).__name__}: {told}" if told else type(err).__name__


def words_of(err: Exception, client: Any) -> str:
    """What the service of this client said of its own; empty if it was none, or whoever lends credentials."""
    from botocore.exceptions import ClientError

    if not isinstance(err, ClientError) or client is None:
        return ""
    if err.operation_name not in client.meta.service_model.operation_names:
        return ""
    return str(err.response.get("Error", {}).get("Message", "")) or "no words"


def kinds(*passed: type[Exception]) -> tuple[type[Exception], ...]:
    """All that comes out of `reading`. OSError is of a login's file: what goes wrong on the way is botocore's own."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return (BotoCoreError, ClientError, ResponseParserError, OSError, *passed)


@contextmanager
def reading(*passed: type[Exception]) -> Iterator[None]:
    """Around a call of botocore's and what is taken from its answer, never around what we make of that.

    Whatever botocore stumbles over in an answer that is no service's becomes its own ResponseParserError. Neither the
    text of the error nor the error itself is kept: they quote the answer, which may be one with a secret.
    `passed`: what else comes through as it is, where no service is asked yet but for credentials: a ValueError is then
    about what was configured.
    """
    from botocore.parsers import ResponseParserError

    keep_words_out_of_logs()
    try:
        yield
    except ResponseParserError:
        raise ResponseParserError("not told") from None
    except UnicodeError as err:  # a ValueError, but of an answer
        raise ResponseParserError(type(err).__name__) from None
    except kinds(*passed):
        raise
    except Exception as err:  # noqa: BLE001 - KeyError, TypeError, …: botocore does not check what it reads
        raise ResponseParserError(type(err).__name__) from None


class _Wordless(logging.Filter):
    """botocore logs what renewing credentials failed of, with the answer in it: its type is enough."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            kind = record.exc_info[0]
            record.msg = f"{record.msg} ({'' if kind is None else kind.__name__})"
            record.exc_info = record.exc_text = None
        return True


_WORDLESS: Final = _Wordless()


def keep_words_out_of_logs() -> None:
    """`reading` does so; call it where botocore is used by somebody else for us."""
    for name in _LOGINS:
        logging.getLogger(name).addFilter(_WORDLESS)  # once: it is the same one

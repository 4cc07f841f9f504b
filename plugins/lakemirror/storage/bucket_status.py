"""What obstore says of objects, in the words of the port: descriptions, e_tags, errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.storage.checksum import Tally
from lakemirror.storage.keys import Address
from lakemirror.storage.metering import mark
from lakemirror.storage.port import EXPIRED, ConditionFailed, ObjectInfo, ObjectNotFound, has_expired

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult

    from lakemirror.storage.clients import Client

_REASON_CHARS: Final = 300
_DENIED: Final = frozenset(
    {"AccessDenied", "AccountProblem", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
_CODE: Final = re.compile(r"<Code>\s*(\w{1,100})\s*</Code>")


def info_of(address: Address, meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(f"{address.root}{meta['path']}", meta["size"], e_tag_of(address, meta), meta["last_modified"])


def e_tag_of(address: Address, said: ObjectMeta | PutResult) -> str | None:
    """What a later IfMatch must name: GCS compares generations, the others e_tags."""
    return said["version"] if address.kind == "gs" else said["e_tag"]


def head_of(client: Client, key: str) -> ObjectMeta:
    """What obstore says of an object. A HEAD that is refused does not say why: then a read of one byte is asked."""
    import obstore
    from obstore import exceptions

    try:
        return obstore.head(client, key)
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as err:
        mark("get")
        try:
            obstore.get_range(client, key, start=0, length=1)
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, exceptions.GenericError) as told:
            if _code_of(told) in EXPIRED:
                raise told from err
        except (exceptions.BaseError, OSError, ValueError):
            pass  # whatever else a read meets is no answer to what was asked
        raise


@contextmanager
def explained(op: str, uri: str, written: Tally | None = None, target_uri: str | None = None) -> Iterator[None]:
    """Turn obstore's errors into the port's, by type; the error of a body being written is not ours and passes."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.BaseError, OSError, ValueError, NotImplementedError) as err:
        if written is not None and written.failure is not None:
            raise written.failure from None
        if isinstance(err, exceptions.AlreadyExistsError | exceptions.PreconditionError | exceptions.NotModifiedError):
            message = "the object exists already, or is not what it was"
            raise ConditionFailed(op, target_uri or uri, message, "read it, and decide") from err
        raise _translated(err, op, uri) from err


@contextmanager
def as_put(uri: str) -> Iterator[None]:
    """Name the verb of this port in errors of the wire; what the body itself raised is about another URI."""
    try:
        yield
    except LakemirrorError as err:
        if err.subject == uri:
            err.op = "put"
            err.args = ("put", *err.args[1:])  # from which it is made again in another process
        raise


def _translated(err: Exception, op: str, uri: str) -> Exception:
    from obstore import exceptions

    reason = next(iter(str(err).splitlines()), type(err).__name__)[:_REASON_CHARS]
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)
    refused = (
        exceptions.InvalidPathError,
        exceptions.NotSupportedError,
        exceptions.UnknownConfigurationKeyError,
        NotImplementedError,
        ValueError,
    )
    if isinstance(err, FileNotFoundError):
        return ObjectNotFound(op, uri, "there is no such object or bucket", "check the URI")
    code = _code_of(err)
    if code in EXPIRED:
        return has_expired(op, uri, code)
    if isinstance(err, denied) or code in _DENIED:
        return PermanentError(op, uri, f"access denied ({reason})", "check credentials and permissions")
    if isinstance(err, refused):
        return PermanentError(op, uri, f"the store refuses this ({reason})", "check URI and storage properties")
    return TransientError(op, uri, reason, "run again")


def _code_of(err: Exception) -> str:
    """By which the server says why: obstore has no type for expired credentials, nor for a listing that is refused."""
    code = _CODE.search(str(err))
    return "" if code is None else code[1]

"""The XML of S3 and GCS answers: parsed with the bounds of the answer, names without their namespaces."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from lakemirror.errors import PermanentError, TransientError


def parsed(op: str, uri: str, body: bytes) -> Element:
    """The document; a doctype is refused, because its entities could grow without bound."""
    if b"<!DOCTYPE" in body[:1024]:
        raise PermanentError(op, uri, "the answer has a doctype, which no store sends", "check the endpoint")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as err:
        raise TransientError(op, uri, f"the answer is no whole XML ({err})", "run again") from err


def text_in(element: Element, name: str, default: str | None = None) -> str:
    found = element.findtext(f"{{*}}{name}")
    if found is None:
        found = default
    if found is None:
        raise PermanentError("read answer", element.tag, f"it lacks {name}", "check the endpoint")
    return found

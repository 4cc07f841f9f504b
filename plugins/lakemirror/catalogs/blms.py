"""Google's BigLake metastore (Lakehouse runtime catalog): REST with Google's login and rules of its own.

| rule | what is done |
|---|---|
| login by Google's credentials | see google_login.py; `token` and `credential` are refused |
| `x-goog-user-project` | `gcs.project-id`, or `header.x-goog-user-project`; required |
| a warehouse | `warehouse`: `gs://<bucket>` or `bl://projects/<project>/catalogs/<catalog>`; required |
| vended credentials | `X-Iceberg-Access-Delegation: vended-credentials` goes with every request |
| a table lies in `<place of its namespace>/<table>` for good | checked before a commit |
| format version 1 is refused, 3 is a preview | refused before a commit; told in results |
| metadata of at most 1 MB | checked before a commit; `rest.max-metadata-bytes` if Google raised it |
| one level of namespaces, no multi-table commit, no idempotency keys | never asked for |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemirror.catalogs.dialect import Dialect
from lakemirror.catalogs.google_login import google_login
from lakemirror.catalogs.rest import RestCatalog, WithLease
from lakemirror.errors import UsageError

URI: Final = "https://biglake.googleapis.com/iceberg/v1/restcatalog"
MAX_METADATA_BYTES: Final = 1_000_000
PROJECT: Final = "header.x-goog-user-project"
DELEGATION: Final = "header.X-Iceberg-Access-Delegation"
BLMS: Final = Dialect(
    "blms",
    formats=(2, 3),
    preview_formats=(3,),
    max_metadata_bytes=MAX_METADATA_BYTES,
    has_namespace_levels=False,
    has_whole_swap=True,
    has_fixed_place=True,
)
_OTHER_LOGINS: Final = ("token", "credential", "rest.sigv4-enabled")


def open_blms(name: str, properties: Mapping[str, str], with_lease: WithLease | None = None) -> RestCatalog:
    return RestCatalog(name, blms_properties(name, properties), BLMS, make_login=google_login, with_lease=with_lease)


def blms_properties(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """What is given, with what BLMS wants besides. Names of headers are the same in any case of letters."""
    for key in _OTHER_LOGINS:
        if key in given:
            hint = "remove it: Google's credentials are used"
            raise UsageError("open catalog", name, f"{key} is not for a catalog of type blms", hint)
    found = {_header(key): value for key, value in given.items()}
    if PROJECT not in found and found.get("gcs.project-id"):
        found[PROJECT] = found["gcs.project-id"]
    for key, why in ((PROJECT, "it is the project that requests are charged to"), ("warehouse", "gs:// or bl://")):
        if not found.get(key):
            raise UsageError("open catalog", name, f"{key} is missing: {why}", f"set {key}")
    return {"uri": URI, DELEGATION: "vended-credentials", **found}


def _header(key: str) -> str:
    known = {one.lower(): one for one in (PROJECT, DELEGATION)}
    return known.get(key.lower(), key)

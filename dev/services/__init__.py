"""The services profile: real stores, real catalogs and a real database on this machine, for tests and for `make up`.

`up()` starts what is missing and returns how to get in; `down()` ends what was started. See docs/services.md.
"""

from __future__ import annotations

from dev.services.endpoints import Services
from dev.services.folder import ServicesFolder
from dev.services.iceberg_rest import RestCatalog
from dev.services.layout import Parts
from dev.services.seaweed import S3Store
from dev.services.stack import down, kill, running, stop, up
from dev.services.trouble import ServicesError, ToolMissing

__all__ = [
    "Parts",
    "RestCatalog",
    "S3Store",
    "Services",
    "ServicesError",
    "ServicesFolder",
    "ToolMissing",
    "down",
    "kill",
    "running",
    "stop",
    "up",
]

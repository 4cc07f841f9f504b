"""Where the objects of S3 properties are: endpoint, region, style of addressing, timeouts, proxy, as in clients.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakemirror.errors import PermanentError
from lakemirror.storage.clients import s3_credential, timeouts
from lakemirror.storage.keys import Address
from lakemirror.storage.wires.http import encoded, environment_proxy
from lakemirror.storage.wires.pool import Place


class S3Places:
    """Reads the properties once; `of` gives host and encoded path of an object or bucket."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.is_anonymous = properties.get("s3.anonymous", "false").lower() == "true"
        self.credential = None if self.is_anonymous else s3_credential(properties)
        self.region = (
            properties.get("s3.region")
            or properties.get("client.region")
            or os.environ.get("AWS_REGION")
            or os.environ.get("AWS_DEFAULT_REGION")
            or "us-east-1"
        )
        self._virtual = properties.get("s3.force-virtual-addressing", "false").lower() == "true"
        endpoint = properties.get("s3.endpoint") or f"https://s3.{self.region}.amazonaws.com"
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise PermanentError("open", "s3", "s3.endpoint is no address", "write http://host:port or https://host")
        self._scheme, self._netloc, self._below = parts.scheme, parts.netloc, parts.path.rstrip("/")
        self._proxy = properties.get("s3.proxy-uri") or environment_proxy(parts.scheme, parts.netloc)
        self._connect_s, self._read_s = timeouts(properties, "s3")
        self._places: dict[str, Place] = {}

    @property
    def is_amazon(self) -> bool:
        """Amazon's own service, not another server that speaks S3."""
        host = self._netloc.rpartition("@")[2].partition(":")[0].lower()
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    @property
    def has_tls(self) -> bool:
        return self._scheme == "https"

    def of(self, address: Address) -> tuple[Place, str]:
        place = self._places.get(address.bucket)
        if place is None:
            host = f"{address.bucket}.{self._netloc}" if self._virtual else self._netloc
            origin = f"{self._scheme}://{host}"
            place = self._places[address.bucket] = Place(origin, host, self._proxy, self._connect_s, self._read_s)
        bucket = "" if self._virtual else f"/{address.bucket}"
        return place, f"{self._below}{bucket}{f'/{encoded(address.key)}' if address.key else ''}" or "/"

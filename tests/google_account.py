"""A service account of Google's, made here, and the token server that knows its key."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

EMAIL = "mirror@shop.iam.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE = "https://oauth2.googleapis.com/token"  # whatever address the token server has
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_file(token_uri: str) -> dict[str, str]:
    """What Google hands out when a key is made."""
    pem = private_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "shop",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": token_uri,
    }


class TokenServer:
    """Gives a token for a signed assertion (RFC 7523), and knows which tokens are good."""

    def __init__(self, uri: str, lifetime_s: int = 3600) -> None:
        self.uri, self.lifetime_s = uri, lifetime_s
        self.issued: list[str] = []
        self.revoked: set[str] = set()

    def give(self, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        try:
            claims = _verified(form["assertion"][0])
            is_good = (claims["iss"], claims["aud"], claims["scope"]) == (EMAIL, AUDIENCE, SCOPE)
            is_good = is_good and claims["iat"] - 300 < time.time() < claims["exp"] and form["grant_type"] == [GRANT]
        except (KeyError, ValueError, InvalidSignature):
            is_good = False
        if not is_good:
            return 400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        self.issued.append(f"ya29.{uuid.uuid4().hex}")
        return 200, {"access_token": self.issued[-1], "expires_in": self.lifetime_s, "token_type": "Bearer"}

    def lets_in(self, authorization: str | None) -> bool:
        kind, _, token = (authorization or "").partition(" ")
        return kind == "Bearer" and token in self.issued and token not in self.revoked


def _verified(assertion: str) -> dict[str, Any]:
    head, claims, signature = assertion.split(".")
    key = private_key().public_key()
    key.verify(_decoded(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
    found: dict[str, Any] = json.loads(_decoded(claims))
    return found


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

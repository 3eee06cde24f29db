"""Makes key files with cryptography, and verifies signatures with http-message-signatures.

Neither shares code with ``politesse.signing``.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from http_message_signatures import HTTPMessageVerifier, MappingKeyResolver, VerifyResult, algorithms

AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"
COVERED: Final = ("@authority", "@method", "@path")


@dataclass(frozen=True)
class Key:
    """A key and its times, as a key file has them."""

    not_before_wall: float | None = 0.0
    expires_wall: float | None = 4_000_000_000.0
    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def jwk(self) -> dict[str, str]:
        return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.private.public_key().public_bytes_raw())}

    @property
    def thumbprint(self) -> str:
        """The name of the key (RFC 7638)."""
        return _base64url(hashlib.sha256(json.dumps(self.jwk, separators=(",", ":")).encode()).digest())

    @property
    def text(self) -> str:
        times = {"Not-Before": self.not_before_wall, "Expires": self.expires_wall}
        lines = [
            f"{name}: {datetime.fromtimestamp(at, UTC).isoformat()}\n" for name, at in times.items() if at is not None
        ]
        return "".join(lines) + self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def key_file(path: Path, *keys: Key) -> Path:
    """Write a key file, in place of an earlier file."""
    path.touch(0o600)
    path.write_text("".join(key.text for key in keys))
    return path


def _base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def public_keys(directory: Mapping[str, Any]) -> dict[str, Ed25519PublicKey]:
    """Return the keys of a JWK Set by their names."""
    octets = {key["kid"]: base64.urlsafe_b64decode(key["x"] + "=") for key in directory["keys"]}
    return {kid: Ed25519PublicKey.from_public_bytes(public) for kid, public in octets.items()}


def verified(
    message: SimpleNamespace, keys: Mapping[str, Ed25519PublicKey], *covered: str, tag: str = "web-bot-auth"
) -> VerifyResult:
    """Return the first signature of a message; raises InvalidSignature."""
    resolver = MappingKeyResolver(public_keys=keys, private_keys={})
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=resolver)
    return verifier.verify(message, expect_tag=tag, require_components=covered)[0]


def request(method: str, url: str, headers: Mapping[str, str]) -> SimpleNamespace:
    return SimpleNamespace(method=method, url=url, headers=dict(headers))

"""Verifies signatures with http-message-signatures, which shares no code with what signs."""

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, MappingKeyResolver, VerifyResult, algorithms

from politesse.signing._keys import SigningKey, write_keys

AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"
COVERED: Final = ("@authority", "@method", "@path")


def key_file(path: Path, keys: Iterable[SigningKey]) -> Path:
    """Write a key file, in place of an earlier file."""
    path.unlink(missing_ok=True)
    write_keys(path, keys, is_new=True)
    return path


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

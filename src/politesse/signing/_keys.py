"""The keys of a bot: a PEM file with one or more private keys, and the times between which each may be used.

The lines ``Not-Before`` and ``Expires`` before a key are explanatory text (RFC 7468 2), which other programs ignore. A
key without these lines, such as a key that openssl made, may always be used.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
import stat
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from politesse._base.checks import wrong_type
from politesse._base.constants import DAY_S
from politesse._base.text import type_name
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError
from politesse.verdict import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LOOK_S: Final = 5.0  # how often the file is read again
_BLOCK = re.compile(
    r"(?P<text>.*?)(?P<pem>-----BEGIN (?P<kind>[A-Z ]*)PRIVATE KEY-----.*?-----END (?P=kind)PRIVATE KEY-----)",
    re.DOTALL,
)
_TIME = re.compile(r"^(Not-Before|Expires): *(\S+)$", re.MULTILINE)
_TEST_KEY: Final = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"  # RFC 9421 B.1.4; its private half is public

_logger: Final = logging.getLogger("politesse.signing")


@dataclass(frozen=True, slots=True, eq=False)
class SigningKey:
    """An ed25519 key.

    Attributes:
        private: the private key.
        not_before_wall: the Unix time from which the key may be used.
        expires_wall: the Unix time at which the key expires; infinite if it never expires.
        thumbprint: the thumbprint of the public key (RFC 7638).
    """

    private: Ed25519PrivateKey = field(repr=False)
    not_before_wall: float = 0.0
    expires_wall: float = inf
    thumbprint: str = field(init=False)

    def __post_init__(self) -> None:
        # RFC 7638 3: the required members in the order of their names, without blanks.
        octets = json.dumps(self.jwk, separators=(",", ":")).encode()
        object.__setattr__(self, "thumbprint", _base64url(hashlib.sha256(octets).digest()))  # the class is frozen

    @property
    def jwk(self) -> dict[str, str]:
        """The members of the public key that the thumbprint covers (RFC 8037 2)."""
        return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.private.public_key().public_bytes_raw())}

    @property
    def times(self) -> str:
        """The lines of a key file that say when the key may be used."""
        times = (("Not-Before", self.not_before_wall), ("Expires", self.expires_wall))
        return "".join(f"{name}: {utc(at_wall)}\n" for name, at_wall in times if 0 < at_wall < inf)


class KeyFile:
    """The keys in a PEM file. ``valid`` and ``current`` read the file again after 5 s.

    Args:
        path: the file.
        clock: the clock; by default the clock of the system.

    Raises:
        ConfigurationError: see ``read_keys``.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Clock | None = None) -> None:
        if not isinstance(path, str | os.PathLike):
            raise wrong_type("key", path, "the path of a PEM file")
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._keys: Sequence[SigningKey] = ()
        self._problem = ""
        self._look_mono = -inf
        self.valid()

    @property
    def now_wall(self) -> int:
        """The Unix time, in whole seconds."""
        return int(self._clock.wall())

    def valid(self) -> list[SigningKey]:
        """Return the keys that have not expired; some may not be in use yet."""
        if self._clock.monotonic() >= self._look_mono:
            self._look_mono = self._clock.monotonic() + _LOOK_S
            try:
                self._keys, self._problem = read_keys(self._path), ""
            except ConfigurationError as error:
                if not self._keys:
                    raise
                if self._problem != str(error):
                    self._problem = str(error)
                    _logger.warning("The earlier keys stay in use: %s", error)
        return [key for key in self._keys if key.expires_wall > self.now_wall]

    def current(self) -> SigningKey:
        """Return the newest key that may be used now.

        Raises:
            ConfigurationError: no key may be used now.
        """
        now_wall = self.now_wall
        started = [key for key in self.valid() if key.not_before_wall <= now_wall]
        if not started:
            times = ", ".join(key.times.strip().replace("\n", " ") for key in self._keys)
            raise ConfigurationError(f"{self._path}: no key may be used now ({times}); run: politesse key rotate")
        return max(started, key=lambda key: key.not_before_wall)


def read_keys(path: Path) -> list[SigningKey]:
    """Return the keys of a PEM file.

    Raises:
        ConfigurationError: the file cannot be read, others may read it, or it has no key or a key that cannot be used.
    """
    try:
        with path.open(encoding="utf-8") as file:
            mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
    except (OSError, ValueError) as error:  # ValueError: the file is not UTF-8, or its name has a NUL
        raise ConfigurationError(f"{path}: the key cannot be read: {error}; politesse key new makes one") from error
    if os.name != "nt" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(f"{path}: other users may use the key (mode {mode:o}); run: chmod 600 {path}")
    keys = [_key(path, block) for block in _BLOCK.finditer(text)]
    if not keys:
        raise ConfigurationError(f"{path}: the file has no private key in PEM; politesse key new makes one")
    return keys


def write_keys(path: Path, keys: Iterable[SigningKey], *, is_new: bool) -> None:
    """Write a key file that only its owner may read; raises OSError, also if ``is_new`` and the file exists."""
    if not is_new:
        path = path.resolve()  # a new file in place of a link would leave the link's target without the new key
    blocks = []
    for key in keys:
        pem = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        blocks.append(f"Key: {key.thumbprint}\n{key.times}{pem}")
    # a name of its own, because a rotation that was killed leaves its file
    written = path if is_new else path.with_name(f"{path.name}.{token_hex(4)}.new")
    with os.fdopen(os.open(written, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join(blocks))
        file.flush()
        os.fsync(file.fileno())
    if not is_new:
        written.replace(path)


def new_key(not_before_wall: float, days: float) -> SigningKey:
    """Return a new key that may be used for some days."""
    return SigningKey(Ed25519PrivateKey.generate(), int(not_before_wall), int(not_before_wall + days * DAY_S))


def rotated(keys: Iterable[SigningKey], now_wall: float, days: float, ahead_days: float) -> list[SigningKey]:
    """Return the keys of a file with a new key, and without the keys that have expired.

    The new key is in use after ``ahead_days``, or when the last key expires, if that is earlier. By then each copy of
    the directory has the new key. A key that never expires gets an expiry: a day after the start of the new key.
    """
    kept = [key for key in keys if key.expires_wall > now_wall]
    starts_wall = min(now_wall + ahead_days * DAY_S, max((key.expires_wall for key in kept), default=now_wall))
    ended = [key if key.expires_wall < inf else replace(key, expires_wall=starts_wall + DAY_S) for key in kept]
    return [*ended, new_key(starts_wall, days)]


def directory_of(keys: Iterable[SigningKey]) -> str:
    """Return the JWK Set of some keys (RFC 7517 5), as the directory serves it."""
    found = []
    for key in keys:
        times = {"nbf": key.not_before_wall, "exp": key.expires_wall}
        dates = {name: int(at_wall) for name, at_wall in times.items() if 0 < at_wall < inf}
        found.append({**key.jwk, "kid": key.thumbprint, "use": "sig", **dates})
    return json.dumps({"keys": found}, indent=2)


def _key(path: Path, block: re.Match[str]) -> SigningKey:
    try:
        private = load_pem_private_key(block["pem"].encode(), None)
        times = {name: datetime.fromisoformat(text).timestamp() for name, text in _TIME.findall(block["text"])}
    except (TypeError, ValueError) as error:  # TypeError: the key has a passphrase
        raise ConfigurationError(f"{path}: a key cannot be read: {error}") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigurationError(f"{path}: give an Ed25519 key, not {type_name(private)}")
    key = SigningKey(private, times.get("Not-Before", 0.0), times.get("Expires", inf))
    if key.thumbprint == _TEST_KEY:
        raise ConfigurationError(f"{path}: {key.thumbprint} is a test key of RFC 9421, whose private half is public")
    return key


def _base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()

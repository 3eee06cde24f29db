"""Key files: what is refused, and how keys take turns."""

import json
import logging
import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from politesse import ConfigurationError
from politesse.signing import WebBotAuth
from politesse.signing._keys import KeyFile, SigningKey, directory_of, new_key, read_keys, rotated, write_keys
from politesse.testing import ManualClock
from tests.support.signatures import AGENT, key_file

DAY_S = 86_400.0
NOW_WALL = 1_800_000_000.0
TEST_KEY = """\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----
"""  # RFC 9421 B.1.4


def pem(private: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> str:
    secret = BestAvailableEncryption(password) if password else NoEncryption()
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret).decode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TEST_KEY, "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U is a test key of RFC 9421"),
        ("", "the file has no private key in PEM"),
        (TEST_KEY.replace("MC4C", "AAAA"), "a key cannot be read: "),
        (pem(Ed25519PrivateKey.generate(), b"word"), "a key cannot be read: Password was not given"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "give an Ed25519 key, not "),
        ("Expires: tomorrow\n" + pem(Ed25519PrivateKey.generate()), "a key cannot be read: Invalid isoformat"),
    ],
    ids=["test key", "no key", "broken", "passphrase", "another kind", "wrong time"],
)
def test_key_that_cannot_be_used_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bot.pem"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(f"{path}: {problem}")):
        WebBotAuth(path, agent=AGENT)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_key_that_others_may_use_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"other users may use the key \(mode {mode:o}\); run: chmod 600"):
        WebBotAuth(path, agent=AGENT)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"No such file.*; politesse key new makes one"):
        WebBotAuth(tmp_path / "bot.pem", agent=AGENT)


def test_key_without_times_may_always_be_used(tmp_path: Path) -> None:
    path = tmp_path / "openssl.pem"
    path.touch(0o600)
    path.write_text(pem(Ed25519PrivateKey.generate()))
    assert WebBotAuth(path, agent=AGENT).sign("GET", "https://example.com/")
    [listed] = json.loads(directory_of(read_keys(path)))["keys"]
    assert listed.keys() == {"crv", "kty", "x", "kid", "use"}


def test_new_file_is_for_its_owner_and_replaces_no_other(path: Path, key: SigningKey) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_keys(path, [new_key(0, 1)], is_new=True)
    assert read_keys(path)[0].thumbprint == key.thumbprint


def test_new_key_is_published_before_its_use_and_the_old_kept_until_it_expires() -> None:
    old = new_key(NOW_WALL - 80 * DAY_S, days=90)
    keys = rotated([old], NOW_WALL, days=90, ahead_days=1)
    assert keys[0].thumbprint == old.thumbprint
    assert (keys[1].not_before_wall, keys[1].expires_wall) == (NOW_WALL + DAY_S, NOW_WALL + 91 * DAY_S)
    assert rotated(keys, NOW_WALL + 11 * DAY_S, 90, 1)[0].thumbprint == keys[1].thumbprint


@pytest.mark.parametrize(("left_days", "starts_days"), [(0.25, 0.25), (-1, 0)])
def test_rotation_leaves_no_time_without_a_key(left_days: float, starts_days: float) -> None:
    old = new_key(NOW_WALL + (left_days - 90) * DAY_S, days=90)
    assert rotated([old], NOW_WALL, 90, ahead_days=1)[-1].not_before_wall == NOW_WALL + starts_days * DAY_S


def test_rotation_ends_a_key_without_an_end() -> None:
    old = SigningKey(Ed25519PrivateKey.generate())
    assert rotated([old], NOW_WALL, 90, ahead_days=1)[0].expires_wall == NOW_WALL + 2 * DAY_S


def test_newest_key_that_may_be_used_is_used_without_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(wall=NOW_WALL)
    old = new_key(NOW_WALL, days=2)
    path = key_file(tmp_path / "bot.pem", [old])
    keys = KeyFile(path, clock)
    _, new = written = rotated([old], NOW_WALL, days=90, ahead_days=1)
    write_keys(path, written, is_new=False)
    for days, current, listed in ((0.5, old, 2), (1.5, new, 2), (2.5, new, 1)):
        clock.advance(NOW_WALL + days * DAY_S - clock.wall())
        assert keys.current().thumbprint == current.thumbprint
        assert len(keys.valid()) == listed


def test_file_that_breaks_later_leaves_the_keys_in_use(
    path: Path, key: SigningKey, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(wall=NOW_WALL)
    keys = KeyFile(path, clock)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.advance(10)
            assert keys.current().thumbprint == key.thumbprint
    [warning] = caplog.messages
    assert "The earlier keys stay in use: " in warning
    assert "chmod 600" in warning


@pytest.mark.parametrize(("starts_days", "days"), [(-10, 5), (5, 10)], ids=["expired", "not yet"])
def test_time_of_an_unusable_key_is_named(tmp_path: Path, starts_days: float, days: float) -> None:
    path = key_file(tmp_path / "bot.pem", [new_key(NOW_WALL + starts_days * DAY_S, days)])
    with pytest.raises(ConfigurationError, match=r"no key may be used now \(Not-Before: 2027-.*Z Expires: 2027-.*Z\)"):
        WebBotAuth(path, agent=AGENT, clock=ManualClock(wall=NOW_WALL))

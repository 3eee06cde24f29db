"""Key files: what is refused, and which of several keys signs."""

import logging
import re
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
from politesse.testing import ManualClock
from tests.support.signatures import AGENT, Key, key_file

DAY_S = 86_400.0
NOW_WALL = 1_800_000_000.0
URL = "https://example.com/"
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


def test_newest_key_that_may_be_used_is_used_without_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(wall=NOW_WALL)
    old = Key(NOW_WALL, NOW_WALL + 2 * DAY_S)
    path = key_file(tmp_path / "bot.pem", old)
    signer = WebBotAuth(path, agent=AGENT, clock=clock)
    new = Key(NOW_WALL + DAY_S, NOW_WALL + 91 * DAY_S)
    key_file(path, old, new)
    for days, used, listed in ((0.5, old, [old, new]), (1.5, new, [old, new]), (2.5, new, [new])):
        clock.advance(NOW_WALL + days * DAY_S - clock.wall())
        assert f'keyid="{used.thumbprint}"' in signer.sign("GET", URL)["Signature-Input"]
        assert [key for key in (old, new) if key.thumbprint in repr(signer)] == listed


def test_file_that_breaks_later_leaves_the_keys_in_use(path: Path, key: Key, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(wall=NOW_WALL)
    signer = WebBotAuth(path, agent=AGENT, clock=clock)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.advance(10)
            assert f'keyid="{key.thumbprint}"' in signer.sign("GET", URL)["Signature-Input"]
    [warning] = caplog.messages
    assert "The earlier keys stay in use: " in warning
    assert "chmod 600" in warning


@pytest.mark.parametrize(("starts_days", "days"), [(-10, 5), (5, 10)], ids=["expired", "not yet"])
def test_time_of_an_unusable_key_is_named(tmp_path: Path, starts_days: float, days: float) -> None:
    starts_wall = NOW_WALL + starts_days * DAY_S
    path = key_file(tmp_path / "bot.pem", Key(starts_wall, starts_wall + days * DAY_S))
    with pytest.raises(ConfigurationError, match=r"no key may be used now \(Not-Before: 2027-.*Z Expires: 2027-.*Z\)"):
        WebBotAuth(path, agent=AGENT, clock=ManualClock(wall=NOW_WALL))

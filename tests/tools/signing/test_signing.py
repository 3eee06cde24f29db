"""WebBotAuth, key files and the directory of keys: what is signed, for whom, and what is refused."""

import base64
import hashlib
import logging
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiohttp.test_utils import TestClient, TestServer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from http_message_signatures import InvalidSignature

from politesse import ConfigurationError, InvalidURL
from politesse.signing import WebBotAuth, directory_app
from politesse.signing._keys import SigningKey
from politesse.signing._web_bot_auth import signed
from politesse.testing import ManualClock
from tests.support.programs import run_code
from tests.support.signatures import AGENT, COVERED, Key, key_file, public_keys, request, verified

DAY_S: Final = 86_400.0
NOW_WALL: Final = 1_800_000_000.0


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def path(key: Key, tmp_path: Path) -> Path:
    return key_file(tmp_path / "bot.pem", key)


URL: Final = "https://example.com/a?b=c"
# RFC 9421 B.1.4, as DER; the base and the signature of draft-ietf-webbotauth-httpsig-protocol-01.
TEST_KEY: Final = bytes.fromhex(
    "302e020100300506032b6570042204209f8362f87a484a954e6e740c5b4c0e84229139a20aa8ab56ff66586f6a7d29c5"
)
VECTOR: Final = """\
"@authority": example.com
"signature-agent";key="agent2": "https://signature-agent.test"
"@signature-params": ("@authority" "signature-agent";key="agent2");created=1735689600;\
keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;\
nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth\""""
SIGNATURE: Final = "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg=="


def keys_of(key: Key) -> dict[str, Any]:
    return {key.thumbprint: key.private.public_key()}


def test_vector_of_the_draft_is_reproduced_byte_for_byte() -> None:
    class Recorder:
        """The private key of the vector, which also notes the base."""

        def __init__(self) -> None:
            self.private: Any = serialization.load_der_private_key(TEST_KEY, None)
            self.base = b""

        def sign(self, base: bytes) -> bytes:
            self.base = base
            signature: bytes = self.private.sign(base)
            return signature

        def public_key(self) -> Any:
            return self.private.public_key()

    recorder: Any = Recorder()
    covered = {'"@authority"': "example.com", '"signature-agent";key="agent2"': '"https://signature-agent.test"'}
    nonce = re.search('nonce="([^"]+)"', VECTOR)
    assert nonce is not None
    stated = {"nonce": nonce[1], "tag": "web-bot-auth"}
    headers = signed(SigningKey(recorder), "sig2", covered, (1735689600, 4889289600), stated)
    assert recorder.base.decode() == VECTOR
    assert headers["Signature"] == f"sig2=:{SIGNATURE}:"
    assert headers["Signature-Input"] == "sig2=" + VECTOR.partition('"@signature-params": ')[2]


def test_another_implementation_verifies_the_signature(path: Path, key: Key) -> None:
    for url in (URL, "https://example.com:8443/", "https://EXAMPLE.com:443", "https://[::1]/%7Ea"):
        headers = WebBotAuth(path, agent=AGENT).sign("GET", url)
        found = verified(request("GET", url, headers), keys_of(key), *COVERED, '"signature-agent";key="sig1"')
        assert headers["Signature-Agent"] == f'sig1="{AGENT}"'
        assert found.parameters["keyid"] == key.thumbprint
        assert int(found.parameters["expires"]) - int(found.parameters["created"]) == 300
        assert abs(int(found.parameters["created"]) - time.time()) < 60


def test_legacy_form_covers_a_string_with_the_origin(path: Path, key: Key) -> None:
    headers = WebBotAuth(path, agent=AGENT, form="legacy").sign("GET", URL)
    assert headers["Signature-Agent"] == '"https://bot.example"'
    verified(request("GET", URL, headers), keys_of(key), *COVERED, "signature-agent")


def test_signature_of_one_request_fails_with_another(path: Path, key: Key) -> None:
    forms: tuple[Any, ...] = ("dictionary", "legacy")
    for form in forms:
        headers = WebBotAuth(path, agent=AGENT, form=form).sign("GET", URL)
        for method, url in (("HEAD", URL), ("GET", "https://example.org/a?b=c"), ("GET", "https://example.com/b?b=c")):
            with pytest.raises(InvalidSignature):
                verified(request(method, url, headers), keys_of(key))


def test_each_signature_has_a_nonce_of_its_own(path: Path) -> None:
    signer = WebBotAuth(path, agent=AGENT)
    inputs = [signer.sign("GET", URL)["Signature-Input"] for _ in range(2)]
    nonces = {nonce for line in inputs for nonce in re.findall('nonce="([^"]{88})"', line)}  # 64 octets
    assert len(nonces) == 2


def test_url_that_no_client_sends_as_it_is_written_is_refused(path: Path) -> None:
    for url in ("https://example.com/\u00e9", "https://example.com/a b", "https://example.com/?q=\u00e9"):
        with pytest.raises(InvalidURL, match="percent-encode it as it is sent, or nobody can verify the signature"):
            WebBotAuth(path, agent=AGENT).sign("GET", url)
        assert WebBotAuth(path, agent=AGENT, when="asked").sign("GET", url) == {}
    with pytest.raises(InvalidURL):
        WebBotAuth(path, agent=AGENT).sign("GET", "/page")


def test_http_is_never_signed(path: Path) -> None:
    signer = WebBotAuth(path, agent=AGENT)
    assert signer.sign("GET", "http://example.com/") == {}
    assert not signer.heeds("http://example.com/", 'sig1=("@authority");tag="web-bot-auth"', {})


def test_no_signature_outlives_its_key(tmp_path: Path, key: Key) -> None:
    clock = ManualClock(wall=1_000_000)
    short = Key(0.0, clock.wall() + 100, key.private)
    signer = WebBotAuth(key_file(tmp_path / "short.pem", short), agent=AGENT, clock=clock)
    assert ";expires=1000100;" in signer.sign("GET", URL)["Signature-Input"]
    clock.advance(101)
    with pytest.raises(ConfigurationError, match=r"short\.pem: no key may be used now \(Expires: .*\); run: politesse"):
        signer.sign("GET", URL)
    assert "bot.example" in repr(signer)
    # The repetition fails then, when the client has put the answer away.
    assert signer.heeds(URL, "sig1=()", {})


DEMAND: Final = (
    'sig9=("@method" "@target-uri" "signature-agent";key="sig9");created;expires;nonce="x\\"y";tag="web-bot-auth"'
)


def test_demand_decides_label_components_and_nonce(path: Path, key: Key) -> None:
    signer = WebBotAuth(path, agent=AGENT, when="asked")
    assert signer.sign("GET", URL) == {}
    assert signer.heeds(URL, DEMAND, {})
    message = request("GET", URL, signer.sign("GET", URL, DEMAND))
    found = verified(message, keys_of(key), "@method", "@target-uri", '"signature-agent";key="sig9"')
    assert (found.label, found.nonce) == ("sig9", 'x"y')
    later = verified(request("GET", URL, signer.sign("GET", URL)), keys_of(key), "@target-uri")
    assert (later.label, later.nonce == found.nonce) == ("sig9", False)
    assert signer.sign("GET", "https://example.org/") == {}


def test_signed_request_is_repeated_only_for_a_nonce_or_another_kind(path: Path) -> None:
    signer = WebBotAuth(path, agent=AGENT)
    usual = 'sig1=("@authority" "@method" "@path");tag="web-bot-auth"'
    sent = signer.sign("GET", URL)
    assert not signer.heeds(URL, usual, sent)
    assert signer.heeds(URL, usual, {})  # another request was on its way before
    assert signer.heeds(URL, f'{usual};nonce="n"', sent)
    for _ in range(2):  # two requests were on their way before
        assert signer.heeds(URL, 'sig1=("@target-uri")', sent)
    assert not signer.heeds(URL, 'sig1=("@target-uri")', signer.sign("GET", URL))


def test_demand_that_cannot_be_met_is_not_heeded(path: Path) -> None:
    demands = [
        "",
        "((",
        "ä",
        "sig1=1",
        'sig1=("date")',
        'sig1=("@status")',
        'sig1=("@method";req)',
        'sig1=("signature-agent";key="sig2")',
        'sig1=("@method");tag="other"',
        'sig1=("@method");alg="hmac-sha256"',
        'sig1=("@method");keyid="other"',
        'sig1=("@method");nonce=5',
        f'sig1=("@method");nonce="{"n" * 1_000}"',
    ]
    signer = WebBotAuth(path, agent=AGENT, when="asked")
    assert [demand for demand in demands if signer.heeds(URL, demand, {}) or signer.sign("GET", URL)] == []


def test_origins_that_asked_are_remembered_within_a_bound(path: Path) -> None:
    signer = WebBotAuth(path, agent=AGENT, when="asked")
    for number in range(10_001):
        signer.heeds(f"https://{number}.example/", "sig1=()", {})
    assert signer.sign("GET", "https://0.example/") == {}
    assert signer.sign("GET", "https://10000.example/") != {}


WRONG: Final[dict[str, dict[str, Any]]] = {
    "agent='http://bot.example/keys': give the https URL of the directory": {"agent": "http://bot.example/keys"},
    "agent: 'bot.example' is not an absolute URL": {"agent": "bot.example"},
    "escaped, without a user and a fragment": {"agent": "https://me@bot.example/keys"},
    "agent='https://***@bot.example/': give the https URL": {"agent": "https://me:pa55@bot.example/"},
    "a fragment": {"agent": "https://bot.example/#keys"},
    "escaped, without": {"agent": 'https://bot.example/"'},
    "agent=None: give a str": {"agent": None},
    "key=None: give the path of a PEM file": {"key": None},
    "key=b'bot.pem': give the path of a PEM file": {"key": b"bot.pem"},
    "the key cannot be read: embedded null byte": {"key": "bot\0.pem"},
    "form='string': give 'dictionary' or 'legacy'": {"form": "string"},
    "when='never': give 'always' or 'asked'": {"when": "never"},
    "lifetime_s=86401: give 10 to 86400": {"lifetime_s": 86_401},
}


def test_wrong_option_is_named(path: Path) -> None:
    for problem, options in WRONG.items():
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            WebBotAuth(**{"key": path, "agent": AGENT, **options})


def test_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['cryptography'] = None; import politesse.signing"
    assert "politesse.signing needs the extra 'sign'" in run_code(program, check=False).stderr


# Key files.

PEM_OF_RFC = """\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----
"""  # RFC 9421 B.1.4


def pem(private: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> str:
    secret = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret).decode()


def test_key_that_cannot_be_used_is_refused(path: Path) -> None:
    unusable = {
        PEM_OF_RFC: "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U is a test key of RFC 9421",
        "": "the file has no private key in PEM",
        PEM_OF_RFC.replace("MC4C", "AAAA"): "a key cannot be read: ",
        pem(Ed25519PrivateKey.generate(), b"word"): "a key cannot be read: Password was not given",
        pem(ec.generate_private_key(ec.SECP256R1())): "give an Ed25519 key, not ",
        "Expires: tomorrow\n" + pem(Ed25519PrivateKey.generate()): "a key cannot be read: Invalid isoformat",
    }
    for text, problem in unusable.items():
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=re.escape(f"{path}: {problem}")):
            WebBotAuth(path, agent=AGENT)


def test_key_that_others_may_use_and_a_missing_file_are_refused(path: Path, tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o620, 0o601):
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match=rf"other users may use the key \(mode {mode:o}\); run: chmod 600"):
            WebBotAuth(path, agent=AGENT)
    with pytest.raises(ConfigurationError, match=r"No such file.*; politesse key new makes one"):
        WebBotAuth(tmp_path / "none.pem", agent=AGENT)


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


def test_time_of_an_unusable_key_is_named(path: Path) -> None:
    for starts_days, days in ((-10, 5), (5, 10)):  # expired, and not yet
        starts_wall = NOW_WALL + starts_days * DAY_S
        key_file(path, Key(starts_wall, starts_wall + days * DAY_S))
        with pytest.raises(
            ConfigurationError, match=r"no key may be used now \(Not-Before: 2027-.*Z Expires: 2027-.*Z"
        ):
            WebBotAuth(path, agent=AGENT, clock=ManualClock(wall=NOW_WALL))


# The directory, as a server that verifies signatures asks for it.

PATH: Final = "/.well-known/http-message-signatures-directory"
HOST: Final = {"Host": "bot.example"}


async def test_directory_has_the_keys_and_a_signature_of_each(path: Path, key: Key) -> None:
    key_file(path, key, Key(1.0))
    async with TestClient(TestServer(directory_app(path, agent=AGENT, max_age_s=60))) as web:
        response = await web.get(PATH, headers=HOST)
        body, directory = await response.read(), await response.json(content_type=None)
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/http-message-signatures-directory+json"
    assert response.headers["Cache-Control"] == "max-age=60"
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    assert response.headers["Content-Digest"] == f"sha-256=:{digest}:"
    assert directory["keys"][0]["kid"] == key.thumbprint
    assert directory["keys"][0] == key.jwk | {"kid": key.thumbprint, "use": "sig", "exp": 4_000_000_000}
    for number, (kid, public) in enumerate(public_keys(directory).items()):
        tag = "http-message-signatures-directory"
        headers = {name: response.headers.getall(name)[number] for name in ("Signature", "Signature-Input")}
        headers["Content-Digest"] = response.headers["Content-Digest"]
        for host in ("bot.example", "other.example"):
            asked = SimpleNamespace(method="GET", url=f"https://{host}{PATH}", headers={})
            answer = SimpleNamespace(status_code=200, headers=headers, request=asked)
            if host == "bot.example":
                verified(answer, {kid: public}, '"@authority";req', "content-digest", tag=tag)
            else:
                with pytest.raises(InvalidSignature):
                    verified(answer, {kid: public}, tag=tag)


async def test_directory_signs_for_the_hosts_of_its_agents_only(path: Path) -> None:
    statuses = {"bot.example": 200, "BOT.example:443": 200, "keys.bot.example:8443": 200, "keys.bot.example": 421}
    statuses |= dict.fromkeys(
        ("bot.example:8443", "attacker.example", "bot.example.attacker.example", "127.0.0.1"), 421
    )
    app = directory_app(path, agent=(AGENT, f"https://keys.bot.example:8443{PATH}"))
    async with TestClient(TestServer(app)) as web:
        for host, status in statuses.items():
            for method in ("GET", "HEAD"):
                for headers in ({}, {"If-None-Match": "*"}):
                    response = await web.request(method, PATH, headers={"Host": host, **headers})
                    assert response.status == (status if status == 421 or not headers else 304), host
                    assert ("Signature" in response.headers) is (response.status == 200), host


async def test_known_directory_is_not_sent_again_and_head_has_no_body(path: Path) -> None:
    async with TestClient(TestServer(directory_app(path, agent=AGENT))) as web:
        whole, head = await web.get(PATH, headers=HOST), await web.head(PATH, headers=HOST)
        assert (head.status, await head.read()) == (200, b"")
        for name in ("ETag", "Content-Type", "Content-Length", "Content-Digest"):
            assert head.headers[name] == whole.headers[name]
        etag = whole.headers["ETag"]
        for given, status in ((etag, 304), (f'"other", {etag}', 304), ("*", 304), ('"other"', 200)):
            response = await web.get(PATH, headers={**HOST, "If-None-Match": given})
            assert (response.status, response.headers["ETag"]) == (status, etag)


async def test_rotated_key_is_in_the_directory_without_a_restart(path: Path, key: Key) -> None:
    clock = ManualClock()
    async with TestClient(TestServer(directory_app(path, agent=AGENT, clock=clock))) as web:
        before = await (await web.get(PATH, headers=HOST)).json(content_type=None)
        key_file(path, key, Key())
        clock.advance(5.0)
        after = await (await web.get(PATH, headers=HOST)).json(content_type=None)
    assert (len(before["keys"]), len(after["keys"])) == (1, 2)


def test_wrong_age_and_wrong_file_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_age_s=-1: give 0 to 86400"):
        directory_app(path, agent=AGENT, max_age_s=-1)
    for agent in ("http://bot.example/", "bot.example", "https://bot.example/é", ()):
        with pytest.raises(ConfigurationError, match="agent"):
            directory_app(path, agent=agent)
    with pytest.raises(ConfigurationError, match="No such file"):
        directory_app(tmp_path / "none.pem", agent=AGENT)

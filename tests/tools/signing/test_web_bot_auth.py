"""WebBotAuth: what it signs, for whom, and what it refuses."""

import re
import time
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key
from http_message_signatures import InvalidSignature

from politesse import ConfigurationError, InvalidURL
from politesse.signing import WebBotAuth
from politesse.signing._keys import SigningKey
from politesse.signing._web_bot_auth import signed
from politesse.testing import ManualClock
from tests.support.programs import run_code
from tests.support.signatures import AGENT, COVERED, Key, key_file, request, verified

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
            self.private: Any = load_der_private_key(TEST_KEY, None)
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


@pytest.mark.parametrize("url", [URL, "https://example.com:8443/", "https://EXAMPLE.com:443", "https://[::1]/%7Ea"])
def test_another_implementation_verifies_the_signature(path: Path, key: Key, url: str) -> None:
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


@pytest.mark.parametrize("form", ["dictionary", "legacy"])
@pytest.mark.parametrize(
    ("method", "url"),
    [("HEAD", URL), ("GET", "https://example.org/a?b=c"), ("GET", "https://example.com/b?b=c")],
    ids=["method", "authority", "path"],
)
def test_signature_of_one_request_fails_with_another(path: Path, key: Key, form: Any, method: str, url: str) -> None:
    headers = WebBotAuth(path, agent=AGENT, form=form).sign("GET", URL)
    with pytest.raises(InvalidSignature):
        verified(request(method, url, headers), keys_of(key))


def test_each_signature_has_a_nonce_of_its_own(path: Path) -> None:
    signer = WebBotAuth(path, agent=AGENT)
    inputs = [signer.sign("GET", URL)["Signature-Input"] for _ in range(2)]
    nonces = {nonce for line in inputs for nonce in re.findall('nonce="([^"]{88})"', line)}  # 64 octets
    assert len(nonces) == 2


@pytest.mark.parametrize(
    "url", ["https://example.com/\u00e9", "https://example.com/a b", "https://example.com/?q=\u00e9"]
)
def test_url_that_no_client_sends_as_it_is_written_is_refused(path: Path, url: str) -> None:
    with pytest.raises(InvalidURL, match="percent-encode it as it is sent, or nobody can verify the signature"):
        WebBotAuth(path, agent=AGENT).sign("GET", url)
    assert WebBotAuth(path, agent=AGENT, when="asked").sign("GET", url) == {}


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


@pytest.mark.parametrize(
    "demand",
    [
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
    ],
)
def test_demand_that_cannot_be_met_is_not_heeded(path: Path, demand: str) -> None:
    signer = WebBotAuth(path, agent=AGENT, when="asked")
    assert not signer.heeds(URL, demand, {})
    assert signer.sign("GET", URL) == {}


def test_origins_that_asked_are_remembered_within_a_bound(path: Path) -> None:
    signer = WebBotAuth(path, agent=AGENT, when="asked")
    for number in range(10_001):
        signer.heeds(f"https://{number}.example/", "sig1=()", {})
    assert signer.sign("GET", "https://0.example/") == {}
    assert signer.sign("GET", "https://10000.example/") != {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"agent": "http://bot.example/keys"},
            "agent='http://bot.example/keys': give the https URL of the directory",
        ),
        ({"agent": "bot.example"}, "agent: 'bot.example' is not an absolute URL"),
        ({"agent": "https://me@bot.example/keys"}, "escaped, without a user and a fragment"),
        ({"agent": "https://me:pa55@bot.example/"}, "agent='https://***@bot.example/': give the https URL"),
        ({"agent": "https://bot.example/#keys"}, "a fragment"),
        ({"agent": 'https://bot.example/"'}, "escaped, without"),
        ({"agent": None}, "agent=None: give a str"),
        ({"key": None}, "key=None: give the path of a PEM file"),
        ({"key": b"bot.pem"}, "key=b'bot.pem': give the path of a PEM file"),
        ({"key": "bot\0.pem"}, "the key cannot be read: embedded null byte"),
        ({"form": "string"}, "form='string': give 'dictionary' or 'legacy'"),
        ({"when": "never"}, "when='never': give 'always' or 'asked'"),
        ({"lifetime_s": 86_401}, "lifetime_s=86401: give 10 to 86400"),
    ],
)
def test_wrong_option_is_named(path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        WebBotAuth(**{"key": path, "agent": AGENT, **options})


def test_url_without_a_host_is_refused(path: Path) -> None:
    with pytest.raises(InvalidURL):
        WebBotAuth(path, agent=AGENT).sign("GET", "/page")


def test_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['cryptography'] = None; import politesse.signing"
    assert "politesse.signing needs the extra 'sign'" in run_code(program, check=False).stderr

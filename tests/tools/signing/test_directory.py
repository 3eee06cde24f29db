"""directory_app: the public keys, as a server that verifies signatures asks for them."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from http_message_signatures import InvalidSignature

from politesse import ConfigurationError
from politesse.signing import directory_app
from politesse.testing import ManualClock
from tests.support.signatures import AGENT, Key, key_file, public_keys, verified

PATH: Final = "/.well-known/http-message-signatures-directory"
HOST: Final = {"Host": "bot.example"}


@pytest.fixture
async def web(path: Path) -> AsyncIterator[TestClient[aiohttp.web.Request, aiohttp.web.Application]]:
    async with TestClient(TestServer(directory_app(path, agent=AGENT))) as client:
        yield client


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


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("bot.example", 200),
        ("BOT.example:443", 200),
        ("keys.bot.example:8443", 200),
        ("keys.bot.example", 421),
        ("bot.example:8443", 421),
        ("attacker.example", 421),
        ("bot.example.attacker.example", 421),
        ("127.0.0.1", 421),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_directory_signs_for_the_hosts_of_its_agents_only(
    path: Path, method: str, host: str, status: int
) -> None:
    app = directory_app(path, agent=(AGENT, f"https://keys.bot.example:8443{PATH}"))
    async with TestClient(TestServer(app)) as web:
        for headers in ({}, {"If-None-Match": "*"}):
            response = await web.request(method, PATH, headers={"Host": host, **headers})
            assert response.status == (status if status == 421 or not headers else 304)
            assert ("Signature" in response.headers) is (response.status == 200)


async def test_known_directory_is_not_sent_again(web: TestClient[aiohttp.web.Request, aiohttp.web.Application]) -> None:
    etag = (await web.get(PATH, headers=HOST)).headers["ETag"]
    for given, status in ((etag, 304), (f'"other", {etag}', 304), ("*", 304), ('"other"', 200)):
        response = await web.get(PATH, headers={**HOST, "If-None-Match": given})
        assert (response.status, response.headers["ETag"]) == (status, etag)


async def test_directory_answers_head_without_a_body(
    web: TestClient[aiohttp.web.Request, aiohttp.web.Application],
) -> None:
    whole, head = await web.get(PATH, headers=HOST), await web.head(PATH, headers=HOST)
    assert (head.status, await head.read()) == (200, b"")
    for name in ("ETag", "Content-Type", "Content-Length", "Content-Digest"):
        assert head.headers[name] == whole.headers[name]


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

"""What every integration checks of a request, whichever client sends it."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from politesse import ConfigurationError, Gatekeeper, InvalidURL, PoliteSession
from politesse._gate.identity import Identity
from politesse.integrations._request import check_gate, check_sent, introduce, other_site

URL = "https://example.com/page"
UA = "ExampleBot/1.0 (+https://example.com/bot)"


@pytest.mark.parametrize("path", ["/a/../b", "/.", "/a/%2e%2E", "/a/.%2e/b", "/a/%2E/"])
def test_path_with_dot_segments_is_refused(path: str) -> None:
    with pytest.raises(InvalidURL, match="would be sent with dot segments; resolve them first"):
        check_sent(f"https://example.com{path}", path, ())


@pytest.mark.parametrize("path", ["", "/", "/a..b/.c", "/a%2Fb", "/%20"])
def test_path_without_dot_segments_is_sent(path: str) -> None:
    check_sent(f"https://example.com{path}", path, ("EXAMPLE.com:443",))


def test_host_header_of_another_site_is_refused() -> None:
    with pytest.raises(InvalidURL, match=r"Host header 'other\.example': the rules of that site would apply"):
        check_sent(URL, "/page", ("example.com", "other.example"))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((), None),
        (("example.com",), None),
        (("example.com:443", "EXAMPLE.COM"), None),
        (("example.com:8443",), "example.com:8443"),
        (("example.com", "other.example"), "other.example"),
        (("user@example.com",), "user@example.com"),
        (("example.com/x",), "example.com/x"),
        (("",), ""),
    ],
)
def test_first_host_header_of_another_site_is_found(hosts: tuple[str, ...], expected: str | None) -> None:
    assert other_site(URL, hosts) == expected
    assert other_site(URL, hosts, "example.com") == expected


@pytest.mark.parametrize(
    ("headers", "expected"), [({"User-Agent": "default/1"}, UA), ({"user-agent": "mine"}, "mine"), ({}, None)]
)
def test_only_the_default_user_agent_is_replaced(headers: dict[str, str], expected: str | None) -> None:
    sent = CIMultiDict(headers)
    introduce(sent, {"default/1"}, Identity.of(UA), set())
    assert sent.get("User-Agent") == expected


def test_missing_user_agent_is_added_where_it_counts_as_default() -> None:
    sent: dict[str, str] = {}
    introduce(sent, {None}, Identity.of(UA), set())
    assert sent == {"User-Agent": UA}


async def test_anything_but_a_gate_is_refused() -> None:
    async with Gatekeeper(UA) as gate:
        check_gate(gate, "Client")
        check_gate(gate.agent(tokens="ExampleBot"), "Client")
    with pytest.raises(ConfigurationError, match=r"Client\(42\): give a Gatekeeper"):
        check_gate(42, "Client")


async def test_session_without_a_gate_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"PoliteSession\(None\): give a User-Agent, a Gatekeeper"):
        PoliteSession(None)  # type: ignore[arg-type]

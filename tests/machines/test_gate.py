"""The hot path of a question returns what the plain way returns."""

import asyncio
from collections.abc import Callable
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from politesse import Gatekeeper, HostPolicy, InvalidURL, Verdict
from politesse.testing import ManualClock, ScriptedFetcher

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SITE: Final = "https://example.com"
ROBOTS: Final = [
    "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /*?\nDisallow: /%C3%A9\n",
    "User-agent: ExampleBot\nDisallow: /*.gif$\nContent-Usage: train-ai=n\n",
    "",
    404,
    403,
    429,
    503,
]
POLICIES: Final = [None, HostPolicy(deny=True, reason="no"), HostPolicy(exempt=True, reason="ours"), HostPolicy()]
ATTRIBUTES: Final = ("url", "agent", "allowed", "source", "age_s", "note", "site_usage")
TARGETS: Final = st.one_of(
    st.sampled_from(
        ["/robots.txt", "/%72obots.txt", "/./robots.txt", "", "?", "/a", "/a/b?q", "/é", "/%c3%a9", "/x.gif"]
    ),
    st.text("/ab.?%é$*2E#", max_size=12).map("/{}".format),
)
ORIGINS: Final = st.sampled_from([SITE, "HTTPS://Example.COM:443", "https://other.example", "http://example.com", "x:"])


def _told(peek: Callable[[str], Verdict | None], url: str) -> object:
    try:
        verdict = peek(url)
    except InvalidURL as error:
        return str(error)
    if verdict is None:
        return None
    return {name: getattr(verdict, name) for name in ATTRIBUTES} | {
        name: getattr(verdict.match, name) for name in verdict.match.__slots__
    }


@example(ROBOTS[0], None, SITE, "/a/../a", 0.0)
@settings(max_examples=1_000)
@given(
    st.sampled_from(ROBOTS),
    st.sampled_from(POLICIES),
    ORIGINS,
    TARGETS,
    st.sampled_from([0.0, 100.0, 80_000.0, 86_399.0, 86_400.0]),
)
def test_peek_agrees_with_the_plain_computation(
    robots: str | int, policy: HostPolicy | None, origin: str, target: str, later_s: float
) -> None:
    async def ask() -> None:
        clock = ManualClock()
        fetcher = ScriptedFetcher({SITE: robots})
        async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
            await gate.check(f"{SITE}/")
            gate.set_policy("example.com", policy)
            clock.advance(later_s)
            url = f"{origin}{target}"
            assert _told(gate.peek, url) == _told(gate.peek, url)

    asyncio.run(ask())

"""Redirects are plain aiohttp's, but for those that lead where nobody may go."""

from typing import Any

import aiohttp
import pytest

from politesse import ClosedError, Gatekeeper
from politesse.integrations.aiohttp import PoliteSession, RobotsMiddleware
from tests.support.sites import Site, turns, until
from tests.support.tasks import apart

STATUSES = (301, 302, 303, 307, 308)


async def told(
    session: aiohttp.ClientSession | PoliteSession,
    jar: aiohttp.CookieJar,
    sites: tuple[Site, Site],
    ask: dict[str, Any],
) -> dict[str, Any]:
    """What became of a request, as servers and client tell it."""
    for site in sites:
        site.seen.clear()
    outcome: dict[str, Any] = {}
    try:
        url = f"{sites[0].base}{ask['path']}"
        async with session.request(ask["method"], url, **ask.get("options", {})) as response:
            outcome["answer"] = (response.status, str(response.url), response.method, await response.text())
            outcome["real URL"] = str(response.real_url)
            outcome["cookies"] = {name: morsel.value for name, morsel in response.cookies.items()}
            outcome["history"] = [
                (hop.status, str(hop.url), hop.method, hop.headers.get("Location")) for hop in response.history
            ]
    except (aiohttp.ClientError, ValueError) as error:
        outcome["error"] = (type(error), str(error))
    outcome["jar"] = sorted((cookie["domain"], cookie.key, cookie.value) for cookie in jar)
    outcome["seen"] = [
        (site.base, seen.method, seen.path, seen.body, seen.cookies, {**seen.headers, "User-Agent": ""})
        for site in sites
        for seen in site.seen
        if seen.path != "/robots.txt"
    ]
    return outcome


CREDENTIALS = {"Authorization": "Bearer 1", "Cookie": "mine=1", "Proxy-Authorization": "Basic 1", "X-More": "1"}

CASES = [
    *({"method": method, "path": f"/{status}"} for status in STATUSES for method in ("GET", "HEAD", "DELETE")),
    *(
        {"method": method, "path": f"/{status}", "options": {"data": b"body"}}
        for status in STATUSES
        for method in ("POST", "PUT", "PATCH")
    ),
    *({"method": "POST", "path": f"/{status}", "options": {"allow_redirects": False}} for status in STATUSES),
    *(
        {"method": method, "path": f"/away/{status}", "options": {"data": b"body", "headers": CREDENTIALS}}
        for status in STATUSES
        for method in ("POST", "PUT")
    ),
    {"method": "GET", "path": "/302", "options": {"params": {"a": "1"}}},
    {"method": "GET", "path": "/302", "options": {"cookies": {"mine": "1"}, "headers": {"Authorization": "Bearer 1"}}},
    {"method": "GET", "path": "/away/302", "options": {"cookies": {"mine": "1"}}},
    {"method": "GET", "path": "/there-and-back", "options": {"headers": CREDENTIALS}},
    {"method": "POST", "path": "/307", "options": {"json": {"a": 1}}},
    {"method": "GET", "path": "/302#here"},
    {"method": "GET", "path": "/fragment"},
    {"method": "GET", "path": "/fragment#here"},
    {"method": "GET", "path": "/deep/relative"},
    {"method": "GET", "path": "/deep/up"},
    {"method": "GET", "path": "/deep/query?a=1"},
    {"method": "GET", "path": "/same-scheme"},
    {"method": "GET", "path": "/chain"},
    {"method": "POST", "path": "/chain", "options": {"data": b"body"}},
    {"method": "GET", "path": "/chain", "options": {"max_redirects": 2}},
    {"method": "GET", "path": "/chain", "options": {"max_redirects": 3}},
    {"method": "GET", "path": "/loop"},
    {"method": "GET", "path": "/loop", "options": {"max_redirects": 2}},
    {"method": "GET", "path": "/nowhere"},
    {"method": "GET", "path": "/mail"},
    {"method": "GET", "path": "/odd"},
    {"method": "GET", "path": "/missing"},
    {"method": "GET", "path": "/missing", "options": {"raise_for_status": True}},
    {"method": "GET", "path": "/page"},
]


@pytest.mark.parametrize("ask", CASES, ids=lambda ask: "-".join(map(str, ask.values())))
async def test_redirects_are_those_of_plain_aiohttp(site: Site, other: Site, gate: Gatekeeper, ask: Any) -> None:
    site.redirects = {f"/{status}": (status, "/page?x=%2F") for status in STATUSES}
    site.redirects |= {f"/away/{status}": (status, f"{other.base}/page") for status in STATUSES}
    site.redirects |= {
        "/there-and-back": (307, f"{other.base}/back"),
        "/fragment": (302, "/page#there"),
        "/deep/relative": (302, "leaf?a=1"),
        "/deep/up": (302, "../page"),
        "/deep/query": (302, "/page?b=%26"),
        "/same-scheme": (302, f"{site.base.removeprefix('http:')}/page"),
        "/chain": (302, "/301"),
        "/loop": (302, "/loop"),
        "/nowhere": (302, ""),
        "/mail": (302, "mailto:me@example.com"),
        "/odd": (302, "http://[::1/"),
        "/missing": (302, "/404"),
    }
    other.redirects["/back"] = (302, f"{site.base}/page")
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as plain:
        expected = await told(plain, jar, (site, other), ask)
    assert expected["seen"]
    jar = aiohttp.CookieJar(unsafe=True)
    async with PoliteSession(gate, cookie_jar=jar) as polite:
        assert await told(polite, jar, (site, other), ask) == expected
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, middlewares=(RobotsMiddleware(gate, pace=True),)) as own:
        assert await told(own, jar, (site, other), ask) == expected
    assert turns(gate) == 0


async def test_redirect_that_waits_while_its_session_is_closed_is_not_followed(
    site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    other.redirects["/moved"] = (302, f"{site.base}/page")
    async with PoliteSession(gate) as second, polite.get(f"{site.base}/slow"):
        waiting = apart(second.get(f"{other.base}/moved"))
        await until(lambda: gate.statistics().waiting == 1)
        await second.close()
    with pytest.raises(ClosedError):
        await waiting
    assert (site.pages, other.pages) == (["/slow"], ["/moved"])
    assert turns(gate) == 0

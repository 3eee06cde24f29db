"""The servers of the demo's web, one for each origin, and the log that each keeps of what it was asked.

They know nothing of the crawler and its gate: what they saw is what happened.
"""

from __future__ import annotations

import asyncio
import html
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from politesse._constants import ROBOTS_TXT
from politesse.cli.demo.pages import Page, Site, SiteAnswer
from politesse.cli.demo.sites import BLUEPRINTS, make_sites
from politesse.testing import Call, Fault, HostileServer
from politesse.testing.answers import response

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_NAMES: Final = [blueprint.name for blueprint in BLUEPRINTS]
ADDRESSES: Final = tuple(f"127.0.0.{1 + _NAMES.index(one.beside or one.name)}" for one in BLUEPRINTS)
"""One for each host: a crawler paces hosts, whatever their ports. A robots.txt is for one port only."""

BUSY: Final = SiteAnswer(429, "too many", retry_after_s=2)
_NO_SUCH_PAGE: Final = (SiteAnswer(404, "no such page"),)
_WORK_S: Final = 0.003  # without it each answer would be given at once, and no two requests could be under way together


@dataclass(slots=True, eq=False)
class Hit:
    """One request as its server saw it.

    Attributes:
        started_mono: when it had come.
        target: path and query of the request.
        page: the requested page; None for robots.txt and other files.
        status: what is answered; None where there is no answer.
        retry_after_s: what the answer asks to wait; None for nothing.
        ended_mono: when the answer was ready to be written: before that no client can have seen its end. None while it
            is under way, and where there is no answer.
        location: where the answer redirects to; empty for no redirect.
    """

    started_mono: float
    target: str
    page: Page | None
    status: int | None
    retry_after_s: int | None = None
    ended_mono: float | None = None
    location: str = ""


class SiteServer:
    """Serves one origin, and keeps its log.

    Args:
        site: what to serve.
        addresses: of all origins, by name.

    Attributes:
        log: every request, in the order in which they came.
    """

    def __init__(self, site: Site, addresses: Mapping[str, str]) -> None:
        self.site = site
        self.log: list[Hit] = []
        self._addresses = addresses
        self._asked: Counter[str] = Counter()  # for robots.txt and other files, by target
        self._pages_asked = 0

    async def answer(self, call: Call) -> None:
        """Answer a request, and log it."""
        started_mono = time.monotonic()
        page = self.site.pages.get(call.target)
        answer = self._answer(call.target, page)
        if answer is None:
            self.log.append(Hit(started_mono, call.target, page, None))
            if page is None:
                await call.silence()  # a black hole
            else:
                call.reset()  # no page may be requested here, so nothing has to wait for it
            return
        location = answer.location.format_map(self._addresses)
        hit = Hit(started_mono, call.target, page, answer.status, answer.retry_after_s, location=location)
        self.log.append(hit)
        await asyncio.sleep(_WORK_S)
        headers = {"Content_Type": f"{answer.content_type}; charset=utf-8"}
        if answer.retry_after_s is not None:
            headers["Retry_After"] = str(answer.retry_after_s)
        if answer.max_age_s is not None:
            headers["Cache_Control"] = f"max-age={answer.max_age_s}"
        if location:
            headers["Location"] = location
        octets = response(answer.status, answer.body.encode(), **headers)
        hit.ended_mono = time.monotonic()
        await call.send(octets)

    def _answer(self, target: str, page: Page | None) -> SiteAnswer | None:
        blueprint = self.site.blueprint
        if not blueprint.robots:
            return None
        if page is None:
            answers = blueprint.robots if target == ROBOTS_TXT else blueprint.files.get(target, _NO_SUCH_PAGE)
            self._asked[target] += 1
            return answers[min(self._asked[target], len(answers)) - 1]
        self._pages_asked += 1
        if self._pages_asked in blueprint.busy_at:
            return BUSY
        if page.redirect is not None:
            return SiteAnswer(302, location=page.redirect.site.address + page.redirect.target)
        return SiteAnswer(200, render(page), "text/html")


class LittleWeb:
    """All servers of the demo, on free ports of the loopback interface; an async context manager.

    Each host has an address of its own where the system answers on all of 127/8, as Linux does; else all are at
    127.0.0.1.

    Args:
        pages: how many pages to make, about.
        seed: of the web.

    Attributes:
        servers: one for each origin.
        sharing: how many of them are at 127.0.0.1 because there is no address for their host.
    """

    def __init__(self, pages: int, seed: int) -> None:
        self._pages = pages
        self._seed = seed
        self._stack = AsyncExitStack()
        self.servers: list[SiteServer] = []
        self.sharing = 0

    async def __aenter__(self) -> Self:
        # The pages link across origins: so all addresses are known before the first page is made.
        listening = [await self._listen(place, address) for place, address in enumerate(ADDRESSES)]
        addresses = {blueprint.name: one.origin for blueprint, one in zip(BLUEPRINTS, listening, strict=True)}
        self.sharing = sum(one.address != address for one, address in zip(listening, ADDRESSES, strict=True))
        self.servers = [SiteServer(site, addresses) for site in make_sites(addresses, self._pages, self._seed)]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _listen(self, place: int, address: str) -> HostileServer:
        """Listen at ``address``, or at 127.0.0.1 where there is no such address."""

        async def answer(call: Call) -> None:
            await self.servers[place].answer(call)

        fault = Fault(name="none", robots=answer)
        try:
            return await self._stack.enter_async_context(HostileServer(fault, address=address, every_page=answer))
        except OSError:
            return await self._stack.enter_async_context(HostileServer(fault, every_page=answer))

    @property
    def front_pages(self) -> list[str]:
        """Where a crawl starts."""
        return [server.site.address + server.site.front.href for server in self.servers]

    @property
    def requests(self) -> int:
        """How many requests all servers have seen."""
        return sum(len(server.log) for server in self.servers)


def render(page: Page) -> str:
    """Return a page as HTML; links within the origin are relative to it."""
    links = "\n".join(f'<li><a href="{html.escape(_href(page, other))}">a page</a>' for other in page.links)
    made_for = f"Made for the rule {page.rule}" if page.rule else "Made for no rule"
    return f"""<!doctype html>
<meta charset="utf-8">
<title>{html.escape(page.target)}</title>
<p>{html.escape(made_for)} of {html.escape(page.site.blueprint.name)}.
<p><a href="#top">Top</a> <a href="mailto:webmaster@example.com">Webmaster</a>
<ul>
{links}
</ul>
"""


def _href(page: Page, other: Page) -> str:
    return other.href if other.site is page.site else other.site.address + other.href

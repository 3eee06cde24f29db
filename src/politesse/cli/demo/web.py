"""The servers of the demo, on the loopback interface. They share no code with the crawler and its gate."""

from __future__ import annotations

import asyncio
import html
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Self

from politesse._base.constants import ROBOTS_TXT
from politesse.cli.demo.sites import BLUEPRINTS, Page, Site, make_sites
from politesse.testing import Call, Exchange, Fault, HostileServer
from politesse.testing.hostile import response

_NAMES: Final = [blueprint.name for blueprint in BLUEPRINTS]
ADDRESSES: Final = tuple(f"127.0.0.{1 + _NAMES.index(one.beside or one.name)}" for one in BLUEPRINTS)
"""An address for each host. Origins at one address would share a pace."""

SEED: Final = 9309
_BUSY: Final = response(429, b"too many", Retry_After="2")
_NO_SUCH_PAGE: Final = (response(404, b"no such page"),)
_WORK_S: Final = 0.003  # each answer takes this long, so that requests of an impolite crawler overlap


class LittleWeb(AsyncExitStack):
    """All servers of the demo, on free ports of the loopback interface; an async context manager.

    Each host has its own address if the system answers on all of 127/8, as Linux does. Otherwise all hosts are at
    127.0.0.1.

    Args:
        pages: about how many pages to make.
        seed: the seed for the links.

    Attributes:
        sites: the origins.
        sharing: how many origins are at 127.0.0.1 because their host got no address of its own.
    """

    def __init__(self, pages: int, seed: int = SEED) -> None:
        super().__init__()
        self._pages = pages
        self._seed = seed
        self._servers: list[HostileServer] = []
        self._addresses: dict[str, str] = {}
        self._requested: Counter[Site] = Counter()  # counts the requested pages
        self.sites: list[Site] = []
        self.sharing: int = 0

    async def __aenter__(self) -> Self:
        # Pages have links to other origins, so all addresses must be known before the first page is made.
        self._servers = [await self._listen(place, address) for place, address in enumerate(ADDRESSES)]
        self._addresses = dict(zip(_NAMES, (server.origin for server in self._servers), strict=True))
        self.sharing = sum(one.address != address for one, address in zip(self._servers, ADDRESSES, strict=True))
        self.sites = make_sites(self._addresses, self._pages, self._seed)
        return self

    async def _listen(self, place: int, address: str) -> HostileServer:
        """Listen at ``address``, or at 127.0.0.1 if the system lacks that address."""
        answer = partial(self._answer, place)
        fault = Fault(name="none", robots=answer)
        try:
            return await self.enter_async_context(HostileServer(fault, address=address, every_page=answer))
        except OSError:
            return await self.enter_async_context(HostileServer(fault, every_page=answer))

    @property
    def front_pages(self) -> list[str]:
        """The URLs from which a crawl starts."""
        return [site.address + site.front.href for site in self.sites]

    def logs(self) -> list[tuple[Site, list[Exchange]]]:
        """Return each site with its requests so far, in the order in which they came."""
        return [(site, server.log) for site, server in zip(self.sites, self._servers, strict=True)]

    async def _answer(self, place: int, call: Call) -> None:
        site = self.sites[place]
        page = site.pages.get(call.target)
        if site.blueprint.robots:
            await asyncio.sleep(_WORK_S)
            await call.send(self._file(site, call) if page is None else self._page(page))
        elif page is None:
            await call.silence()  # this server never answers
        else:
            call.reset()  # the page is forbidden, so the request need not time out as for robots.txt

    def _file(self, site: Site, call: Call) -> bytes:
        blueprint = site.blueprint
        answers = blueprint.robots if call.target == ROBOTS_TXT else blueprint.files.get(call.target, _NO_SUCH_PAGE)
        answer = answers[min(call.number, len(answers)) - 1]
        for name, address in self._addresses.items():
            answer = answer.replace(f"{{{name}}}".encode(), address.encode())
        return answer

    def _page(self, page: Page) -> bytes:
        self._requested[page.site] += 1
        if self._requested[page.site] in page.site.blueprint.busy_at:
            return _BUSY
        if page.redirect is not None:
            return response(302, Location=page.redirect.site.address + page.redirect.target)
        return response(200, _render(page).encode(), Content_Type="text/html; charset=utf-8")


def _render(page: Page) -> str:
    """Return a page as HTML; links within the origin are relative to it."""
    hrefs = (other.href if other.site is page.site else other.site.address + other.href for other in page.links)
    links = "\n".join(f'<li><a href="{html.escape(href)}">a page</a>' for href in hrefs)
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

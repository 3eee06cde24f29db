"""The crawler of the guide on crawling, on a site and on the servers of the demo."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientTimeout, web

from politesse import Gatekeeper, PoliteQueue, PoliteSession
from politesse.cli.demo import CACHE, FETCH, PACING, USER_AGENT, LittleWeb
from politesse.cli.demo.report import audit
from tests.support.sites import EAGER, Server, Site

GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/crawling.md").read_text()
[PROGRAM] = (code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "sys.argv" in code)


@dataclass
class TitledSite(Site):
    links: dict[str, list[str]] = field(
        default_factory=lambda: {
            "/": ["/a", "/b?x=1&amp;y=2", "mailto:us@example.com", "#top"],
            "/a": ["/", "b?x=1&amp;y=2", "/c"],
        }
    )

    async def page(self, request: web.Request) -> web.Response:
        anchors = "".join(f'<a href="{link}">' for link in self.links.get(request.path, []))
        return web.Response(text=f"<title>{request.path} &amp;</title>{anchors}", content_type="text/html")


@pytest.fixture
def site_class() -> type[Server]:
    return TitledSite


def program(code: str, **replaced: object) -> Callable[[list[str]], Any]:
    names: dict[str, Any] = {}
    exec(compile(code.rpartition("\n\nasyncio.run")[0], "crawling.md", "exec"), names)  # noqa: S102 - our own guide
    names |= replaced
    main: Callable[[list[str]], Any] = names["main"]
    return main


def unpaced(user_agent: str) -> PoliteSession:
    return PoliteSession(Gatekeeper(user_agent, pacing=EAGER))


def test_the_program_has_at_most_40_lines() -> None:
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 40


@pytest.mark.realtime
async def test_the_program_prints_each_page_once(site: TitledSite, capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(30):
        await program(PROGRAM, PoliteSession=unpaced)([f"{site.base}/"])
    *printed, report = capsys.readouterr().out.splitlines()
    pages = [f"200 {site.base}{path}" for path in ("/ / &", "/a /a &", "/b?x=1&y=2 /b &", "/c /c &")]
    assert sorted(printed) == pages
    assert report.startswith("4 pages, 0 failed")


@pytest.mark.realtime
async def test_the_program_stays_on_the_hosts_of_its_start(
    site: TitledSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.links["/c"] = [f"{site.base.replace('127.0.0.1', 'localhost')}/elsewhere"]
    async with asyncio.timeout(30):
        await program(PROGRAM, PoliteSession=unpaced)([f"{site.base}/"])
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert "/elsewhere" not in site.pages


@pytest.mark.full
@pytest.mark.realtime
async def test_the_servers_of_the_demo_find_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the demo, faults of robots.txt are waited for a second and not a minute."""

    def eager(user_agent: str) -> PoliteSession:
        assert user_agent == USER_AGENT
        gate = Gatekeeper(user_agent, fetch=FETCH, cache=CACHE, pacing=PACING)
        return PoliteSession(gate, timeout=ClientTimeout(total=5))

    hasty = partial(PoliteQueue, max_unreachable_s=8.0)  # one site never answers
    async with LittleWeb(pages=60, seed=7) as web:
        main = program(PROGRAM, PoliteSession=eager, PoliteQueue=hasty, USER_AGENT=USER_AGENT)
        async with asyncio.timeout(60):
            await main(web.front_pages)
        rows = audit(web.logs(), PACING.min_delay_s)
    assert [violation for row in rows for violation in row.violations] == []
    assert sum(row.served for row in rows) > 20
    assert sum(row.missed for row in rows) == 0
    assert len(capsys.readouterr().out.splitlines()) > 20

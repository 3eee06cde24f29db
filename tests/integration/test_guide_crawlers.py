"""The two crawlers of the guide on crawling: one with ``queue.crawl``, and the same in plain aiohttp."""

import asyncio
import difflib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientTimeout, web

from politesse import Gatekeeper, PoliteQueue, PoliteSession
from politesse.cli.demo import CACHE, FETCH, PACING, USER_AGENT, LittleWeb
from politesse.cli.demo.report import audit
from tests.integration.sites import EAGER, Server, Site

GUIDE = (Path(__file__).parents[2] / "src/politesse/guides/crawling.md").read_text()
POLITE, PLAIN = (code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "sys.argv" in code)


class TitledSite(Site):
    async def page(self, request: web.Request) -> web.Response:
        links = {"/": ["/a", "/b?x=1&amp;y=2", "mailto:us@example.com", "#top"], "/a": ["/", "b?x=1&amp;y=2", "/c"]}
        anchors = "".join(f'<a href="{link}">' for link in links.get(request.path, []))
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


def test_the_two_programs_differ_in_five_lines() -> None:
    matcher = difflib.SequenceMatcher(None, PLAIN.splitlines(), POLITE.splitlines(), autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    assert sum(max(end - begin, new_end - new_begin) for _, begin, end, new_begin, new_end in changes) <= 5
    assert len([line for line in POLITE.splitlines() if line.strip()]) <= 40


@pytest.mark.realtime
async def test_both_programs_print_the_same_pages(site: TitledSite, capsys: pytest.CaptureFixture[str]) -> None:
    def unpaced(user_agent: str) -> PoliteSession:
        return PoliteSession(Gatekeeper(user_agent, pacing=EAGER))

    printed = []
    for main in (program(POLITE, PoliteSession=unpaced), program(PLAIN)):
        async with asyncio.timeout(30):
            await main([f"{site.base}/"])
        printed.append(sorted(capsys.readouterr().out.splitlines()))
    pages = [f"200 {site.base}{path}" for path in ("/ / &", "/a /a &", "/b?x=1&y=2 /b &", "/c /c &")]
    assert printed == [pages, pages]


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
        main = program(POLITE, PoliteSession=eager, PoliteQueue=hasty, USER_AGENT=USER_AGENT)
        async with asyncio.timeout(60):
            await main(web.front_pages)
        rows = audit(web.logs(), PACING.min_delay_s)
    assert [violation for row in rows for violation in row.violations] == []
    assert sum(row.served for row in rows) > 20
    assert sum(row.missed for row in rows) == 0
    assert len(capsys.readouterr().out.splitlines()) > 20

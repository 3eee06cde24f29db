"""The progress bar of a crawl, alone and as a program uses it."""

import io

import httpx
import pytest
from rich.cells import cell_len
from rich.console import Console

from politesse import Gatekeeper, PoliteQueue
from politesse.cli.progress import CrawlBar
from politesse.queue import CrawlPage, CrawlProgress
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
MANY = CrawlProgress(
    pages=1_234_567,
    failed=12_345,
    redirects=123_456,
    disallowed=654_321,
    given_up=4_321,
    queued=9_876_543,
    under_way=200,
    hosts=54_321,
    last_url="https://example.com/" + "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 500 + "\x1b[2J[bold]\u202e",
    elapsed_s=100.0,
)


def screen(width: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=24, color_system=None, legacy_windows=False
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 79, 80, 120, 300])
@pytest.mark.parametrize("progress", [CrawlProgress(), MANY])
def test_no_line_is_wider_than_the_terminal(width: int, progress: CrawlProgress) -> None:
    console = screen(width)
    bar = CrawlBar(console)
    bar(progress)
    lines = console.render_lines(bar._rendered(), pad=False)
    assert len(lines) == 4
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert max(map(cell_len, texts)) <= width
    assert "\x1b" not in "".join(texts)


def test_one_of_a_kind_has_no_plural() -> None:
    console = Console(file=io.StringIO(), width=120)
    with CrawlBar(console) as bar:
        bar(CrawlProgress(pages=1, redirects=1, queued=1, hosts=1, elapsed_s=1.0))
    assert written(console).startswith("1 page, 0 failed, 1 redirect, 0 disallowed, 0 given up; 1 queued at 1 host, ")


@pytest.mark.parametrize(
    ("max_pages", "shown"), [(None, "7 of 107 URLs"), (10, "7 of 12 URLs"), (5, "7 of 7 URLs"), (500, "7 of 107 URLs")]
)
def test_the_total_respects_max_pages(max_pages: int | None, shown: str) -> None:
    console = screen(80)
    bar = CrawlBar(console)
    bar(CrawlProgress(pages=5, failed=1, redirects=1, queued=99, under_way=1, max_pages=max_pages))
    head = "".join(segment.text for segment in console.render_lines(bar._rendered(), pad=False)[0])
    assert f" {shown}  0:00" in head


async def test_it_shows_a_crawl_in_a_terminal_and_its_last_state_stays() -> None:
    async def handle(page: CrawlPage[None], _: httpx.Response) -> None:
        page.put("/b")

    console = screen(80)
    site = httpx.MockTransport(lambda _: httpx.Response(200))
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(autojump=True)) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put("https://a.example/")
        async with httpx.AsyncClient(transport=site) as web:
            with CrawlBar(console) as bar:
                await queue.crawl(web, handle, on_progress=bar)
    shown = written(console)
    assert "2 pages, 0 failed, 0 redirects, 0 disallowed" in shown
    assert "https://a.example/b" in shown.splitlines()[-2]
    assert "\x1b[?25h" in shown  # the cursor


def test_elsewhere_the_last_state_is_one_line() -> None:
    console = Console(file=io.StringIO(), width=100)
    with CrawlBar(console) as bar:
        for pages in range(1, 1_000):
            bar(CrawlProgress(pages=pages, elapsed_s=pages / 10))
    assert written(console) == (
        "999 pages, 0 failed, 0 redirects, 0 disallowed, 0 given up; 0 queued at 0 hosts, 0 under way, 10.0 pages/s\n"
    )


def test_a_crawl_that_reports_nothing_prints_nothing() -> None:
    console = Console(file=io.StringIO(), width=100)
    with CrawlBar(console):
        pass
    assert written(console) == ""

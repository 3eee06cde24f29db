"""The progress bar of a crawl, alone and as a program uses it, and the live table of ``politesse crawl``."""

import io

import httpx
import pytest
from rich.cells import cell_len
from rich.console import Console

from politesse import Gatekeeper, PoliteQueue
from politesse.cli import progress
from politesse.cli.crawl_command import CrawlRecords
from politesse.cli.progress import CrawlBar, CrawlView
from politesse.queue import CrawlPage, CrawlProgress
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.scripted import UA

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


def screen(width: int = 80, height: int = 24) -> Console:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=width, height=height, color_system=None, legacy_windows=False)


def bar_lines(width: int, state: CrawlProgress) -> list[str]:
    console = screen(width)
    bar = CrawlBar(console)
    bar(state)
    return ["".join(one.text for one in line) for line in console.render_lines(bar._rendered(), pad=False)]


def printed(*states: CrawlProgress) -> str:
    """What a bar leaves in a file."""
    file = io.StringIO()
    with CrawlBar(Console(file=file, width=120)) as bar:
        for state in states:
            bar(state)
    return file.getvalue()


def test_no_line_of_the_bar_is_wider_than_the_terminal() -> None:
    for width in (20, 40, 79, 80, 120, 300):
        for state in (CrawlProgress(), MANY):
            lines = bar_lines(width, state)
            assert len(lines) == 4
            assert max(map(cell_len, lines)) <= width
            assert "\x1b" not in "".join(lines)


def test_the_total_respects_max_pages() -> None:
    totals = {None: "7 of 107 URLs", 10: "7 of 12 URLs", 5: "7 of 7 URLs", 500: "7 of 107 URLs"}
    for most, shown in totals.items():
        state = CrawlProgress(pages=5, failed=1, redirects=1, queued=99, under_way=1, max_pages=most)
        assert f" {shown}  0:00" in bar_lines(80, state)[0]


async def test_it_shows_a_crawl_in_a_terminal_and_its_last_state_stays() -> None:
    async def handle(page: CrawlPage[None], _: httpx.Response) -> None:
        page.put("/b")

    console = screen()
    site = httpx.MockTransport(lambda _: httpx.Response(200))
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(autojump=True)) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put("https://a.example/")
        async with httpx.AsyncClient(transport=site) as web:
            with CrawlBar(console) as bar:
                await queue.crawl(web, handle, on_progress=bar)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "2 pages, 0 failed, 0 redirects, 0 disallowed" in shown
    assert "https://a.example/b" in shown.splitlines()[-2]
    assert "\x1b[?25h" in shown  # the cursor


def test_elsewhere_there_is_a_line_now_and_then_and_one_of_the_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [CrawlProgress(pages=pages, elapsed_s=pages / 10) for pages in range(1, 1_000)]
    assert printed(*states) == (
        "999 pages, 0 failed, 0 redirects, 0 disallowed, 0 given up; 0 queued at 0 hosts, 0 under way, 10.0 pages/s\n"
    )
    one = printed(CrawlProgress(pages=1, redirects=1, queued=1, hosts=1, elapsed_s=1.0))
    assert one.startswith("1 page, 0 failed, 1 redirect, 0 disallowed, 0 given up; 1 queued at 1 host, ")
    assert printed() == ""
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    assert printed(*states).count("\n") >= 999


# The table.


async def frame(
    *urls: str,
    size: tuple[int, int] = (80, 24),
    recent: list[tuple[str, str]] | None = None,
    robots: dict[str, object] | None = None,
    first: int | None = 503,
) -> list[str]:
    """The lines of the table; the first host has answered with this status, or has not been requested."""
    console, fetcher = screen(*size), ScriptedFetcher(robots)  # type: ignore[arg-type]
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate:
        if first is not None:
            async with gate.turn(urls[0]) as turn:
                turn.observe(first, {"Retry-After": "600"} if first == 503 else {})
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for url in urls:
            if first is None:
                await gate.check(url)
            await queue.put(url)
        records = CrawlRecords(None)
        records.recent.extend(recent or [])
        lines = console.render_lines(CrawlView(console, gate, queue, records.recent).frame(), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


async def test_no_line_is_wider_and_no_frame_higher_than_the_terminal() -> None:
    hosts = [f"{'a' * 60}{n}.{'b' * 60}.example" for n in range(100)]
    recent = [("200", f"https://{host}/{'x' * 9_000}\x1b[2J\N{CJK UNIFIED IDEOGRAPH-4E00}[red]") for host in hosts]
    for width, height in ((80, 24), (120, 40), (40, 10), (20, 5), (200, 60)):
        lines = await frame(*(f"https://{host}/" for host in hosts), size=(width, height), recent=recent)
        assert max(map(cell_len, lines)) <= width
        assert "\x1b" not in "".join(lines)
        assert len(lines) < height or height < 10


async def test_a_closed_host_comes_first_and_says_until_when_and_why() -> None:
    urls = ["https://z.example/", *(f"https://a.example/{n}" for n in range(5))]
    lines = await frame(*urls, size=(120, 24), recent=[("200", "https://a.example/0")])
    titles = next(n for n, line in enumerate(lines) if line.startswith("host"))
    assert lines[titles].split() == ["host", "queued", "pace", "state"]
    first, second, *_ = lines[titles + 1 :]
    assert first.split()[:2] == ["z.example", "1"]
    assert "closed until " in first
    assert first.endswith("Z, retry-after")
    assert second.split()[:2] == ["a.example", "5"]
    assert lines[-1] == "       200  https://a.example/0"


async def test_a_host_shows_its_pace_and_how_long_it_needs_if_that_is_long() -> None:
    for delay, count, pace, needs in (
        (1.5, 1, "1.5 s", ""),
        (10, 5, "10 s", ""),
        (10, 6, "10 s", "; needs 60 s"),
        (30, 9, "30 s", "; needs 4.5 min"),
        (300, 20, "300 s", "; needs 1.7 h"),
        (300, 900, "300 s", "; needs 3 days"),
        (3600, 2, "3,600 s", "; needs 2 h"),
    ):
        robots: dict[str, object] = {"https://a.example": f"User-agent: *\nCrawl-delay: {delay}"}
        urls = [f"https://a.example/{number}" for number in range(count)]
        lines = await frame(*urls, size=(120, 24), robots=robots, first=200)
        [row] = [line for line in lines if line.startswith("a.example")]
        assert (" ".join(row.split()[2:4]), row.partition("crawl-delay")[2]) == (pace, needs), row
        assert "waits for its pace, crawl-delay" in row


async def test_hosts_without_a_row_are_counted() -> None:
    lines = await frame(*(f"https://{n}.example/" for n in range(100)))
    rows = sum(".example" in line for line in lines)
    assert f"and {100 - rows} more hosts" in lines


async def test_trouble_of_one_port_of_a_host_names_the_port() -> None:
    for other, shown in ((404, ":81 robots.txt 503, until "), (503, "  robots.txt 503, until ")):
        robots: dict[str, object] = {"http://a.example:81": 503, "http://a.example": other}
        lines = await frame("http://a.example/", "http://a.example:81/", robots=robots, first=None)
        [row] = [line for line in lines if line.startswith("a.example")]
        assert shown in row

"""The live table of ``politesse crawl``: each line fits, whatever the hosts and URLs are."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from politesse import Gatekeeper, PoliteQueue
from politesse.cli.crawl_command import CrawlRecords
from politesse.cli.progress import CrawlView
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"


async def frame(
    width: int, height: int, urls: list[str], recent: list[tuple[str, str]], robots: dict[str, str] | None = None
) -> list[str]:
    """The lines of the table; the first host is closed by a 503."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height)
    fetcher = ScriptedFetcher(robots)
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate:
        async with gate.turn(urls[0]) as turn:
            turn.observe(503, {"Retry-After": "600"})
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for url in urls:
            await queue.put(url)
        records = CrawlRecords(None)
        records.recent.extend(recent)
        lines = console.render_lines(CrawlView(console, gate, queue, records).frame(), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10), (20, 5), (200, 60)])
async def test_no_line_is_wider_and_no_frame_higher_than_the_terminal(width: int, height: int) -> None:
    hosts = [f"{'a' * 60}{n}.{'b' * 60}.example" for n in range(100)]
    recent = [("200", f"https://{host}/{'x' * 9_000}\x1b[2J\N{CJK UNIFIED IDEOGRAPH-4E00}[red]") for host in hosts]
    lines = await frame(width, height, [f"https://{host}/" for host in hosts], recent)
    assert max(map(cell_len, lines)) <= width
    assert "\x1b" not in "".join(lines)
    if height >= 10:
        assert len(lines) < height


async def test_a_closed_host_comes_first_and_says_until_when_and_why() -> None:
    urls = ["https://z.example/", *(f"https://a.example/{n}" for n in range(5))]
    lines = await frame(120, 24, urls, [("200", "https://a.example/0")])
    titles = next(n for n, line in enumerate(lines) if line.startswith("host"))
    assert lines[titles].split() == ["host", "queued", "pace", "state"]
    first, second, *_ = lines[titles + 1 :]
    assert first.split()[:2] == ["z.example", "1"]
    assert "closed until " in first
    assert first.endswith("Z, retry-after")
    assert second.split()[:2] == ["a.example", "5"]
    assert lines[-1] == "       200  https://a.example/0"


@pytest.mark.parametrize(("delay", "pace"), [("1.5", "1.5"), ("10", "10"), ("3600", "3,600"), ("86400", "86,400")])
async def test_pace_is_in_whole_seconds_where_it_is_long(delay: str, pace: str) -> None:
    robots = {"https://a.example": f"User-agent: *\nCrawl-delay: {delay}"}
    lines = await frame(80, 24, ["https://a.example/1"], [], robots)
    row = next(line for line in lines if line.startswith("a.example"))
    assert row.split()[:4] == ["a.example", "1", pace, "s"]


@pytest.mark.parametrize(
    ("delay", "urls", "needs"),
    [
        (10, 5, ""),
        (10, 6, "; needs 60 s"),
        (30, 9, "; needs 4.5 min"),
        (300, 20, "; needs 1.7 h"),
        (300, 900, "; needs 3 days"),
    ],
)
async def test_a_host_that_needs_long_says_how_long(delay: int, urls: int, needs: str) -> None:
    fetcher = ScriptedFetcher({"https://a.example": f"User-agent: *\nCrawl-delay: {delay}"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate:
        async with gate.turn("https://a.example/") as turn:
            turn.observe(200)
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for number in range(urls):
            await queue.put(f"https://a.example/{number}")
        console = Console(file=io.StringIO(), force_terminal=True, width=120, height=24)
        lines = console.render_lines(CrawlView(console, gate, queue, CrawlRecords(None)).frame(), pad=False)
    [line] = [line for line in ("".join(one.text for one in line) for line in lines) if line.startswith("a.example")]
    assert line.rstrip().endswith(f"waits for its pace, crawl-delay{needs}")


async def test_hosts_without_a_row_are_counted() -> None:
    lines = await frame(80, 24, [f"https://{n}.example/" for n in range(100)], [])
    rows = sum(".example" in line for line in lines)
    assert f"and {100 - rows} more hosts" in lines


@pytest.mark.parametrize(("other", "shown"), [(404, ":81 robots.txt 503, until "), (503, "  robots.txt 503, until ")])
async def test_trouble_of_one_port_of_a_host_names_the_port(other: int, shown: str) -> None:
    fetcher = ScriptedFetcher({"http://a.example:81": 503, "http://a.example": other})
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for url in ("http://a.example/", "http://a.example:81/"):
            await gate.check(url)
            await queue.put(url)
        console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
        lines = console.render_lines(CrawlView(console, gate, queue, CrawlRecords(None)).frame(), pad=False)
    [line] = [line for line in ("".join(one.text for one in line) for line in lines) if line.startswith("a.example")]
    assert shown in line

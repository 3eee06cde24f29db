"""The benchmark of crawls: its web, its server's counts, and that every crawler finds the same pages."""

import asyncio
from collections.abc import Iterator

import pytest
from benchmarks.crawl import CRAWLERS, checked, run
from benchmarks.many_hosts import memory
from benchmarks.many_hosts.memory import Sample, measured, report
from benchmarks.many_hosts.serving import Counts, Server, permit_open_files, serving
from benchmarks.many_hosts.web import FORBIDDEN, Size, Web
from benchmarks.settings import Settings

from politesse.robots import RobotsTxt

pytestmark = pytest.mark.weekly

SEED = 9309
SIZE = Size(hosts=30, pages_each=3, page_bytes=500)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(SIZE, SEED) as served:
        yield served


def test_robots_txt_of_each_host_is_its_own_and_forbids_only_the_forbidden_page() -> None:
    size = Size(hosts=200, pages_each=100, page_bytes=500)
    web = Web(size, SEED)
    bodies = [web.robots(host, ".example:8080") for host in range(size.hosts)]
    assert len(set(bodies)) == size.hosts
    for host, body in enumerate(bodies):
        allowed = RobotsTxt.parse(body).rules_for("examplebot").allowed
        site = f"http://site{host}.example:8080"
        assert not allowed(site + FORBIDDEN)
        assert allowed(f"{site}/")
        assert all(allowed(f"{site}/artikel-{number}.html") for number in range(1, size.pages_each))


@pytest.mark.realtime
@pytest.mark.parametrize("name", CRAWLERS)
def test_every_crawler_finds_every_page_once(name: str, server: Server) -> None:
    crawler = CRAWLERS[name]
    label = name.translate({ord(character): None for character in " ,()"})
    asyncio.run(crawler.crawl(SIZE.starts(f".{label.lower()}.example:{server.port}"), 5))
    checked(SIZE, server.counts(), obeys=crawler.obeys)


@pytest.mark.parametrize(
    ("counts", "obeys"),
    [
        (Counts(pages=90, robots=0), True),
        (Counts(pages=90, robots=30, forbidden=1), True),
        (Counts(pages=89, robots=30), True),
        (Counts(pages=91, robots=30), True),
        (Counts(pages=90), False),
    ],
)
def test_crawl_that_requested_something_else_is_an_error(counts: Counts, *, obeys: bool) -> None:
    with pytest.raises(RuntimeError, match="were to be"):
        checked(SIZE, counts, obeys=obeys)


@pytest.mark.realtime
def test_report_compares_all_crawlers_and_shows_the_pace() -> None:
    heading, costs, paced = run(Settings(corpus=None, rounds=1, seed=SEED, hosts=3))
    assert "3 hosts of 3 pages, 20 at a time" in heading
    for name in CRAWLERS:
        assert name in costs
    pause_s = next(line for line in paced.splitlines() if "1 s a host" in line).split()[-1]
    assert float(pause_s) >= 1.0


@pytest.mark.realtime
@pytest.mark.parametrize("forgets", [False, True])
def test_memory_is_sampled_ten_times(server: Server, *, forgets: bool) -> None:
    samples = measured(server.port, SIZE, forgets=forgets)
    server.counts()
    assert [sample.pages for sample in samples] == list(range(9, 91, 9))
    assert all(sample.traced_bytes > 0 for sample in samples)


def test_memory_report_gives_the_growth_for_each_url() -> None:
    text = report("a seen", [Sample(10, 1_000_000, 2_000_000), Sample(30, 1_002_000, 2_004_000)])
    assert "memory with a seen" in text
    assert "octets for each URL more: 100 traced, 200 resident" in text


def test_memory_is_measured_over_100_000_pages() -> None:
    assert memory.SIZE.pages == 100_000


def test_more_files_than_the_system_permits_end_the_benchmark_with_advice() -> None:
    with pytest.raises(SystemExit, match="give fewer --hosts"):
        permit_open_files(10**9)

"""The benchmark of Scrapy crawls: with and without the add-on, every page is fetched once."""

from collections.abc import Iterator

import pytest
from benchmarks.many_hosts.serving import Server, serving
from benchmarks.many_hosts.web import Size
from benchmarks.scrapy import CRAWLS, crawl, report
from benchmarks.timing import Samples

pytestmark = pytest.mark.weekly

SIZE = Size(hosts=20, pages_each=2, page_bytes=300)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(SIZE, 9309) as served:
        yield served


@pytest.mark.realtime
@pytest.mark.parametrize("name", CRAWLS)
def test_every_crawl_fetches_every_page_once(name: str, server: Server) -> None:
    cpu_s, wall_s = crawl(name, 0, SIZE, server)
    assert cpu_s > 0
    assert wall_s > 0


def test_report_shows_what_is_added_to_each_page() -> None:
    plain, *others = CRAWLS
    cpu, walls = Samples(), Samples()
    for factor in (1, 2, 3):
        cpu.add(plain, 0.003)
        walls.add(plain, 0.01)
        for name in others:
            cpu.add(name, 0.003 + 0.001 * factor)
            walls.add(name, 0.02)
    rows = report(cpu, walls).splitlines()
    assert [row.split()[-2:] for row in rows if row.startswith("Scrapy")] == [["1.00", "100"]]
    added = [row.split()[-7:] for row in rows if row.startswith("with")]
    assert added == [["5.00", "+2.00", "+1.00", "to", "+3.00", "1.67", "50"]] * 2

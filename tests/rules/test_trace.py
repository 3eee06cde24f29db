import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from politesse._judge import Exchange, Kind, Promises, TraceJudge

DAY_S = 86_400.0


def kinds(judge: TraceJudge, *trace: Exchange) -> list[Kind]:
    return [violation.kind for exchange in trace for violation in judge.judge(exchange)]


def page(started: float, host: str = "a.test", path: str = "/", status: int = 200) -> Exchange:
    return Exchange(f"https://{host}{path}", started, started + 0.1, status)


def test_trace_that_begins_in_mid_crawl_may_rest_on_older_copies() -> None:
    robots = page(2 * DAY_S, path="/robots.txt", status=503)
    trace = [page(0), page(DAY_S * 1.5), robots, page(2.5 * DAY_S), page(3.1 * DAY_S)]
    assert kinds(TraceJudge(lambda _: None, Promises(), is_whole=False), *trace) == [Kind.STALE]
    assert kinds(TraceJudge(lambda _: None, Promises()), *trace) == [
        *(Kind.BEFORE_ROBOTS, Kind.BEFORE_ROBOTS),
        *(Kind.WHILE_CLOSED, Kind.WHILE_CLOSED),
    ]


def endless(days: int) -> Iterator[Exchange]:
    """New hosts, which come back after three days, and a busy host in a closing, which redirects its robots.txt."""
    for n in range(days * 2_000):
        at, other = n * DAY_S / 2_000, f"new{n % 6_000}.test"
        yield page(at, other, path="/robots.txt")
        moved = Exchange("https://busy.test/robots.txt", at, at + 0.1, 301, DAY_S, location=f"https://{other}/x")
        yield moved if n % 2 else Exchange("https://busy.test/a", at + 0.2, at + 0.3, 503, DAY_S)


def grown_bytes(days: int) -> int:
    judge = TraceJudge(lambda _: None, Promises(max_hosts=1_000))
    tracemalloc.start()
    for exchange in endless(days):
        judge.judge(exchange)
    gc.collect()  # hosts and their robots.txt refer to each other
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


@pytest.mark.full
def test_memory_is_bounded_by_the_number_of_hosts_that_are_remembered() -> None:
    _, few, many = (grown_bytes(days) for days in (3, 1, 3))  # the first fills the caches of origins
    assert many < 1.1 * few


def test_the_host_that_was_requested_least_recently_is_forgotten_and_nothing_is_invented() -> None:
    closing = Exchange("https://a.test/", 0.0, 0.1, 503, retry_after_s=3_600.0)
    others = [page(100.0 + n / 100, f"other{n % 50}.test", "/robots.txt") for n in range(150)]

    def found(max_hosts: int) -> list[Kind]:
        judge = TraceJudge(lambda _: None, Promises(max_hosts=max_hosts, min_refetch_s=0.0))
        return kinds(judge, page(0.0, path="/robots.txt"), closing, *others, page(3_599.0))[1:]

    assert (found(51), found(50)) == ([Kind.RETRY_AFTER], [])

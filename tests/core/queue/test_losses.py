"""What a crawl says of the URLs that it loses: those that it gives up, and those that are left at closed sites."""

import pytest

from politesse import Bound, PacingOptions, Reason
from politesse.queue import Loss
from politesse.testing import ManualClock
from tests.core.queue.crawl import A, B, C, Queue, made, put, urls
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb

START = 1_800_000_000.0
HOUR_S = 3_600.0


def _rows(losses: tuple[Loss, ...]) -> list[tuple[str, int, Reason | Bound, str]]:
    return [(loss.host, loss.left, loss.reason, loss.detail) for loss in losses]


async def test_each_site_that_is_given_up_is_a_loss_with_its_reason(queue: Queue) -> None:
    queue.robots[A] = 503
    queue = queue.made(max_unreachable_s=300)
    price = Reply(402, {"crawler-price": "USD 0.01", "Retry-After": "7200"})
    web = SimulatedWeb({f"{B}/0": Reply(503, {"Retry-After": "7200"}), f"{C}/0": price})
    await put(queue, *urls(3), *urls(5, B), *urls(3, C), *urls(2, "https://d.example"), "https://e.example/")
    queue.give_up("d.example", "we have \x1b[2J its dump")
    report = await queue.crawl(web, Pages())
    assert _rows(report.losses) == [
        ("b.example", 5, Reason.WAIT_TOO_LONG, "retry-after until 2027-01-15T10:00:01Z"),
        ("a.example", 3, Reason.UNREACHABLE, "the server answered with status 503"),
        ("d.example", 2, Reason.GIVEN_UP, "we have \\x1b[2J its dump"),
        ("c.example", 2, Reason.REFUSED, "refused 1 time in a row: 402, crawler-price: USD 0.01"),
    ]
    assert {round(loss.since - START) for loss in report.losses} <= {0, 1}
    assert (report.lost, report.given_up, report.left) == (12, 12, 0)
    assert ", 12 lost at 4 sites, " in str(report)
    told = (
        "a.example: 3 URLs, robots.txt is unreachable, so everything is disallowed: the server answered with status 503"
    )
    assert str(report.losses[1]).startswith(f"{told}; since 2027-01-15T08:00:0")


async def test_disallowed_urls_and_urls_that_are_left_at_an_open_host_are_no_losses(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /1"
    await put(queue, *urls(3), *urls(3, B))
    report = await queue.crawl(SimulatedWeb(), Pages(), max_pages=2)
    assert (report.left > 0, report.losses, report.lost) == (True, (), 0)
    assert "lost" not in str(report)


@pytest.mark.parametrize("later_s", [0, 2_000])
async def test_what_is_left_at_a_host_that_is_closed_at_the_end_is_a_loss(queue: Queue, later_s: float) -> None:
    await put(queue, *urls(3), *urls(9, B))
    web = SimulatedWeb({f"{A}/0": Reply(503, {"Retry-After": "3000"})})
    report = await queue.crawl(web, Pages(), **({"max_time_s": later_s} if later_s else {"max_pages": 1}))
    [loss] = report.losses
    assert (loss.host, loss.left, loss.reason) == ("a.example", 3, Bound.RETRY_AFTER)
    assert (loss.detail[:6], round(loss.since - START)) == ("until ", 1)
    assert (report.lost, report.given_up) == (3, 0)
    assert "a.example: 3 URLs, the host is closed, by retry-after: until 2027-01-15T08:50:01Z; since " in str(loss)


async def test_what_is_left_at_an_origin_whose_robots_txt_is_unreachable_is_a_loss(queue: Queue) -> None:
    queue.robots[A] = 503
    await put(queue, *urls(2), f"{A}:8443/1", f"{A}:8443/2", f"{A}:8443/3")
    report = await queue.crawl(SimulatedWeb(), Pages(), max_pages=1)
    unreachable = ("a.example", 2, Reason.UNREACHABLE, "the server answered with status 503")
    assert _rows(report.losses) == [unreachable]
    assert (report.left, report.lost) == (4, 2)
    web = SimulatedWeb({f"{A}:8443/2": Reply(503, {"Retry-After": "900"})})
    report = await queue.crawl(web, Pages(), max_time_s=30)
    assert _rows(report.losses) == [unreachable, ("a.example", 2, Bound.RETRY_AFTER, report.losses[1].detail)]
    assert (report.left, report.lost) == (4, 4)


async def test_what_is_left_at_a_host_with_a_visit_time_is_a_loss() -> None:
    midnight = 1_800_057_600.0
    async with made(ManualClock(midnight, autojump=True), max_wait_s=None) as queue:
        queue.robots[A] = "User-agent: *\nVisit-time: 0600-0700\n"
        await put(queue, *urls(2))
        report = await queue.crawl(SimulatedWeb(), Pages(), max_time_s=60)
    assert _rows(report.losses) == [("a.example", 2, Bound.VISIT_TIME, "until 2027-01-16T06:00:00Z")]


async def test_the_largest_come_first_and_a_million_hosts_are_totalled_exactly() -> None:
    async with made(max_unreachable_s=0, pacing=PacingOptions(min_delay_s=0.0)) as queue:
        for place in range(1_100):
            queue.robots[f"https://h{place}.example"] = 503
            queue.put_nowait(f"https://h{place}.example/")
        await put(queue, *urls(3, "https://h7.example/more"))
        report = await queue.crawl(SimulatedWeb(), Pages())
    assert (len(report.losses), report.lost, report.given_up) == (1_000, 1_103, 1_103)
    assert (report.losses[0].host, report.losses[0].left) == ("h7.example", 4)
    assert sum(loss.left for loss in report.losses) == 1_003
    assert ", 1,103 lost at more than 1,000 sites, " in str(report)


async def test_of_many_closed_hosts_those_with_the_most_urls_are_named() -> None:
    async with made(pacing=PacingOptions(min_delay_s=0.0)) as queue:
        for place in range(2_100):
            queue.robots[f"https://h{place}.example"] = 503
            for number in range(1 + (place >= 2_000)):
                queue.put_nowait(f"https://h{place}.example/{number}")
        report = await queue.crawl(SimulatedWeb(), Pages(), max_time_s=30)
    assert (len(report.losses), report.lost, report.left) == (1_000, 2_200, 2_200)
    assert [loss.left for loss in report.losses] == [2] * 100 + [1] * 900


async def test_a_crawl_counts_its_own_losses_only(queue: Queue) -> None:
    for _ in range(2):
        await put(queue, *urls(2, B))
        queue.give_up("b.example", "enough")
        report = await queue.crawl(SimulatedWeb(), Pages())
        assert (report.lost, report.given_up) == (2, 2)

"""Crawls of sites that refuse the crawler: how many requests they get, and what the queue gives up."""

from collections import Counter

import pytest

from politesse import ConfigurationError, Gatekeeper, PacingOptions, Reason
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, Queue, Refusals
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb

CHALLENGE = Reply(403, {"cf-mitigated": "challenge"})
PRICE = Reply(402, {"crawler-price": "USD 0.01"})


@pytest.mark.full
async def test_of_a_thousand_hosts_a_hundred_that_deny_get_twelve_requests_each(
    queue: Queue, refused: Refusals, pages: Pages, clock: ManualClock
) -> None:
    def reply(url: str) -> Reply:
        return Reply(403 if url.startswith("https://host00") else 200)

    for host in range(1000):
        for page in range(15 if host < 100 else 2):
            await queue.put(f"https://host{host:04}.example/{page}")
    web = SimulatedWeb(reply, clock, took_s=0.05)
    report = await queue.crawl(web, pages, workers=50)
    asked = Counter(url.split("/")[2] for url in web.urls)
    denying = [count for host, count in asked.items() if host.startswith("host00")]
    assert len(denying) == 100
    assert max(denying) <= 12
    assert all(count == 2 for host, count in asked.items() if not host.startswith("host00"))
    assert {verdict.reason for _, verdict in refused.verdicts} == {Reason.REFUSED}
    assert refused.verdicts[0][1].note == "refused 3 times in a row: 403"
    assert report.given_up == 15 * 100 - sum(denying)


async def test_a_site_with_private_pages_among_others_loses_none(queue: Queue, pages: Pages) -> None:
    urls = [f"{A}/{page}" for page in range(200)]
    web = SimulatedWeb({url: Reply(403) for url in urls[::10]})
    for url in urls:
        await queue.put(url)
    report = await queue.crawl(web, pages)
    assert (report.pages, report.given_up, len(web.requests)) == (200, 0, 200)


@pytest.mark.parametrize(
    ("reply", "asked", "note"),
    [
        (CHALLENGE, 3, "refused 3 times in a row: 403, cf-mitigated: challenge"),
        (PRICE, 3, "refused 3 times in a row: 402, crawler-price: USD 0.01"),
        (Reply(401, {"www-authenticate": "License"}), 12, "refused 3 times in a row: 401, WWW-Authenticate: License"),
        (Reply(403), 12, "refused 3 times in a row: 403"),
    ],
    ids=["challenge", "price", "license", "denials"],
)
async def test_a_site_that_refuses_gets_few_requests_and_is_given_up_with_its_words(
    queue: Queue, refused: Refusals, pages: Pages, clock: ManualClock, reply: Reply, asked: int, note: str
) -> None:
    for page in range(360):
        await queue.put(f"{A}/{page}")
    web = SimulatedWeb(lambda _: reply, clock)
    report = await queue.crawl(web, pages)
    assert (len(web.requests), report.given_up) == (asked, 360 - asked)
    assert {(verdict.reason, verdict.note) for _, verdict in refused.verdicts} == {(Reason.REFUSED, note)}
    assert 900.0 + 1800.0 < clock.monotonic() < 3600.0


async def test_a_challenge_between_other_pages_closes_the_site_but_gives_nothing_up(
    queue: Queue, pages: Pages, clock: ManualClock
) -> None:
    urls = [f"{A}/{page}" for page in range(9)]
    for url in urls:
        await queue.put(url)
    report = await queue.crawl(SimulatedWeb(dict.fromkeys(urls[::3], CHALLENGE), clock), pages)
    assert (report.pages, report.given_up) == (9, 0)
    assert 3 * 900.0 < clock.monotonic() < 3 * 900.0 * 1.1 + 60.0


async def test_after_how_many_refusals_a_site_is_given_up_is_an_option(
    gate: Gatekeeper, refused: Refusals, pages: Pages, clock: ManualClock
) -> None:
    queue: Queue = PoliteQueue(gate, on_disallowed=refused, max_refusals=1)
    for page in range(5):
        await queue.put(f"{A}/{page}")
    web = SimulatedWeb(lambda _: PRICE, clock)
    await queue.crawl(web, pages)
    assert len(web.requests) == 1
    assert len(refused.verdicts) == 4
    assert clock.monotonic() < 60.0


@pytest.mark.parametrize("wrong", [0, -1, "three", None, 1.5])
async def test_a_number_of_refusals_that_is_none_is_an_error(gate: Gatekeeper, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="max_refusals="):
        PoliteQueue(gate, max_refusals=wrong)  # type: ignore[arg-type] # that is the error


async def test_a_site_that_is_given_up_is_logged_with_the_words_of_its_answer(
    queue: Queue, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    for page in range(5):
        await queue.put(f"{A}/{page}")
    await queue.crawl(SimulatedWeb(lambda _: PRICE), pages)
    assert (
        "gave up https://a.example: the site refuses this crawler: refused 3 times in a row: 402, crawler-price"
        in caplog.text
    )
    assert "by 402 for https://a.example/0 (refused 1 time in a row: 402, crawler-price: USD 0.01)" in caplog.text


async def test_with_shorter_times_the_number_still_counts(
    fetcher: ScriptedFetcher, pages: Pages, clock: ManualClock
) -> None:
    pacing = PacingOptions(refused_min_s=5.0, refused_after=2)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        queue: Queue = PoliteQueue(gate)
        for page in range(10):
            await queue.put(f"{A}/{page}")
        web = SimulatedWeb(lambda _: Reply(403), clock)
        await queue.crawl(web, pages)
    assert len(web.requests) == 4


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        (CHALLENGE, 3),
        (PRICE, 3),
        (Reply(401), 12),
        (Reply(403), 12),
        (Reply(500), 11),
        (Reply(502), 10),
        (Reply(504), 10),
    ],
    ids=["challenge", "price", "401", "403", "500", "502", "504"],
)
async def test_a_site_with_one_answer_gets_few_requests_in_an_hour(
    gate: Gatekeeper, clock: ManualClock, reply: Reply, asked: int
) -> None:
    times: list[float] = []
    while clock.monotonic() < 3600.0:
        async with gate.turn(f"{A}/") as turn:
            times.append(clock.monotonic())
            turn.observe(reply.status_code, reply.headers)
    assert sum(time < 3600.0 for time in times) <= asked


async def test_404_and_private_pages_slow_nothing(gate: Gatekeeper, clock: ManualClock) -> None:
    for number in range(1000):
        async with gate.turn(f"{A}/") as turn:
            turn.observe(403 if number % 10 == 0 else 404 if number % 10 == 5 else 200)
    assert clock.monotonic() < 1000.5

"""When a file is asked for again: after a refusal, by which 304, and by clocks that disagree."""

import asyncio
from itertools import pairwise, product
from typing import Any, Final

import pytest

from politesse import CacheOptions, Disallowed, HostPolicy, PacingOptions, Reason
from politesse.ports import FetchResponse
from politesse.queue import PoliteQueue
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import Answer, ManualClock
from tests.core.gate import gates
from tests.core.gate.gates import CLOSED, HOUR, OPEN, PAGE, ROBOTS_TXT, SITE, Answers, ScriptedGate, lasting, refusal
from tests.support.stores import KeptStore
from tests.support.tasks import settle

HOST: Final = "example.com"
DATA_TXT: Final = f"{SITE}/data.txt"
EPOCH: Final = "Thu, 01 Jan 1970 00:00:00 GMT"
EARLIER: Final = {"last-modified": "Sun, 31 Dec 2023 00:00:00 GMT"}
LATER: Final = {"last-modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
REFUSALS: Final = [
    *(refusal(429), refusal(429, "1"), refusal(429, "20"), refusal(429, "500")),
    *(refusal(503), refusal(503, "1"), refusal(503, "20"), refusal(500)),
]
SOON: Final = CacheOptions(retry_min_s=2)
AT_END: Final = CacheOptions(refresh_after=1.0)


def starts(gate: ScriptedGate, url: str = ROBOTS_TXT) -> list[float]:
    """Return the Unix times of the requests for a URL."""
    assert isinstance(gate.fetcher, gates.TimedFetcher)
    return gate.fetcher.starts(url)


def about(wall: float | None) -> Any:
    """Return a Unix time for a comparison to the millisecond."""
    return pytest.approx(wall, rel=0.0, abs=0.001)


async def opening(gate: ScriptedGate) -> float:
    """Return when the verdict says that robots.txt is asked for again."""
    verdict = await gate.check(PAGE)
    assert not verdict
    assert verdict.not_before is not None
    return verdict.not_before


async def test_verdict_the_host_and_the_next_fetch_agree() -> None:
    early, late = PacingOptions(backoff_min_s=2), PacingOptions(backoff_min_s=300)
    domain = PacingOptions(backoff_min_s=2, key="domain")
    options = [*product([CacheOptions()], [PacingOptions(), early, late]), *product([SOON], [early, late, domain])]
    options += product([CacheOptions(retry_min_s=200)], [PacingOptions(), late])
    for answer, (cache, pacing) in product(REFUSALS, options):
        async with ScriptedGate({SITE: [answer, answer, OPEN]}, jumps=True, cache=cache, pacing=pacing) as gate:
            for fetches in (1, 2):
                not_before = await opening(gate)
                host = gate.hosts()[HOST]
                assert (host.not_before, host.robots[0].next_fetch) == (about(not_before), about(not_before))
                assert host.closed_until is None or host.closed_until <= not_before
                await gate.clock.sleep(not_before - gate.clock.wall() - 0.01)
                assert not await gate.check(PAGE)
                assert len(starts(gate)) == fetches
                await gate.clock.sleep(0.0101)
                await gate.check(PAGE)
                assert starts(gate)[fetches:] == [about(not_before)]
            assert await gate.check(PAGE)


async def test_queue_asks_again_at_the_moment_of_the_verdict() -> None:
    for answer in REFUSALS:
        pacing = PacingOptions(backoff_min_s=2)
        async with ScriptedGate({SITE: [answer, OPEN]}, jumps=True, cache=SOON, pacing=pacing) as gate:
            queue = PoliteQueue[str](gate, max_wait_s=None)
            await queue.put(PAGE)
            not_before = await opening(gate)
            async with queue.turn() as turn:
                assert turn.url == PAGE
            assert starts(gate)[1:] == [about(not_before)]


async def test_host_to_which_robots_txt_redirects_or_that_refused_another_file_is_waited_for() -> None:
    target = "https://target.example"
    there = f"{target}/robots.txt"
    answers: Answers = {SITE: gates.moved(ROBOTS_TXT, there), target: [refusal(429, url=there), OPEN]}
    async with ScriptedGate(answers, jumps=True, cache=SOON) as gate:
        not_before = await opening(gate)
        assert gate.hosts()["target.example"].closed_until == about(not_before)
        await gate.clock.sleep(not_before - gate.clock.wall())
        assert await gate.check(PAGE)
    async with ScriptedGate({SITE: OPEN, DATA_TXT: refusal(429, url=DATA_TXT)}, jumps=True, cache=SOON) as gate:
        answer = await gate.datatxt(SITE)
        assert answer.file.not_before == about(gate.hosts()[HOST].closed_until)


async def test_next_process_names_the_same_moment() -> None:
    records: dict[str, bytes] = {}
    async with ScriptedGate({SITE: 429}, jumps=True, cache=SOON, store=KeptStore(records)) as gate:
        first = await opening(gate)
    async with ScriptedGate({SITE: OPEN}, clock=gate.clock, cache=SOON, store=KeptStore(records)) as gate:
        assert await opening(gate) == first
        await gate.clock.sleep(first - gate.clock.wall())
        assert await gate.check(PAGE)


async def test_page_of_another_origin_that_closes_the_host_later_counts_too() -> None:
    answers: Answers = {SITE: [500, OPEN], "http://example.com": OPEN}
    for pacing in (PacingOptions(key="host"), PacingOptions(key="domain")):
        async with ScriptedGate(answers, jumps=True, pacing=pacing) as gate:
            assert not await gate.check(PAGE)
            async with gate.turn("http://example.com/page") as turn:
                turn.observe(429, {"Retry-After": "600"})
            not_before, host = await opening(gate), gate.hosts()[HOST]
            assert (host.closed_until, host.not_before) == (about(not_before), about(not_before))
            assert [robots.next_fetch for robots in host.robots if robots.fault] == [about(not_before)]
            await gate.clock.sleep(not_before - gate.clock.wall() + 0.001)
            assert await gate.check(PAGE)


async def test_unreachable_robots_txt_delays_no_other_origin_of_the_host() -> None:
    failures: list[Answer] = [500, 503, ConnectionError("refused")]
    others: list[Answer] = [OPEN, 404]
    for failure, (url, other) in product(failures, product(("http://example.com", f"{SITE}:8080"), others)):
        async with ScriptedGate({SITE: failure, url: other}, jumps=True) as gate:
            assert not await gate.check(PAGE)
            before = gate.clock.monotonic()
            async with gate.turn(ROBOTS_TXT):  # which is always allowed
                pass
            assert await gate.check(f"{url}/page")
            async with gate.turn(f"{url}/page"):
                assert gate.clock.monotonic() - before < 5.0


# The backoff


@pytest.mark.clause("RFC 9110 10.2.3")
async def test_short_retry_after_does_not_shorten_the_backoff_of_robots_txt() -> None:
    for status, retry_after in product((429, 503), ("0", "1", "59", EPOCH)):
        async with ScriptedGate({SITE: refusal(status, retry_after)}) as gate:
            for _ in range(470):  # as somebody asks who does not heed what the gate says
                await gate.check(PAGE)
                gate.clock.advance(1.0)
            first, second, third = (after - before for before, after in pairwise(starts(gate)))
        assert 60 <= first <= 67
        assert 120 <= second <= 133
        assert 240 <= third <= 265


async def test_short_retry_after_does_not_shorten_the_backoff_of_another_file() -> None:
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    for retry_after in ("0", "1", EPOCH):  # of a 500: 429 and 503 close the host for pages, too
        answers: Answers = {SITE: OPEN, DATA_TXT: refusal(500, retry_after, DATA_TXT)}
        async with ScriptedGate(answers, jumps=True, pacing=pacing) as gate:
            while gate.clock.monotonic() < 600:
                assert (await gate.datatxt(SITE)).file.outcome is FileOutcome.RETRY
                await gate.clock.sleep(5.0)
            assert gate.fetcher.count(DATA_TXT) == 4


async def test_429_defers_although_an_older_copy_served_while_robots_txt_was_unreachable() -> None:
    async with ScriptedGate({SITE: [lasting(600), 503, refusal(429, "3000")]}) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(700)
        assert await gate.check(PAGE)  # unreachable: the copy serves within a day
        gate.clock.advance(70)
        gate.peek(PAGE)
        await settle()
        assert gate.fetcher.count(SITE) == 3
        assert (await gate.check(PAGE)).reason is Reason.TOO_MANY_REQUESTS


async def test_record_that_the_store_lost_makes_a_429_no_more_lenient() -> None:
    for passed_s, reason in ((550, Reason.NO_RULE), (700, Reason.TOO_MANY_REQUESTS)):
        store = MemoryStore()
        async with ScriptedGate({SITE: [lasting(600), 503, refusal(429, "3000")]}, store=store) as gate:
            await gate.check(PAGE)
            gate.clock.advance(passed_s - 70)
            if passed_s > 600:
                await gate.check(PAGE)
            else:
                gate.fetcher.answers[SITE] = refusal(429, "3000")
            gate.clock.advance(70)
            await store.delete(SITE)
            gate.peek(PAGE)
            await settle()
            assert (await gate.check(PAGE)).reason is reason


# Revalidation


def kept(body: str, etag: str, url: str = ROBOTS_TXT) -> FetchResponse:
    """Return a file that is fresh for an hour; without an ETag it has another validator."""
    validator = {"etag": etag} if etag else {"last_modified": "then"}
    return gates.found(body, url, cache_control="max-age=3600", **validator)


def not_modified(etag: str = "", url: str = ROBOTS_TXT, *, conditional: bool = True) -> FetchResponse:
    return FetchResponse(304, url, {"etag": etag} if etag else {}, conditional=conditional)


def conditions(gate: ScriptedGate, url: str = ROBOTS_TXT) -> list[bool]:
    """Return of each request for a URL whether it had conditions."""
    return [request.validators is not None for request in gate.fetcher.requests if request.url == url]


@pytest.mark.clause("RFC 9111 4.3.4")
async def test_304_about_another_file_causes_an_unconditional_fetch_of_robots_txt() -> None:
    for old, new in (('"open"', '"closed"'), ('W/"open"', '"closed"'), ("", '"closed"')):
        answers = [kept(OPEN, old), not_modified(new), kept(CLOSED, new), not_modified(new)]
        async with ScriptedGate({SITE: answers}, cache=AT_END) as gate:
            assert await gate.check(PAGE)
            for _ in range(3):
                gate.clock.advance(HOUR)
                assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE
            # The new file is what the next conditions are about.
            assert conditions(gate) == [False, True, False, True, True]
            assert gate.fetcher.requests[-1].validators is not None
            assert gate.fetcher.requests[-1].validators.etag == new


@pytest.mark.clause("RFC 9111 4.3.4")
async def test_304_with_an_unexpected_validator_renews_nothing() -> None:
    tag = {"etag": '"open"'}
    for old, new in ((tag, {"etag": '"clos\u00e9"'}), (LATER, EARLIER), (tag | LATER, EARLIER)):
        first = FetchResponse(200, ROBOTS_TXT, {"cache-control": "max-age=3600"} | old, OPEN.encode())
        answers: list[Answer] = [first, FetchResponse(304, ROBOTS_TXT, new, conditional=True), CLOSED]
        async with ScriptedGate({SITE: answers}, cache=AT_END) as gate:
            assert await gate.check(PAGE)
            gate.clock.advance(HOUR)
            assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE
            assert conditions(gate) == [False, True, False]


@pytest.mark.clause("RFC 9110 8.8.3.2")
async def test_304_about_the_same_file_renews_the_copy_by_one_request() -> None:
    for old, new in (('"x"', '"x"'), ('"x"', ""), ('"x"', 'W/"x"'), ('W/"x"', '"x"'), ("", "")):
        async with ScriptedGate({SITE: [kept(CLOSED, old), not_modified(new)]}, cache=AT_END) as gate:
            for _ in range(4):
                assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE
                gate.clock.advance(HOUR)
            assert conditions(gate) == [False, True, True, True]


async def test_304_to_an_unconditional_request_means_unreachable_whatever_its_validator() -> None:
    other = not_modified('"closed"')
    async with ScriptedGate({SITE: [kept(OPEN, '"open"'), other]}, cache=AT_END) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(23 * HOUR)
        verdict = await gate.check(PAGE)
        assert verdict.allowed  # for the rest of the day in which a copy serves an unreachable site
        assert verdict.source is not None
        assert "304" in verdict.source.fault
        gate.clock.advance(HOUR)
        assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE
        assert conditions(gate) == [False, True, False, True, False]
    for lies in (True, False):
        second = not_modified('"open"', conditional=lies)
        async with ScriptedGate({SITE: [kept(OPEN, '"open"'), other, second]}, cache=AT_END) as gate:
            await gate.check(PAGE)
            gate.clock.advance(24 * HOUR)
            assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE


async def test_304_about_another_file_does_not_renew_a_stored_copy() -> None:
    store = MemoryStore()
    async with ScriptedGate({SITE: kept(OPEN, '"open"')}, store=store) as gate:
        assert await gate.check(PAGE)
    gate.clock.advance(2 * HOUR)
    answers = [not_modified('"closed"'), kept(CLOSED, '"closed"')]
    async with ScriptedGate({SITE: answers}, clock=gate.clock, store=store) as gate:
        assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE
        assert conditions(gate) == [True, False]


async def test_304_about_another_file_causes_an_unconditional_fetch_of_a_site_file() -> None:
    answers = [kept("a: 1\n", '"old"', DATA_TXT), not_modified('"new"', DATA_TXT), kept("a: 2\n", '"new"', DATA_TXT)]
    async with ScriptedGate({DATA_TXT: answers}, jumps=True, cache=AT_END) as gate:
        assert (await gate.datatxt(SITE)).file.body == b"a: 1\n"
        gate.clock.advance(HOUR)
        file = (await gate.datatxt(SITE)).file
        assert (file.outcome, file.body) == (FileOutcome.FOUND, b"a: 2\n")
        assert conditions(gate, DATA_TXT) == [False, True, False]


async def test_site_file_answered_by_304_without_conditions_is_retried() -> None:
    answers = [kept("a: 1\n", '"old"', DATA_TXT), not_modified('"new"', DATA_TXT)]
    async with ScriptedGate({DATA_TXT: answers}, jumps=True, cache=AT_END) as gate:
        await gate.datatxt(SITE)
        gate.clock.advance(25 * HOUR)
        assert (await gate.datatxt(SITE)).file.outcome is FileOutcome.RETRY
        assert conditions(gate, DATA_TXT) == [False, True, False]


# A wall clock that is set, and a monotonic clock that stands still while the machine sleeps


def step(clock: ManualClock, seconds: float) -> None:
    """Set the wall clock forward or back."""
    clock.set_wall(clock.wall() + seconds)


async def test_age_is_the_larger_of_monotonic_and_wall_time() -> None:
    urls = (PAGE, "https://unavailable.example/")
    for slept_s, passed_s in ((HOUR, 0.0), (HOUR, 30.0), (0.0, HOUR), (-HOUR, 30.0), (-HOUR, 0.0)):
        async with ScriptedGate({SITE: OPEN}) as gate:
            await gate.check_batch(urls)
            step(gate.clock, slept_s)
            gate.clock.advance(passed_s)
            assert [gate.known(url).age_s for url in urls] == [max(passed_s, slept_s + passed_s)] * 2


async def test_copy_near_its_end_by_the_wall_clock_is_refreshed_in_the_background() -> None:
    async with ScriptedGate({SITE: [OPEN, CLOSED]}) as gate:
        await gate.check(PAGE)
        step(gate.clock, 0.95 * gates.DAY)
        assert await gate.check(PAGE)
        await settle()
        assert not await gate.check(PAGE)
        assert gate.fetcher.count(SITE) == 2


async def test_verdict_keeps_the_age_and_the_copy_of_its_moment() -> None:
    async with ScriptedGate({SITE: OPEN}, cache=AT_END) as gate:
        await gate.check(PAGE)
        gate.clock.advance(60.0)
        verdict = gate.known(PAGE)
        source = verdict.source
        gate.clock.advance(HOUR)
        step(gate.clock, -2 * HOUR)
        assert await gate.check(f"{SITE}:443/")  # the plain way, which moves the times of the copy
        assert (verdict.age_s, verdict.source) == (60.0, source)
        later = gate.known(PAGE)
        assert later.age_s == 60.0 + HOUR
        assert later.source != source
        step(gate.clock, -HOUR)
        gate.clock.advance(60.0)
        async with gate.turn(PAGE) as turn:
            assert turn.verdict.source is not None
            assert turn.verdict.source.fetched_wall <= gate.clock.wall()


async def test_wall_clock_that_was_days_ahead_for_a_while_closes_no_site_for_longer() -> None:
    async with ScriptedGate({SITE: [503, OPEN]}, jumps=True) as gate:
        await gate.check(PAGE)
        gate.clock.advance(10.0)
        step(gate.clock, -3 * gates.DAY)
        verdict = await gate.check(PAGE)
        assert verdict.not_before is not None
        assert 50.0 <= verdict.not_before - gate.clock.wall() <= 56.0
        queue: PoliteQueue[object] = PoliteQueue(gate)
        await queue.put(PAGE)
        async with queue.turn():
            assert gate.clock.monotonic() < 100.0


async def test_swinging_wall_clock_causes_no_repeated_fetches() -> None:
    bounds: list[tuple[Answer, int]] = [(OPEN, 1), (lasting(600), 12), (lasting(60), 120), (404, 1), (503, 7)]
    for (answer, most), swing_s in product(bounds, (30.0, 300.0)):
        async with ScriptedGate({SITE: answer}) as gate:
            for place in range(720):
                await gate.check(PAGE)
                await asyncio.sleep(0)
                step(gate.clock, swing_s if place % 2 else -swing_s)
                gate.clock.advance(5.0)
            await settle()
            assert gate.fetcher.count(SITE) <= most


async def test_setting_the_wall_clock_forward_does_not_shorten_a_backoff() -> None:
    async with ScriptedGate({SITE: 503}) as gate:
        await gate.check(PAGE)
        for _ in range(59):
            step(gate.clock, HOUR)
            gate.clock.advance(1.0)
            assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE
        assert gate.fetcher.count(SITE) == 1
        gate.clock.advance(10.0)
        await gate.check(PAGE)
        assert gate.fetcher.count(SITE) == 2


async def test_copy_that_the_store_lost_serves_until_either_clock_ends_it() -> None:
    troubles = {503: Reason.UNREACHABLE, 429: Reason.TOO_MANY_REQUESTS}
    for trouble, sleeps in product(troubles, (True, False)):
        async with ScriptedGate({SITE: [OPEN, refusal(trouble, "86400")]}, store=gates.Forgetful()) as gate:
            await gate.check(PAGE)
            gate.clock.advance(0.95 * gates.DAY)
            if not sleeps:
                step(gate.clock, -23 * HOUR)
            assert await gate.check(PAGE)
            await settle()
            assert gate.fetcher.count(SITE) == 2
            assert await gate.check(PAGE)
            if sleeps:
                step(gate.clock, 0.05 * gates.DAY)
            else:
                gate.clock.advance(0.05 * gates.DAY)
            assert (await gate.check(PAGE)).reason is troubles[trouble]


async def test_setting_the_wall_clock_changes_no_pause_of_a_host() -> None:
    answers: Answers = {SITE: OPEN, f"{SITE}:81": refusal(429, "600", f"{SITE}:81/robots.txt"), f"{SITE}:82": OPEN}
    for by_robots_txt, ahead_s in product((True, False), (HOUR, -23 * HOUR)):
        async with ScriptedGate(answers, jumps=True) as gate:
            async with gate.turn(PAGE) as turn:
                if not by_robots_txt:
                    turn.observe(429, {"Retry-After": "600"})
            if by_robots_txt:
                await gate.check(f"{SITE}:81/")
            refused_mono = gate.clock.monotonic()
            step(gate.clock, ahead_s)
            assert (await gate.check(f"{SITE}:82/")).reason is Reason.TOO_MANY_REQUESTS
            assert gate.fetcher.count(f"{SITE}:82") == 0
            async with gate.turn(PAGE):
                assert gate.clock.monotonic() - refused_mono == pytest.approx(600.0)
            assert (await gate.check(f"{SITE}:82/")).reason is Reason.NO_RULE


async def test_permission_is_checked_again_after_the_machine_slept_during_a_wait() -> None:
    slow = lasting(60, "User-agent: *\nCrawl-delay: 200\n")
    async with ScriptedGate({SITE: [lasting(60), slow, CLOSED]}, cache=AT_END) as gate:
        await gate.check(PAGE)
        gate.clock.advance(30.0)
        first = gate.try_turn(PAGE)
        assert first
        waiting = asyncio.ensure_future(gate.take_turn(PAGE))
        await settle()
        gate.clock.advance(60.0)
        gate.set_policy("example.com", HostPolicy(min_delay_s=10.0))
        first.give_back()
        gate.clock.advance(1.0)
        await settle()  # policy changed and copy expired: robots.txt was fetched again, and states a delay
        assert (gate.fetcher.count(SITE), waiting.done()) == (2, False)
        step(gate.clock, 3 * gates.DAY)
        gate.clock.advance(200.0)
        await settle()
        with pytest.raises(Disallowed):
            await asyncio.wait_for(waiting, 1)


async def test_setting_the_wall_clock_back_during_a_save_keeps_no_record_fresh_for_years() -> None:
    class Slow(MemoryStore):
        async def put(self, key: str, record: bytes, /) -> None:
            step(gate.clock, -3_650 * gates.DAY)
            await super().put(key, record)

    async with ScriptedGate(store=Slow()) as gate:
        await gate.check(PAGE)
        gate.clock.advance(86_401)
        assert gate.peek(PAGE) is None

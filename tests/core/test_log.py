import asyncio
import logging
from typing import Final

import pytest

from politesse import Bound, Gatekeeper, Origin, Reason, Verdict
from politesse._log import EventLog
from politesse.events import (
    AddressNotFound,
    ComponentFailed,
    Decided,
    Event,
    FleetAway,
    FleetBack,
    HeaderOverruled,
    HostClosed,
    HostOpened,
    LongDelay,
    LongWait,
    MatchingBounded,
    Publisher,
    RobotsFetched,
    SiteFileFetched,
    TurnDropped,
    TurnExpired,
)
from politesse.ports import FetchResponse
from politesse.sites import FileOutcome
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult, Match, Source
from tests.support.scripted import UA

SITE = "https://a.test"
ORIGIN = Origin.of(SITE)
REST = f"the remaining rules count against {SITE}"
AT = 1_800_000_000.0  # 2027-01-15T08:00:00Z, where a ManualClock begins
BEGIN = "2027-01-15T08:00:00Z"
SERVES = "a.test serves the next request"
AGAIN = "robots.txt is fetched again after 2027-01-15T08"
STEERING = "\x1b]0;owned\x07\x9b2J\u202e\r\n2026-01-01 CRITICAL forged\u2028"


def lines(caplog: pytest.LogCaptureFixture, *levels: str) -> list[str]:
    return [
        f"{one.levelname} {one.name.removeprefix('politesse.')}: {one.getMessage()}"
        for one in caplog.records
        if one.name.startswith("politesse.") and one.levelname in (levels or {one.levelname})
    ]


def source(result: AccessResult, **given: float | str) -> Source:
    robots_url = f"{SITE}/robots.txt"
    return Source(robots_url, result, None, robots_url, AT, AT + 60.0, **given)  # type: ignore[arg-type]


def fetched(result: AccessResult, status: int | None, **given: float | str) -> RobotsFetched:
    return RobotsFetched(ORIGIN, status, str(given.get("fault", "")), 0.25, source(result, **given))


def bounded(url: str = f"{SITE}/x") -> MatchingBounded:
    match = Match(Reason.DISALLOW_RULE, bound_reached=True)
    return MatchingBounded(
        Verdict(url, "examplebot", allowed=False, match=match, source=source(AccessResult.SUCCESSFUL))
    )


def denial(url: str = f"{SITE}/x", match: Match | None = None, note: str = "", *, allowed: bool = False) -> Decided:
    return Decided(Verdict(url, "examplebot", allowed, match or Match(Reason.POLICY_DENY), note=note))


LINES: Final[dict[str, Event]] = {
    "WARNING pacing: a.test is closed until 2027-01-15T08:15:00Z, for 900 s: retry-after": HostClosed(
        "a.test", AT + 900.0, Bound.RETRY_AFTER, 900.0
    ),
    "WARNING pacing: a.test is closed until 2027-01-15T08:01:00Z, for 60 s: refused": HostClosed(
        "a.test", AT + 60.0, Bound.REFUSED, 60.0
    ),
    "INFO pacing: a.test is closed until 2027-01-15T08:14:59Z, for 899 s: backoff": HostClosed(
        "a.test", AT + 899.0, Bound.BACKOFF, 899.0
    ),
    f"INFO pacing: a.test is closed until 2027-01-15T08:00:10Z, for 10 s, by 503 for {SITE}/a (backoff)": HostClosed(
        "a.test", AT + 10.0, Bound.BACKOFF, 10.0, f"{SITE}/a", 503
    ),
    "INFO pacing: a.test is open again": HostOpened("a.test"),
    f"WARNING pacing: {SITE}/2 waits for a turn at a.test, for 5 s or longer: in-flight, held by {SITE}/1": LongWait(
        "a.test", f"{SITE}/2", 5.0, Bound.IN_FLIGHT, f"{SITE}/1"
    ),
    f"INFO pacing: {SITE}/2 waits for a turn at a.test, for 61 s or longer: crawl-delay": LongWait(
        "a.test", f"{SITE}/2", 61.0, Bound.CRAWL_DELAY, ""
    ),
    "WARNING pacing: redis://b/0 is away: no request starts until it is back (OSError: refused)": FleetAway(
        "redis://b/0", "OSError: refused"
    ),
    "WARNING pacing: redis://localhost:6379/0 is back after 2.0 s": FleetBack("redis://localhost:6379/0", 2.04),
    f"WARNING pacing: The turn of {SITE}/1 has ended after max_turn_s, 600 s: {SERVES}": TurnExpired(
        "a.test", f"{SITE}/1", 600.0
    ),
    f"WARNING pacing: The turn of {SITE}/1 was dropped before its end: use it with `async with`. {SERVES}": TurnDropped(
        "a.test", f"{SITE}/1"
    ),
    "INFO pacing: retry-after: soon from a.test is unreadable; waiting 60 s": HeaderOverruled(
        "a.test", "retry-after", "soon", 60.0
    ),
    "INFO pacing: retry-after: 3 from a.test is too short, because the own backoff is longer; waiting 60 s": (
        HeaderOverruled("a.test", "retry-after", "3", 60.0, 3.0)
    ),
    "INFO pacing: retry-after: 99999 from a.test is too long; waiting 86400 s": HeaderOverruled(
        "a.test", "retry-after", "99999", 86_400.0, 99_999.0
    ),
    "INFO pacing: ratelimit: ? from a.test is unreadable; it is ignored": HeaderOverruled(
        "a.test", "ratelimit", "?", None
    ),
    "INFO pacing: a.test is paced by its name: it has no address (OSError: no such host)": AddressNotFound(
        "a.test", "OSError: no such host"
    ),
    f"DEBUG cache: robots.txt of {SITE} was fetched in 0.25 s: 200, successful": fetched(AccessResult.SUCCESSFUL, 200),
    f"INFO cache: All of {SITE} is disallowed: status 503, since 2027-01-15T08:00:00Z; {AGAIN}:01:00Z": fetched(
        AccessResult.UNREACHABLE, 503, fault="status 503", not_before=AT + 60.0
    ),
    f"WARNING cache: All of {SITE} is disallowed: status 429, since 2027-01-15T08:00:00Z; {AGAIN}:15:00Z": fetched(
        AccessResult.TOO_MANY_REQUESTS, 429, fault="status 429", not_before=AT + 900.0
    ),
    f"INFO cache: robots.txt of {SITE} cannot be fetched: status 503; the copy of {BEGIN} still holds": fetched(
        AccessResult.SUCCESSFUL, 503, fault="status 503"
    ),
    f"WARNING cache: robots.txt of {SITE} is longer than the fetcher reads: its last lines do not count": RobotsFetched(
        ORIGIN, 200, "", 0.25, source(AccessResult.SUCCESSFUL), truncated=True
    ),
    f"DEBUG cache: {SITE}/data.txt was fetched: 404, unknown": SiteFileFetched(
        f"{SITE}/data.txt", 404, "", FileOutcome.UNKNOWN
    ),
    f"DEBUG cache: {SITE}/data.txt was fetched: timeout, retry": SiteFileFetched(
        f"{SITE}/data.txt", None, "timeout", FileOutcome.RETRY
    ),
    "ERROR cache: The store failed for the whole crawl\n  TimeoutError: late": ComponentFailed(
        None, "store", TimeoutError("late")
    ),
    f"DEBUG gate: {SITE}/x is disallowed for examplebot: policy-deny (paused)": denial(note="paused"),
    f"DEBUG gate: {SITE}/x would be disallowed for examplebot: policy-deny (paused)": denial(
        note="paused", allowed=True
    ),
    f"WARNING gate: The rules of {SITE}/robots.txt take too much work to compare them all: {REST}/x": bounded(),
    f"WARNING gate: {SITE} wants 3600 s between requests, more than max_crawl_delay_s: the site is skipped": LongDelay(
        ORIGIN, 3_600.0, "skip"
    ),
}


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "politesse")  # not at_level: what a test sets within it would outlive the test


@pytest.mark.parametrize("line", LINES)
def test_each_event_has_its_logger_its_level_and_its_sentence(line: str, caplog: pytest.LogCaptureFixture) -> None:
    EventLog()(LINES[line])
    assert lines(caplog) == [line]


@pytest.mark.parametrize("event", [denial(match=Match(Reason.NO_RULE), allowed=True), Event()])
def test_what_allows_and_what_is_unknown_is_not_logged(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    EventLog()(event)
    assert caplog.records == []


@pytest.mark.parametrize(
    "event",
    [
        bounded(),
        LongDelay(ORIGIN, 3_600.0, "cap"),
        HeaderOverruled("a.test", "retry-after", "soon", 60.0),
        AddressNotFound("a.test", "OSError"),
    ],
)
def test_state_of_a_site_that_is_published_again_and_again_is_logged_once(
    event: Event, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog()
    for _ in range(3):
        log(event)
    assert len(caplog.records) == 1


def hostile() -> list[Event]:
    url = f"{SITE}/{STEERING}{'a' * 100_000}"
    return [
        HostClosed(url, AT, Bound.BACKOFF, 1.0, url, 503),
        HostOpened(url),
        LongWait(url, url, 61.0, Bound.IN_FLIGHT, url),
        TurnExpired(url, url, 600.0),
        TurnDropped(url, url),
        HeaderOverruled(url, "retry-after", url, None),
        AddressNotFound(url, url),
        fetched(AccessResult.SUCCESSFUL, 200, fault=url),
        fetched(AccessResult.UNREACHABLE, 503, fault=url),
        fetched(AccessResult.UNAVAILABLE, 301, fault=url),
        SiteFileFetched(url, None, url, FileOutcome.RETRY),
        ComponentFailed(ORIGIN, "store", ValueError(url)),
        denial(url, note=url),
        bounded(url),
    ]


@pytest.mark.parametrize("event", hostile(), ids=lambda event: type(event).__name__)
def test_hostile_value_forges_no_line_and_fills_no_disk(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    EventLog()(event)
    [record] = caplog.records
    first, *others = record.getMessage().split("\n")
    assert all(line.isprintable() for line in (first, *others))
    assert all(line.startswith("  ") for line in others)  # of a traceback
    assert len(record.getMessage()) < 3_000


def test_event_of_a_failing_subscriber_is_shortened(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Event) -> None:
        raise ValueError(str(event))

    publisher = Publisher()
    publisher.subscribe(fail)
    publisher.publish(HostOpened("a" * 100_000))
    assert len(caplog.text) < 3_000


def test_library_has_a_null_handler() -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("politesse").handlers)


# The whole way, through the public interface.


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: "User-agent: *\nDisallow: /private\n"})


async def test_robots_txt_that_is_unreachable_is_logged_as_it_begins_as_it_is_long_and_as_it_ends(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    fetcher = ScriptedFetcher({SITE: [500, 500, 500, 500, 500, 500, "User-agent: *"]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        while not (verdict := await gate.check(f"{SITE}/")):
            clock.advance((verdict.not_before or 0.0) - clock.wall())
    begins, is_long, ends = lines(caplog, "INFO", "WARNING")
    assert begins.startswith(f"INFO cache: All of {SITE} is disallowed: the server answered with status 500")
    assert is_long.startswith(f"WARNING cache: All of {SITE} is disallowed: the server answered with")
    assert ", since 2027-01-15T08:00:00Z; robots.txt is fetched again after 2027-01-15T08:1" in is_long
    assert ends == f"INFO cache: robots.txt of {SITE} is reachable again: 200, successful"


async def test_second_spell_is_logged_like_the_first(caplog: pytest.LogCaptureFixture, clock: ManualClock) -> None:
    spell: list[Answer] = [FetchResponse(500, f"{SITE}/robots.txt", {"retry-after": "3600"}), 404]
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: [*spell, *spell]}), clock=clock) as gate:
        for _ in range(4):
            await gate.check(f"{SITE}/")
            clock.advance(86_400.0)
    levels = [line.split()[0] for line in lines(caplog, "INFO", "WARNING")]
    assert levels == ["WARNING", "INFO"] * 2


async def test_denials_and_fetches_are_logged_for_debugging(caplog: pytest.LogCaptureFixture, gate: Gatekeeper) -> None:
    for page in ("", "private/a", "private/b"):  # the first fetches, the others are hits
        await gate.check(f"{SITE}/{page}")
    fetch, *denials = lines(caplog, "DEBUG")
    assert fetch.endswith(f"robots.txt of {SITE} was fetched in 0 s: 200, successful")
    because = "is disallowed for examplebot: disallow-rule (line 2, Disallow: /private)"
    assert denials == [f"DEBUG gate: {SITE}/private/{page} {because}" for page in "ab"]


async def test_denial_is_logged_once_with_subscribers_and_in_report_mode(
    caplog: pytest.LogCaptureFixture, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        gate.subscribe(lambda _: None)
        await gate.check(f"{SITE}/private/a")
        gate.peek(f"{SITE}/private/b")
    assert [line.partition(" for ")[0] for line in lines(caplog, "DEBUG") if " gate: " in line] == [
        f"DEBUG gate: {SITE}/private/{page} would be disallowed" for page in "ab"
    ]


async def test_event_of_a_denial_is_not_made_for_nobody(
    caplog: pytest.LogCaptureFixture, fetcher: ScriptedFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse._gate.agent.Decided", None)
    caplog.set_level(logging.INFO, "politesse")
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        assert not await gate.check(f"{SITE}/private/a")
        assert not gate.peek(f"{SITE}/private/b")


async def test_escaped_url_of_a_denial(caplog: pytest.LogCaptureFixture, gate: Gatekeeper) -> None:
    await gate.check(f"{SITE}/private/\u202e")
    assert any(rf"{SITE}/private/\u202e is disallowed" in line for line in lines(caplog, "DEBUG"))


async def test_page_that_answers_503_is_logged_as_its_host_closes_and_as_it_opens(
    caplog: pytest.LogCaptureFixture, gate: Gatekeeper
) -> None:
    async with gate.turn(f"{SITE}/") as turn:
        turn.observe(503, {"Retry-After": "100"})
    pages = [asyncio.ensure_future(page_of(gate, n)) for n in range(3)]
    await asyncio.gather(*pages)
    closes, waits, opens = lines(caplog, "INFO", "WARNING")
    assert closes.startswith("INFO pacing: a.test is closed until 2027-01-15T08:01:4")
    assert closes.endswith("for 100 s, by 503 for https://a.test/ (retry-after)")
    assert waits.startswith(f"INFO pacing: {SITE}/0 waits for a turn at a.test, for ")
    assert opens == "INFO pacing: a.test is open again"


async def page_of(gate: Gatekeeper, number: int) -> None:
    async with gate.turn(f"{SITE}/{number}") as turn:
        turn.observe(200)

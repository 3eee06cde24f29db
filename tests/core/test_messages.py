"""What a gate tells: events to its subscribers, lines to its log, and errors, which go from one process to another."""

import asyncio
import builtins
import logging
import pickle
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import pytest
import requests

from politesse import Bound, Disallowed, NotYet, Origin, Reason, TooFar, Turn, Verdict, errors, events
from politesse.events import Decided, Event, HostOpened, Publisher
from politesse.integrations.httpx import RequestTooFar
from politesse.integrations.httpx2 import RequestTooFar as Httpx2RequestTooFar
from politesse.sites import FileOutcome
from politesse.testing import Answer
from politesse.verdict import AccessResult, Match, Source
from tests.core.gate.gates import DAY, ScriptedGate, refusal

SITE: Final = "https://a.test"
ORIGIN: Final = Origin.of(SITE)
AT: Final = 1_800_000_000.0  # 2027-01-15T08:00:00Z, where a ManualClock begins
BEGIN: Final = "2027-01-15T08:00:00Z"
AGAIN: Final = "robots.txt is fetched again after 2027-01-15T08"
STEERING: Final = "\x1b]0;owned\x07\x9b2J\u202e\r\n2026-01-01 CRITICAL forged\u2028"


@dataclass(frozen=True, slots=True)
class Happened(Event):
    what: str


@pytest.fixture
async def gate() -> AsyncIterator[ScriptedGate]:
    async with ScriptedGate({SITE: "User-agent: *\nDisallow: /private\n"}, jumps=True) as gate:
        yield gate


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "politesse")  # not at_level: what a test sets within it would outlive the test


def lines(caplog: pytest.LogCaptureFixture, *levels: str) -> list[str]:
    return [
        f"{one.levelname} {one.name.removeprefix('politesse.')}: {one.getMessage()}"
        for one in caplog.records
        if one.name.startswith("politesse.") and one.levelname in (levels or {one.levelname})
    ]


def is_harmless(text: str) -> bool:
    """Whether a logged text steers no terminal, forges no log line, and fills no disk."""
    first, *others = text.split("\n")  # the others are of a traceback
    is_apart = all(line.startswith("  ") for line in others)
    return is_apart and all(line.isprintable() for line in (first, *others)) and len(text) < 3_000


# Subscribers


def test_subscribers_are_called_in_order_until_they_unsubscribe_which_harms_no_other() -> None:
    publisher, seen = Publisher(), list[str]()

    def once(_: Event) -> None:
        seen.append("once")
        end()
        end()

    end = publisher.subscribe(once)
    publisher.subscribe(lambda event: seen.append(f"always {event.what}" if isinstance(event, Happened) else ""))
    publisher.publish(Happened("x"))
    publisher.publish(Happened("y"))
    assert seen == ["once", "always x", "always y"]


async def test_logged_exception_of_a_subscriber_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    class Rude(Exception):
        def __repr__(self) -> str:
            return STEERING

    def fail(event: Event) -> None:
        raise ValueError(f"{STEERING} in {event!r}") from Rude(STEERING)

    caplog.set_level(logging.WARNING, "politesse")
    async with ScriptedGate({SITE: Rude()}) as gate:
        gate.subscribe(fail)
        await gate.check(f"{SITE}/\u202e")
    shown = [logging.Formatter("%(message)s").format(record) for record in caplog.records]
    assert len(shown) == 4  # the fetcher's failure, and the subscriber's on that, the fetch, the decision
    assert [text for text in shown if not is_harmless(text) or "Rude" not in text] == []
    assert shown[0].startswith(f"The fetcher failed for {SITE}\n")
    assert [text for text in shown[1:] if not text.startswith("a subscriber failed ") or "ValueError" not in text] == []


# Lines of the log


def source(result: AccessResult, **given: float | str) -> Source:
    robots_url = f"{SITE}/robots.txt"
    return Source(robots_url, result, None, robots_url, AT, AT + 60.0, **given)  # type: ignore[arg-type]


def fetched(result: AccessResult, status: int | None, **given: float | str) -> events.RobotsFetched:
    return events.RobotsFetched(ORIGIN, status, str(given.get("fault", "")), 0.25, source(result, **given))


def bounded(url: str = f"{SITE}/x") -> events.MatchingBounded:
    match = Match(Reason.DISALLOW_RULE, bound_reached=True)
    return events.MatchingBounded(Verdict(url, "examplebot", False, match, source(AccessResult.SUCCESSFUL)))  # noqa: FBT003


def denial(url: str = f"{SITE}/x", match: Match | None = None, note: str = "", *, allowed: bool = False) -> Decided:
    return Decided(Verdict(url, "examplebot", allowed, match or Match(Reason.POLICY_DENY), note=note))


EVENTS: Final[list[Any]] = [
    events.HostClosed("a.test", AT + 900.0, Bound.RETRY_AFTER, 900.0),
    events.HostClosed("a.test", AT + 60.0, Bound.REFUSED, 60.0),
    events.HostClosed("a.test", AT + 899.0, Bound.BACKOFF, 899.0),
    events.HostClosed("a.test", AT + 10.0, Bound.BACKOFF, 10.0, "https://a.test/a", 503),
    events.HostOpened("a.test"),
    events.LongWait("a.test", "https://a.test/2", 5.0, Bound.IN_FLIGHT, "https://a.test/1"),
    events.LongWait("a.test", "https://a.test/2", 61.0, Bound.CRAWL_DELAY, ""),
    events.FleetAway("redis://b/0", "OSError: refused"),
    events.FleetBack("redis://localhost:6379/0", 2.04),
    events.TurnExpired("a.test", "https://a.test/1", 600.0),
    events.TurnDropped("a.test", "https://a.test/1"),
    events.HeaderOverruled("a.test", "retry-after", "soon", 60.0),
    events.HeaderOverruled("a.test", "retry-after", "3", 60.0, 3.0),
    events.HeaderOverruled("a.test", "retry-after", "99999", 86_400.0, 99_999.0),
    events.HeaderOverruled("a.test", "ratelimit", "?", None),
    events.AddressNotFound("a.test", "OSError: no such host"),
    fetched(AccessResult.SUCCESSFUL, 200),
    fetched(AccessResult.UNREACHABLE, 503, fault="status 503", not_before=AT + 60.0),
    fetched(AccessResult.TOO_MANY_REQUESTS, 429, fault="status 429", not_before=AT + 900.0),
    fetched(AccessResult.SUCCESSFUL, 503, fault="status 503"),
    replace(fetched(AccessResult.SUCCESSFUL, 200), truncated=True),
    events.SiteFileFetched("https://a.test/d", 404, "", FileOutcome.UNKNOWN),
    events.SiteFileFetched("https://a.test/d", None, "timeout", FileOutcome.RETRY),
    events.ComponentFailed(None, "store", TimeoutError("late")),
    denial(note="paused"),
    denial(note="paused", allowed=True),
    bounded(),
    events.LongDelay(ORIGIN, 3_600.0, "skip"),
]
LINES: Final = r"""
WARNING pacing: a.test is closed until 2027-01-15T08:15:00Z, for 900 s: retry-after
WARNING pacing: a.test is closed until 2027-01-15T08:01:00Z, for 60 s: refused
INFO pacing: a.test is closed until 2027-01-15T08:14:59Z, for 899 s: backoff
INFO pacing: a.test is closed until 2027-01-15T08:00:10Z, for 10 s, by 503 for https://a.test/a (backoff)
INFO pacing: a.test is open again
WARNING pacing: https://a.test/2 waits for a turn at a.test, for 5 s or longer: in-flight, held by https://a.test/1
INFO pacing: https://a.test/2 waits for a turn at a.test, for 61 s or longer: crawl-delay
WARNING pacing: redis://b/0 is away: no request starts until it is back (OSError: refused)
WARNING pacing: redis://localhost:6379/0 is back after 2.0 s
WARNING pacing: The turn of https://a.test/1 has ended after max_turn_s, 600 s: {SERVES}
WARNING pacing: The turn of https://a.test/1 was dropped before its end: use it with `async with`. {SERVES}
INFO pacing: retry-after: soon from a.test is unreadable; waiting 60 s
INFO pacing: retry-after: 3 from a.test is too short, because the own backoff is longer; waiting 60 s
INFO pacing: retry-after: 99999 from a.test is too long; waiting 86400 s
INFO pacing: ratelimit: ? from a.test is unreadable; it is ignored
INFO pacing: a.test is paced by its name: it has no address (OSError: no such host)
DEBUG cache: robots.txt of https://a.test was fetched in 0.25 s: 200, successful
INFO cache: All of https://a.test is disallowed: status 503, since {BEGIN}; {AGAIN}:01:00Z
WARNING cache: All of https://a.test is disallowed: status 429, since {BEGIN}; {AGAIN}:15:00Z
INFO cache: robots.txt of https://a.test cannot be fetched: status 503; the copy of {BEGIN} still holds
WARNING cache: robots.txt of https://a.test is longer than the fetcher reads: its last lines do not count
DEBUG cache: https://a.test/d was fetched: 404, unknown
DEBUG cache: https://a.test/d was fetched: timeout, retry
ERROR cache: The store failed for the whole crawl\n  TimeoutError: late
DEBUG gate: https://a.test/x is disallowed for examplebot: policy-deny (paused)
DEBUG gate: https://a.test/x would be disallowed for examplebot: policy-deny (paused)
WARNING gate: The rules of https://a.test/robots.txt take too much work to compare them all: {REST}
WARNING gate: https://a.test wants 3600 s between requests, more than max_crawl_delay_s: the site is skipped
"""


def test_each_event_has_its_logger_its_level_and_its_sentence(caplog: pytest.LogCaptureFixture) -> None:
    for event in EVENTS:
        ScriptedGate().state.publisher.publish(event)
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("politesse").handlers)
    expected = LINES.strip().replace("{SERVES}", "a.test serves the next request").replace("{BEGIN}", BEGIN)
    expected = expected.replace("{AGAIN}", AGAIN).replace("{REST}", f"the remaining rules count against {SITE}/x")
    assert [line.replace("\n", r"\n") for line in lines(caplog)] == expected.split("\n")


def test_state_of_a_site_is_logged_once_and_what_allows_or_is_unknown_never(caplog: pytest.LogCaptureFixture) -> None:
    for event in (denial(match=Match(Reason.NO_RULE), allowed=True), Event()):
        ScriptedGate().state.publisher.publish(event)
    assert caplog.records == []
    overruled = events.HeaderOverruled("a.test", "retry-after", "soon", 60.0)
    lost = events.AddressNotFound("a.test", "OSError")
    for event in (bounded(), events.LongDelay(ORIGIN, 3_600.0, "cap"), overruled, lost):
        caplog.clear()
        publish = ScriptedGate().state.publisher.publish
        for _ in range(3):
            publish(event)
        assert len(caplog.records) == 1


def test_hostile_value_forges_no_line_and_fills_no_disk(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Event) -> None:
        raise ValueError(str(event))

    url = f"{SITE}/{STEERING}{'a' * 100_000}"
    results = {AccessResult.SUCCESSFUL: 200, AccessResult.UNREACHABLE: 503, AccessResult.UNAVAILABLE: 301}
    hostile: list[Event] = [fetched(result, status, fault=url) for result, status in results.items()]
    hostile += [events.ComponentFailed(ORIGIN, "store", ValueError(url)), denial(url, note=url), bounded(url)]
    for event in EVENTS:
        texts = {field.name: getattr(event, field.name) for field in fields(event)}
        ours = {"", "ratelimit", "retry-after", "skip", "store"}
        foreign = [name for name, text in texts.items() if type(text) is str and text not in ours]
        hostile.append(replace(event, **dict.fromkeys(foreign, url)))
    for event in hostile:
        ScriptedGate().state.publisher.publish(event)
    failing = Publisher()
    failing.subscribe(fail)
    failing.publish(events.HostOpened(url))
    assert len(caplog.records) == len(hostile) + 1
    assert [record.getMessage() for record in caplog.records if not is_harmless(record.getMessage())] == []


# The log of a gate


async def test_unreachable_robots_txt_is_logged_at_begin_when_long_and_at_end(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedGate({SITE: [500, 500, 500, 500, 500, 500, "User-agent: *"]}) as gate:
        while not (verdict := await gate.check(f"{SITE}/")):
            gate.clock.advance((verdict.not_before or 0.0) - gate.clock.wall())
    begins, is_long, ends = lines(caplog, "INFO", "WARNING")
    assert begins.startswith(f"INFO cache: All of {SITE} is disallowed: the server answered with status 500")
    assert is_long.startswith(f"WARNING cache: All of {SITE} is disallowed: the server answered with")
    assert f", since {BEGIN}; robots.txt is fetched again after 2027-01-15T08:1" in is_long
    assert ends == f"INFO cache: robots.txt of {SITE} is reachable again: 200, successful"


async def test_second_spell_is_logged_like_the_first(caplog: pytest.LogCaptureFixture) -> None:
    spell: list[Answer] = [refusal(500, "3600", f"{SITE}/robots.txt"), 404]
    async with ScriptedGate({SITE: [*spell, *spell]}) as gate:
        for _ in range(4):
            await gate.check(f"{SITE}/")
            gate.clock.advance(DAY)
    assert [line.split()[0] for line in lines(caplog, "INFO", "WARNING")] == ["WARNING", "INFO"] * 2


async def test_denial_and_fetch_are_logged_for_debugging(caplog: pytest.LogCaptureFixture, gate: ScriptedGate) -> None:
    for page in ("", "private/a", "private/\u202e"):  # the first fetches, the others are hits
        await gate.check(f"{SITE}/{page}")
    fetch, *denials = lines(caplog, "DEBUG")
    assert fetch.endswith(f"robots.txt of {SITE} was fetched in 0 s: 200, successful")
    because = "is disallowed for examplebot: disallow-rule (line 2, Disallow: /private)"
    assert denials == [f"DEBUG gate: {SITE}/private/{page} {because}" for page in ("a", r"\u202e")]


async def test_denial_is_logged_once_with_subscribers_and_in_report_mode(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedGate({SITE: "User-agent: *\nDisallow: /private\n"}, mode="report") as gate:
        gate.subscribe(lambda _: None)
        await gate.check(f"{SITE}/private/a")
        gate.peek(f"{SITE}/private/b")
    assert [line.partition(" for ")[0] for line in lines(caplog, "DEBUG") if " gate: " in line] == [
        f"DEBUG gate: {SITE}/private/{page} would be disallowed" for page in "ab"
    ]


async def test_event_of_a_denial_is_not_made_for_nobody(
    caplog: pytest.LogCaptureFixture, gate: ScriptedGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decided, "__init__", None)
    caplog.set_level(logging.INFO, "politesse")
    assert not await gate.check(f"{SITE}/private/a")
    assert not gate.known(f"{SITE}/private/b")


async def test_host_that_closes_and_opens_is_logged(caplog: pytest.LogCaptureFixture, gate: ScriptedGate) -> None:
    async def request(number: int) -> None:
        async with gate.turn(f"{SITE}/{number}") as turn:
            turn.observe(200)

    async with gate.turn(f"{SITE}/") as turn:
        turn.observe(503, {"Retry-After": "100"})
    await asyncio.gather(*map(request, range(3)))
    closes, waits, opens = lines(caplog, "INFO", "WARNING")
    assert closes.startswith("INFO pacing: a.test is closed until 2027-01-15T08:01:4")
    assert closes.endswith("for 100 s, by 503 for https://a.test/ (retry-after)")
    assert waits.startswith(f"INFO pacing: {SITE}/0 waits for a turn at a.test, for ")
    assert opens == "INFO pacing: a.test is open again"


async def test_host_that_opens_unasked_is_logged_once(caplog: pytest.LogCaptureFixture, gate: ScriptedGate) -> None:
    async with gate.turn(f"{SITE}/") as turn:
        turn.observe(503, {"Retry-After": "100"})
    await gate.clock.sleep(300.0)
    async with gate.turn(f"{SITE}/a"):
        closes, opens = lines(caplog, "INFO", "WARNING")
    assert " is closed until " in closes
    assert opens == "INFO pacing: a.test is open again"


async def test_a_turn_that_is_taken_as_a_host_opens_holds_the_host(gate: ScriptedGate) -> None:
    async with gate.turn(f"{SITE}/") as turn:
        turn.observe(503, {"Retry-After": "100"})
    taken: list[Turn | NotYet | Verdict] = []
    gate.subscribe(lambda event: taken.append(gate.try_turn(f"{SITE}/a")) if isinstance(event, HostOpened) else None)
    await gate.clock.sleep(300.0)
    [held] = taken
    assert isinstance(held, Turn)
    assert isinstance(gate.try_turn(f"{SITE}/b"), NotYet)
    held.end()


# Errors

TREE: Final = re.compile(
    r"^    (?P<indent>[│ ├└─]*)(?P<name>\w+) *(?:[^\n]*\(also an? (?P<also>[\w.]+)\))?", re.MULTILINE
)
ALSO: Final[dict[str, type | tuple[type, ...]]] = {
    "aiohttp.ClientError": aiohttp.ClientError,
    "aiohttp.InvalidURL": aiohttp.InvalidURL,
    "httpx.RequestError": (httpx.RequestError, httpx2.RequestError, requests.RequestException),
}


def drawn() -> dict[str, tuple[str, str]]:
    """Return for each exception of the drawing its parent and its other base."""
    found: dict[str, tuple[str, str]] = {}
    path: list[str] = []
    for line in TREE.finditer((errors.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]):
        del path[len(line["indent"]) // 4 :]
        found[line["name"]] = (path[-1] if path else "", line["also"] or "")
        path.append(line["name"])
    return found


def subclasses(base: type[Exception]) -> list[type[Exception]]:
    return [base, *(below for one in base.__subclasses__() for below in subclasses(one))]


def test_drawn_tree_of_exceptions_matches_the_classes() -> None:
    integrations = (f"integrations.{name}" for name in ("aiohttp", "httpx", "httpx2", "requests", "scrapy"))
    for module in ("audit", "queue", *integrations):
        import_module(f"politesse.{module}")
    tree, known = drawn(), subclasses(errors.PolitesseError)
    public = [one for one in known if one.__name__[0] != "_" and "tests" not in one.__module__]
    assert {one.__name__ for one in public} == set(tree)
    for one in public[1:]:
        parent, also = tree[one.__name__]
        assert parent in {base.__name__ for base in one.__bases__}
        assert len(one.__bases__) == 1 + bool(also)
        if also:
            assert issubclass(one, ALSO.get(also) or getattr(builtins, also))


def test_too_far_survives_a_pickle() -> None:
    for kind in (TooFar, RequestTooFar, Httpx2RequestTooFar):
        one = kind("example.com", NotYet(AT, Bound.CRAWL_DELAY), 5.0)
        again = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own octets
        assert (type(again), str(again)) == (kind, str(one))
        assert (again.host, again.max_wait_s) == ("example.com", 5.0)
        assert (again.not_yet.not_before, again.not_yet.bound_by) == (AT, Bound.CRAWL_DELAY)


async def test_refusal_survives_a_pickle(gate: ScriptedGate) -> None:
    error = Disallowed(await gate.check(f"{SITE}/private"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own octets
    assert str(again) == str(error)
    assert again.verdict.rule is not None
    assert again.verdict.rule.line == 2

"""What a gate tells: events to its subscribers, lines to its log, and errors, which go from one process to another."""

import asyncio
import builtins
import logging
import pickle
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import aiohttp
import httpx
import httpx2
import pytest
import requests

from politesse import Bound, Disallowed, NotYet, Origin, Reason, TooFar, Verdict, errors
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
from politesse.integrations.httpx import RequestTooFar
from politesse.integrations.httpx2 import RequestTooFar as Httpx2RequestTooFar
from politesse.sites import FileOutcome
from politesse.testing import Answer
from politesse.verdict import AccessResult, Match, Source
from tests.core.gate.gates import DAY, ScriptedGate, refusal

SITE: Final = "https://a.test"
ORIGIN: Final = Origin.of(SITE)
REST: Final = f"the remaining rules count against {SITE}"
AT: Final = 1_800_000_000.0  # 2027-01-15T08:00:00Z, where a ManualClock begins
BEGIN: Final = "2027-01-15T08:00:00Z"
SERVES: Final = "a.test serves the next request"
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
    assert [
        text for text in shown[1:] if not text.startswith("a subscriber failed on ") or "ValueError" not in text
    ] == []


def test_event_of_a_failing_subscriber_is_shortened(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Event) -> None:
        raise ValueError(str(event))

    publisher = Publisher()
    publisher.subscribe(fail)
    publisher.publish(HostOpened("a" * 100_000))
    assert 0 < len(caplog.text) < 3_000


# Lines of the log


def source(result: AccessResult, **given: float | str) -> Source:
    robots_url = f"{SITE}/robots.txt"
    return Source(robots_url, result, None, robots_url, AT, AT + 60.0, **given)  # type: ignore[arg-type]


def fetched(result: AccessResult, status: int | None, **given: float | str) -> RobotsFetched:
    return RobotsFetched(ORIGIN, status, str(given.get("fault", "")), 0.25, source(result, **given))


def bounded(url: str = f"{SITE}/x") -> MatchingBounded:
    match = Match(Reason.DISALLOW_RULE, bound_reached=True)
    return MatchingBounded(Verdict(url, "examplebot", False, match, source(AccessResult.SUCCESSFUL)))  # noqa: FBT003


def denial(url: str = f"{SITE}/x", match: Match | None = None, note: str = "", *, allowed: bool = False) -> Decided:
    return Decided(Verdict(url, "examplebot", allowed, match or Match(Reason.POLICY_DENY), note=note))


ROBOTS: Final = f"robots.txt of {SITE}"
ALL: Final = f"All of {SITE} is disallowed"
CUT: Final = RobotsFetched(ORIGIN, 200, "", 0.25, source(AccessResult.SUCCESSFUL), truncated=True)
PACING: Final[dict[str, Event]] = {
    "WARNING a.test is closed until 2027-01-15T08:15:00Z, for 900 s: retry-after": HostClosed(
        "a.test", AT + 900.0, Bound.RETRY_AFTER, 900.0
    ),
    "WARNING a.test is closed until 2027-01-15T08:01:00Z, for 60 s: refused": HostClosed(
        "a.test", AT + 60.0, Bound.REFUSED, 60.0
    ),
    "INFO a.test is closed until 2027-01-15T08:14:59Z, for 899 s: backoff": HostClosed(
        "a.test", AT + 899.0, Bound.BACKOFF, 899.0
    ),
    f"INFO a.test is closed until 2027-01-15T08:00:10Z, for 10 s, by 503 for {SITE}/a (backoff)": HostClosed(
        "a.test", AT + 10.0, Bound.BACKOFF, 10.0, f"{SITE}/a", 503
    ),
    "INFO a.test is open again": HostOpened("a.test"),
    f"WARNING {SITE}/2 waits for a turn at a.test, for 5 s or longer: in-flight, held by {SITE}/1": LongWait(
        "a.test", f"{SITE}/2", 5.0, Bound.IN_FLIGHT, f"{SITE}/1"
    ),
    f"INFO {SITE}/2 waits for a turn at a.test, for 61 s or longer: crawl-delay": LongWait(
        "a.test", f"{SITE}/2", 61.0, Bound.CRAWL_DELAY, ""
    ),
    "WARNING redis://b/0 is away: no request starts until it is back (OSError: refused)": FleetAway(
        "redis://b/0", "OSError: refused"
    ),
    "WARNING redis://localhost:6379/0 is back after 2.0 s": FleetBack("redis://localhost:6379/0", 2.04),
    f"WARNING The turn of {SITE}/1 has ended after max_turn_s, 600 s: {SERVES}": TurnExpired(
        "a.test", f"{SITE}/1", 600.0
    ),
    f"WARNING The turn of {SITE}/1 was dropped before its end: use it with `async with`. {SERVES}": TurnDropped(
        "a.test", f"{SITE}/1"
    ),
    "INFO retry-after: soon from a.test is unreadable; waiting 60 s": HeaderOverruled(
        "a.test", "retry-after", "soon", 60.0
    ),
    "INFO retry-after: 3 from a.test is too short, because the own backoff is longer; waiting 60 s": HeaderOverruled(
        "a.test", "retry-after", "3", 60.0, 3.0
    ),
    "INFO retry-after: 99999 from a.test is too long; waiting 86400 s": HeaderOverruled(
        "a.test", "retry-after", "99999", 86_400.0, 99_999.0
    ),
    "INFO ratelimit: ? from a.test is unreadable; it is ignored": HeaderOverruled("a.test", "ratelimit", "?", None),
    "INFO a.test is paced by its name: it has no address (OSError: no such host)": AddressNotFound(
        "a.test", "OSError: no such host"
    ),
}
CACHE: Final[dict[str, Event]] = {
    f"DEBUG {ROBOTS} was fetched in 0.25 s: 200, successful": fetched(AccessResult.SUCCESSFUL, 200),
    f"INFO {ALL}: status 503, since {BEGIN}; {AGAIN}:01:00Z": fetched(
        AccessResult.UNREACHABLE, 503, fault="status 503", not_before=AT + 60.0
    ),
    f"WARNING {ALL}: status 429, since {BEGIN}; {AGAIN}:15:00Z": fetched(
        AccessResult.TOO_MANY_REQUESTS, 429, fault="status 429", not_before=AT + 900.0
    ),
    f"INFO {ROBOTS} cannot be fetched: status 503; the copy of {BEGIN} still holds": fetched(
        AccessResult.SUCCESSFUL, 503, fault="status 503"
    ),
    f"WARNING {ROBOTS} is longer than the fetcher reads: its last lines do not count": CUT,
    f"DEBUG {SITE}/d was fetched: 404, unknown": SiteFileFetched(f"{SITE}/d", 404, "", FileOutcome.UNKNOWN),
    f"DEBUG {SITE}/d was fetched: timeout, retry": SiteFileFetched(f"{SITE}/d", None, "timeout", FileOutcome.RETRY),
    "ERROR The store failed for the whole crawl\n  TimeoutError: late": ComponentFailed(
        None, "store", TimeoutError("late")
    ),
}
GATE: Final[dict[str, Event]] = {
    f"DEBUG {SITE}/x is disallowed for examplebot: policy-deny (paused)": denial(note="paused"),
    f"DEBUG {SITE}/x would be disallowed for examplebot: policy-deny (paused)": denial(note="paused", allowed=True),
    f"WARNING The rules of {SITE}/robots.txt take too much work to compare them all: {REST}/x": bounded(),
    f"WARNING {SITE} wants 3600 s between requests, more than max_crawl_delay_s: the site is skipped": LongDelay(
        ORIGIN, 3_600.0, "skip"
    ),
}


def test_each_event_has_its_logger_its_level_and_its_sentence(caplog: pytest.LogCaptureFixture) -> None:
    wrong = []
    for logger, table in {"pacing": PACING, "cache": CACHE, "gate": GATE}.items():
        for line, event in table.items():
            caplog.clear()
            ScriptedGate().state.publisher.publish(event)
            if lines(caplog) != [line.replace(" ", f" {logger}: ", 1)]:
                wrong.append((line, lines(caplog)))
    assert wrong == []


def test_what_allows_and_what_is_unknown_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    for event in (denial(match=Match(Reason.NO_RULE), allowed=True), Event()):
        ScriptedGate().state.publisher.publish(event)
    assert caplog.records == []


def test_state_of_a_site_that_is_published_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    overruled, lost = HeaderOverruled("a.test", "retry-after", "soon", 60.0), AddressNotFound("a.test", "OSError")
    for event in (bounded(), LongDelay(ORIGIN, 3_600.0, "cap"), overruled, lost):
        caplog.clear()
        publish = ScriptedGate().state.publisher.publish
        for _ in range(3):
            publish(event)
        assert len(caplog.records) == 1


def test_hostile_value_forges_no_line_and_fills_no_disk(caplog: pytest.LogCaptureFixture) -> None:
    url = f"{SITE}/{STEERING}{'a' * 100_000}"
    events = [
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
    for event in events:
        ScriptedGate().state.publisher.publish(event)
    assert len(caplog.records) == len(events)
    assert [record.getMessage() for record in caplog.records if not is_harmless(record.getMessage())] == []


def test_library_has_a_null_handler() -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("politesse").handlers)


# The log of a gate


async def test_robots_txt_that_is_unreachable_is_logged_as_it_begins_as_it_is_long_and_as_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ScriptedGate({SITE: [500, 500, 500, 500, 500, 500, "User-agent: *"]}) as gate:
        while not (verdict := await gate.check(f"{SITE}/")):
            gate.clock.advance((verdict.not_before or 0.0) - gate.clock.wall())
    begins, is_long, ends = lines(caplog, "INFO", "WARNING")
    assert begins.startswith(f"INFO cache: {ALL}: the server answered with status 500")
    assert is_long.startswith(f"WARNING cache: {ALL}: the server answered with")
    assert f", since {BEGIN}; robots.txt is fetched again after 2027-01-15T08:1" in is_long
    assert ends == f"INFO cache: {ROBOTS} is reachable again: 200, successful"


async def test_second_spell_is_logged_like_the_first(caplog: pytest.LogCaptureFixture) -> None:
    spell: list[Answer] = [refusal(500, "3600", f"{SITE}/robots.txt"), 404]
    async with ScriptedGate({SITE: [*spell, *spell]}) as gate:
        for _ in range(4):
            await gate.check(f"{SITE}/")
            gate.clock.advance(DAY)
    assert [line.split()[0] for line in lines(caplog, "INFO", "WARNING")] == ["WARNING", "INFO"] * 2


async def test_denials_and_fetches_are_logged_for_debugging(
    caplog: pytest.LogCaptureFixture, gate: ScriptedGate
) -> None:
    for page in ("", "private/a", "private/\u202e"):  # the first fetches, the others are hits
        await gate.check(f"{SITE}/{page}")
    fetch, *denials = lines(caplog, "DEBUG")
    assert fetch.endswith(f"{ROBOTS} was fetched in 0 s: 200, successful")
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


async def test_page_that_answers_503_is_logged_as_its_host_closes_and_as_it_opens(
    caplog: pytest.LogCaptureFixture, gate: ScriptedGate
) -> None:
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
    error = TooFar("example.com", NotYet(AT, Bound.CRAWL_DELAY), 5.0)
    for one in (error, RequestTooFar(error), Httpx2RequestTooFar(error)):
        again = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own octets
        assert (type(again), str(again)) == (type(one), str(one))
        assert (again.host, again.max_wait_s) == ("example.com", 5.0)
        assert (again.not_yet.not_before, again.not_yet.bound_by) == (AT, Bound.CRAWL_DELAY)


async def test_refusal_survives_a_pickle(gate: ScriptedGate) -> None:
    error = Disallowed(await gate.check(f"{SITE}/private"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own octets
    assert str(again) == str(error)
    assert again.verdict.rule is not None
    assert again.verdict.rule.line == 2

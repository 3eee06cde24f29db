"""How the gate reads the header fields of an answer: lines of one name, numbers, challenges."""

import logging
from email.message import Message
from itertools import product
from typing import Any, Final

import httpx
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from scrapy.http.headers import Headers as ScrapyHeaders
from urllib3 import HTTPHeaderDict

from politesse import Bound, PacingOptions, Reason
from politesse.events import HostClosed
from politesse.ports import FetchResponse
from politesse.robots import Dialect
from politesse.testing import ManualClock
from tests.core.gate.gates import HOUR, PAGE, PRIVATE, ROBOTS_TXT, SITE, ScriptedGate
from tests.support.events import events_of
from tests.support.tasks import settle

WALL: Final = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
BURST: Final = '"burst";r=0;t=100'
DAILY: Final = '"daily";r=1000;t=3600'


async def wait_after(status: int, headers: Any, **pacing: float) -> tuple[float, Bound]:
    """Return how long the next request waits after an answer, and what makes it wait."""
    options: Any = {"min_delay_s": 1.0, "adaptive_factor": 0.0, **pacing}
    async with ScriptedGate(clock=ManualClock(WALL - 60), pacing=PacingOptions(**options)) as gate:
        await gate.check(PAGE)
        gate.clock.advance(60)  # beyond the interval after robots.txt
        async with gate.turn(PAGE) as turn:
            turn.observe(status, headers)
        refused = gate.refused()
        return round(refused.not_before - WALL, 3), refused.bound_by


@pytest.mark.clause("RFC 9110 5.3")
async def test_all_lines_of_a_field_count_in_any_order_and_in_the_type_of_any_client() -> None:
    lines = [("Server", "x"), ("RateLimit", BURST), ("ratelimit", DAILY)]
    message, merged = Message(), HTTPHeaderDict()
    for name, value in lines:
        message[name] = value
        merged.add(name, value)
    kinds: dict[str, Any] = {
        "CIMultiDict": CIMultiDict(lines),
        "CIMultiDictProxy": CIMultiDictProxy(CIMultiDict(lines)),
        "httpx.Headers": httpx.Headers(lines),
        "raw octets": tuple((name.encode(), value.encode()) for name, value in lines),
        "pairs": lines,
        "pairs in another order": lines[::-1],
        "pairs that are read once": iter(lines),
        "http.client": message,
        "urllib3": merged,
        "Scrapy": ScrapyHeaders({"Server": "x", "RateLimit": [BURST, DAILY]}),
        "lists of lines": {"server": ["x"], "ratelimit": [BURST, DAILY]},
    }
    for no_text in ({"Content-Length": 5, "Server": None, "Retry-After": "60"}, {"Retry-After": 60}):
        assert await wait_after(429, no_text) == (60.0, Bound.RETRY_AFTER)
    waits = {kind: await wait_after(200, headers) for kind, headers in kinds.items()}
    assert waits == dict.fromkeys(kinds, (100.0, Bound.RATE_LIMIT))


def remains(remaining: str, reset: str) -> dict[str, str]:
    return {"x-ratelimit-remaining": remaining, "x-ratelimit-reset": reset}


DATE: Final = "Fri, 15 Jan 2027 08:00:00 GMT"
IN_90_S: Final = "Fri, 15 Jan 2027 08:01:30 GMT"
BEFORE_90_S: Final = "Fri, 15 Jan 2027 07:58:30 GMT"
IN_MS: Final = {"ratelimit-remaining": "0", "ratelimit-reset": f"{WALL * 1000:.0f}", "date": BEFORE_90_S}
NUMBERS: Final[dict[str, tuple[dict[str, str], float]]] = {
    "no request remains, as a decimal": (remains("0.0", "90"), 90.0),
    "less than one request remains": (remains("0.4", "90"), 90.0),
    "a decimal remains": (remains("9.0", "90"), 10.0),
    "reset with a fraction": (remains("0", "90.5"), 90.5),
    "Unix time with a fraction": (remains("0", f"{WALL + 90.5:.3f}"), 90.5),
    "Unix time in ms": (remains("0", f"{(WALL + 90) * 1000:.0f}"), 90.0),
    "Unix time in ms, by Date": (IN_MS, 90.0),
    "reset with its unit": (remains("0", "90000ms"), 90.0),
    "reset with seconds as its unit": (remains("0", "90 s"), 90.0),
    "two lines of each": (remains("0, 99", "90, 7"), 90.0),
    "two lines of each, the other way round": (remains("99, 0", "7,90"), 90.0),
    "an unreadable line": (remains("many, 0", "soon, 90"), 90.0),
    "decimals of a member": ({"ratelimit": '"a";r=0.0;t=90.5'}, 90.5),
    "two members of one name": ({"ratelimit": '"a";r=0;t=90, "a";r=100;t=5'}, 90.0),
    "a parameter twice": ({"ratelimit": '"a";r=0;r=100;t=90;t=5'}, 90.0),
    "two lines of the older form": (
        {"ratelimit": "limit=10, remaining=0, reset=90, limit=9, remaining=8, reset=7"},
        90.0,
    ),
    "a number at the limit of reading": ({"ratelimit": '"a";r=0;t=90, "' + "x" * 998 + '";r=0;t=4000'}, 90.0),
    "Retry-After with a fraction": ({"retry-after": "90.5"}, 90.5),
    "two lines of Retry-After": ({"retry-after": "2814, 2"}, 2814.0),
    "two lines of Retry-After, the other way round": ({"retry-after": "2,2814"}, 2814.0),
    "an unreadable Retry-After first": ({"retry-after": "soon, 90"}, 90.0),
    "seconds and a date": ({"retry-after": f"7, {IN_90_S}"}, 90.0),
    "two dates": ({"retry-after": f"{IN_90_S}, Fri, 15 Jan 2027 08:00:09 GMT"}, 90.0),
    "two lines of Date": ({"retry-after": DATE, "date": f"{DATE}, {BEFORE_90_S}"}, 90.0),
}


async def test_decimals_count_and_of_two_readings_the_slower_one() -> None:
    waits = {case: (await wait_after(200, headers))[0] for case, (headers, _) in NUMBERS.items()}
    assert waits == {case: wait_s for case, (_, wait_s) in NUMBERS.items()}


CHALLENGES: Final = {
    "cf-mitigated: challenge": (403, {"cf-mitigated": "challenge"}),
    "x-amzn-waf-action: challenge": (202, {"x-amzn-waf-action": "challenge"}),
    "x-amzn-waf-action: captcha": (405, {"x-amzn-waf-action": "captcha"}),
}


async def test_challenge_is_a_refusal_with_any_status() -> None:
    for (shown, (_, headers)), status in product(CHALLENGES.items(), (200, 202, 304, 403, 405, 503)):
        async with ScriptedGate(jumps=True) as gate, gate.turn(PAGE) as turn:
            turn.observe(status, {name.title(): value.title() for name, value in headers.items()})
            turn.end()
            refused = gate.refused()
            assert refused.not_before - gate.clock.wall() == pytest.approx(900.0, rel=0.2)
            told = f"refused 1 time in a row: {status}, {shown}"
            assert (refused.bound_by, str(refused.refusal)) == (Bound.REFUSED, told)
    for headers in ({"x-amzn-waf-action": "allow"}, {"cf-mitigated": "captcha"}):
        assert await wait_after(200, headers) == (1.0, Bound.FLOOR)


@pytest.mark.clause("RFC 9309 2.3.1.1")
async def test_challenge_in_place_of_robots_txt_closes_the_site_and_an_empty_answer_does_not() -> None:
    dialects = (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_1996)
    bodies = (b"", b"<html>", b"User-agent: *\nAllow: /\n")
    for dialect, (shown, (status, headers)), body in product(dialects, CHALLENGES.items(), bodies):
        answers = [FetchResponse(status, ROBOTS_TXT, headers, body), FetchResponse(404, ROBOTS_TXT)]
        async with ScriptedGate({SITE: answers}, dialect=dialect) as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
            assert verdict.source is not None
            assert verdict.source.fault == f"the server answered with status {status}, {shown}"
            assert verdict.not_before is not None
            gate.clock.advance(verdict.not_before - WALL)
            assert dialect is Dialect.GOOGLE or await gate.check(PAGE)  # Google closes a site for 12 hours
    for status in (202, 204):  # RFC 9309 2.3.1.1: an empty answer without a challenge is a file
        async with ScriptedGate({SITE: status}) as gate:
            assert await gate.check(PAGE)


async def test_challenge_in_place_of_robots_txt_does_not_replace_a_copy() -> None:
    status, headers = CHALLENGES["x-amzn-waf-action: challenge"]
    async with ScriptedGate({SITE: [PRIVATE, FetchResponse(status, ROBOTS_TXT, headers)]}) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(23 * HOUR)
        await gate.check(PAGE)
        await settle()
        assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
        assert gate.fetcher.count(SITE) == 2


async def test_closing_for_900_s_or_by_a_refusal_is_a_warning_at_any_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.pacing")
    answers = [(403, {"cf-mitigated": "challenge"}), (200, {"retry-after": "900"})]
    for (status, headers), n in product(answers, range(40)):
        async with ScriptedGate() as gate:
            closed = events_of(gate, HostClosed)
            await gate.check(PAGE)
            gate.clock.advance(60 + n / 10 + n * n / 7)
            async with gate.turn(PAGE) as turn:
                turn.observe(status, headers)
            assert [event.closed_s for event in closed] == [900.0]
    await wait_after(*answers[0], refused_min_s=60.0)
    levels = [record.levelname for record in caplog.records if "is closed until" in record.message]
    assert levels == ["WARNING"] * 81


async def test_header_that_is_not_obeyed_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.pacing")
    for value, begin in {
        "12": "retry-after: 12 from example.com is too short, because the own backoff is longer; waiting 20 s",
        "soon": "retry-after: soon from example.com is unreadable; waiting 2",  # with the jitter of the backoff
        "999999": "retry-after: 999999 from example.com is too long; waiting 86400 s",
    }.items():
        await wait_after(429, {"retry-after": value}, backoff_min_s=20.0)
        assert [line for line in caplog.messages if line.startswith(begin)] != []

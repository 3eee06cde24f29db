"""How the gate reads the header fields of an answer: lines of one name, numbers, challenges."""

import asyncio
import logging
from email.message import Message
from typing import Any, Final

import httpx
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from scrapy.http.headers import Headers as ScrapyHeaders
from urllib3 import HTTPHeaderDict

from politesse import Bound, Gatekeeper, NotYet, PacingOptions, Reason
from politesse.events import Event, HostClosed
from politesse.ports import FetchResponse
from politesse.robots import Dialect
from politesse.testing import Answer, ManualClock, ScriptedFetcher

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SITE: Final = "https://example.com"
PAGE: Final = f"{SITE}/page"
WALL: Final = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
DATE: Final = "Fri, 15 Jan 2027 08:00:00 GMT"
BURST: Final = '"burst";r=0;t=100'
DAILY: Final = '"daily";r=1000;t=3600'


async def wait_after(status: int, headers: Any, **pacing: float) -> tuple[float, Bound]:
    """Return how long the next request waits after an answer, and what makes it wait."""
    clock = ManualClock(WALL - 60)
    options = PacingOptions(**{"min_delay_s": 1.0, "adaptive_factor": 0.0, **pacing})  # type: ignore[arg-type]
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: 404}), clock=clock, pacing=options) as gate:
        await gate.check(PAGE)
        clock.advance(60)  # beyond the interval after robots.txt
        async with gate.turn(PAGE) as turn:
            turn.observe(status, headers)
        refused = gate.try_turn(PAGE)
        assert isinstance(refused, NotYet)
        return round(refused.not_before - WALL, 3), refused.bound_by


def in_two_lines() -> dict[str, Any]:
    """Return two lines of one field in the types of several clients."""
    lines = [("Server", "x"), ("RateLimit", BURST), ("ratelimit", DAILY)]
    message, merged = Message(), HTTPHeaderDict()
    for name, value in lines:
        message[name] = value
        merged.add(name, value)
    return {
        "CIMultiDict": CIMultiDict(lines),
        "CIMultiDictProxy": CIMultiDictProxy(CIMultiDict(lines)),
        "httpx.Headers": httpx.Headers(lines),
        "raw octets": tuple((name.encode(), value.encode()) for name, value in lines),
        "pairs": lines,
        "pairs that are read once": iter(lines),
        "http.client": message,
        "urllib3": merged,
        "Scrapy": ScrapyHeaders({"Server": "x", "RateLimit": [BURST, DAILY]}),
        "lists of lines": {"server": ["x"], "ratelimit": [BURST, DAILY]},
    }


async def test_values_that_are_no_text_hide_no_refusal() -> None:
    headers = {"Content-Length": 5, "Server": None, "Retry-After": "60"}
    assert await wait_after(429, headers) == (60.0, Bound.RETRY_AFTER)
    assert await wait_after(429, {"Retry-After": 60}) == (60.0, Bound.RETRY_AFTER)


@pytest.mark.clause("RFC 9110 5.3")
@pytest.mark.parametrize("kind", in_two_lines())
async def test_all_lines_of_a_field_count(kind: str) -> None:
    assert await wait_after(200, in_two_lines()[kind]) == (100.0, Bound.RATE_LIMIT)


@pytest.mark.clause("RFC 9110 5.3")
async def test_lines_of_a_field_are_read_in_any_order() -> None:
    assert await wait_after(200, [("RateLimit", DAILY), ("RateLimit", BURST)]) == (100.0, Bound.RATE_LIMIT)


NUMBERS: Final[dict[str, tuple[dict[str, str], float]]] = {
    "no request remains, as a decimal": ({"x-ratelimit-remaining": "0.0", "x-ratelimit-reset": "90"}, 90.0),
    "less than one request remains": ({"x-ratelimit-remaining": "0.4", "x-ratelimit-reset": "90"}, 90.0),
    "a decimal remains": ({"x-ratelimit-remaining": "9.0", "x-ratelimit-reset": "90"}, 10.0),
    "reset with a fraction": ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "90.5"}, 90.5),
    "Unix time with a fraction": ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{WALL + 90.5:.3f}"}, 90.5),
    "Unix time in ms": ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(WALL + 90) * 1000:.0f}"}, 90.0),
    "Unix time in ms, by Date": (
        {"ratelimit-remaining": "0", "ratelimit-reset": f"{WALL * 1000:.0f}", "date": "Fri, 15 Jan 2027 07:58:30 GMT"},
        90.0,
    ),
    "reset with its unit": ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "90000ms"}, 90.0),
    "reset with seconds as its unit": ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "90 s"}, 90.0),
    "two lines of each": ({"x-ratelimit-remaining": "0, 99", "x-ratelimit-reset": "90, 7"}, 90.0),
    "two lines of each, the other way round": ({"x-ratelimit-remaining": "99, 0", "x-ratelimit-reset": "7,90"}, 90.0),
    "an unreadable line": ({"x-ratelimit-remaining": "many, 0", "x-ratelimit-reset": "soon, 90"}, 90.0),
    "decimals of a member": ({"ratelimit": '"a";r=0.0;t=90.5'}, 90.5),
    "two members of one name": ({"ratelimit": '"a";r=0;t=90, "a";r=100;t=5'}, 90.0),
    "a parameter twice": ({"ratelimit": '"a";r=0;r=100;t=90;t=5'}, 90.0),
    "two lines of the older form": (
        {"ratelimit": "limit=10, remaining=0, reset=90, limit=1000, remaining=999, reset=80"},
        90.0,
    ),
    "a number at the limit of reading": ({"ratelimit": '"a";r=0;t=90, "' + "x" * 998 + '";r=0;t=4000'}, 90.0),
    "Retry-After with a fraction": ({"retry-after": "90.5"}, 90.5),
    "two lines of Retry-After": ({"retry-after": "2814, 2"}, 2814.0),
    "two lines of Retry-After, the other way round": ({"retry-after": "2,2814"}, 2814.0),
    "an unreadable Retry-After first": ({"retry-after": "soon, 90"}, 90.0),
    "seconds and a date": ({"retry-after": "7, Fri, 15 Jan 2027 08:01:30 GMT"}, 90.0),
    "two dates": ({"retry-after": "Fri, 15 Jan 2027 08:01:30 GMT, Fri, 15 Jan 2027 08:00:09 GMT"}, 90.0),
    "two lines of Date": (
        {"retry-after": DATE, "date": f"{DATE}, Fri, 15 Jan 2027 07:58:30 GMT"},
        90.0,
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
async def test_decimals_count_and_of_two_readings_the_slower_one(case: str) -> None:
    headers, wait_s = NUMBERS[case]
    assert (await wait_after(200, headers))[0] == wait_s


CHALLENGES: Final = {
    "cf-mitigated: challenge": (403, {"cf-mitigated": "challenge"}),
    "x-amzn-waf-action: challenge": (202, {"x-amzn-waf-action": "challenge"}),
    "x-amzn-waf-action: captcha": (405, {"x-amzn-waf-action": "captcha"}),
}


@pytest.mark.parametrize("shown", CHALLENGES)
@pytest.mark.parametrize("status", [200, 202, 304, 403, 405, 503])
async def test_challenge_is_a_refusal_with_any_status(shown: str, status: int) -> None:
    clock, (_, headers) = ManualClock(WALL, autojump=True), CHALLENGES[shown]
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: 404}), clock=clock) as gate:
        async with gate.turn(PAGE) as turn:
            turn.observe(status, {name.title(): value.title() for name, value in headers.items()})
        refused = gate.try_turn(PAGE)
        assert isinstance(refused, NotYet)
        assert refused.bound_by is Bound.REFUSED
        assert refused.not_before - clock.wall() == pytest.approx(900.0, rel=0.2)
        assert str(refused.refusal) == f"refused 1 time in a row: {status}, {shown}"


async def test_other_action_of_the_firewall_is_no_challenge() -> None:
    for headers in ({"x-amzn-waf-action": "allow"}, {"cf-mitigated": "captcha"}):
        assert await wait_after(200, headers) == (1.0, Bound.FLOOR)


@pytest.mark.parametrize("shown", CHALLENGES)
@pytest.mark.parametrize("body", [b"", b"<html>", b"User-agent: *\nAllow: /\n"])
@pytest.mark.parametrize("dialect", [Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_1996])
async def test_challenge_in_place_of_robots_txt_closes_the_site(shown: str, body: bytes, dialect: Dialect) -> None:
    status, headers = CHALLENGES[shown]
    answers: list[Answer] = [FetchResponse(status, f"{SITE}/robots.txt", headers, body), 404]
    clock, fetcher = ManualClock(WALL), ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, dialect=dialect) as gate:
        verdict = await gate.check(PAGE)
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert verdict.source is not None
        assert verdict.source.fault == f"the server answered with status {status}, {shown}"
        assert verdict.not_before is not None
        clock.advance(verdict.not_before - WALL)
        assert dialect is Dialect.GOOGLE or await gate.check(PAGE)  # Google closes a site for 12 hours


async def test_challenge_in_place_of_robots_txt_does_not_replace_a_copy() -> None:
    status, headers = CHALLENGES["x-amzn-waf-action: challenge"]
    challenge = FetchResponse(status, f"{SITE}/robots.txt", headers)
    clock, fetcher = ManualClock(WALL), ScriptedFetcher({SITE: ["User-agent: *\nDisallow: /private\n", challenge]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert await gate.check(PAGE)
        clock.advance(23 * 3_600)
        await gate.check(PAGE)
        await asyncio.sleep(0.05)
        verdict = await gate.check(f"{SITE}/private")
        assert verdict.reason is Reason.DISALLOW_RULE


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.clause("RFC 9309 2.3.1.1")
async def test_empty_answer_without_a_challenge_is_a_file(status: int) -> None:
    fetcher = ScriptedFetcher({SITE: status})
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(WALL)) as gate:
        assert await gate.check(PAGE)


@pytest.mark.parametrize("at_s", [n / 10 + n * n / 7 for n in range(40)])
@pytest.mark.parametrize(("status", "headers"), [(403, {"cf-mitigated": "challenge"}), (200, {"retry-after": "900"})])
async def test_closing_for_900_s_is_a_warning_at_any_time(
    status: int, headers: dict[str, str], at_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock, closed = ManualClock(WALL), list[float]()

    def note(event: Event) -> None:
        if isinstance(event, HostClosed):
            closed.append(event.closed_s)

    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: 404}), clock=clock) as gate:
        gate.subscribe(note)
        await gate.check(PAGE)
        clock.advance(60 + at_s)
        with caplog.at_level(logging.INFO, "politesse.pacing"):
            async with gate.turn(PAGE) as turn:
                turn.observe(status, headers)
    assert [record.levelname for record in caplog.records if "is closed until" in record.message] == ["WARNING"]
    assert closed == [900.0]


async def test_closing_by_refusal_is_a_warning_even_if_it_is_short(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "politesse.pacing"):
        await wait_after(403, {"cf-mitigated": "challenge"}, refused_min_s=60.0)
    assert [record.levelname for record in caplog.records if "is closed until" in record.message] == ["WARNING"]


@pytest.mark.parametrize(
    ("value", "begin"),
    [
        ("12", "retry-after: 12 from example.com is too short, because the own backoff is longer; waiting 20 s"),
        ("soon", "retry-after: soon from example.com is unreadable; waiting 2"),  # with the jitter of the backoff
        ("999999", "retry-after: 999999 from example.com is too long; waiting 86400 s"),
    ],
)
async def test_header_that_is_not_obeyed_is_logged_with_the_reason(
    value: str, begin: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "politesse.pacing"):
        await wait_after(429, {"retry-after": value}, backoff_min_s=20.0)
    assert [line for line in caplog.messages if line.startswith(begin)] != []

"""Answers and their headers.

Invariant: no answer of a server makes the library raise. All times are finite and within their documented bounds.
Only a 2xx or a 4xx opens the gate, as the policy reads them, or a 304 that confirms such an answer.

Input: one octet for the dialect and one for the options; then the answers of a server, each after a blank line. An
answer is a line with the seconds until it comes, a status or the kind of a fault, and "c" for a conditional request
or the seconds until a second look; and lines of headers.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from politesse import CacheOptions, PacingOptions
from politesse._cache.options import AccessPolicy
from politesse._cache.outcome import Copy, DefiniteAnswer, Moment, Record, advance, judged
from politesse._http.fields import joined_fields
from politesse._http.freshness import cache_control, freshness_lifetime_s, http_date, retry_after_s
from politesse._http.ratelimit import quota_fields, remaining_quota
from politesse._pacing.demand import Demand
from politesse._pacing.pace import Pace
from politesse._pacing.refusals import Meaning, challenge_of, meaning_of
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult
from politesse.robots import Dialect
from politesse.verdict import AccessResult, Bound
from tests.fuzz.target import Target, choose, dictionary, text

_DAY_S: Final = 86_400.0
_CALENDAR_S: Final = 1e12  # more than from the year 1 to 9999
_START_WALL: Final = 1_700_000_000.0
_URL: Final = "https://example.com/robots.txt"
_FAULTS: Final = {kind.value: kind for kind in FaultKind}
_OPTIONS: Final = (
    CacheOptions(),
    CacheOptions(on_forbidden="disallow", on_too_many_requests="allow"),
    CacheOptions(on_forbidden="allow", on_too_many_requests="defer"),
    CacheOptions(min_lifetime_s=0.0, stale_if_unreachable_s=30 * _DAY_S),
    CacheOptions(min_lifetime_s=_DAY_S, retry_min_s=0.001, retry_max_s=0.001, refresh_after=0.0),
)
_PACING: Final = (
    PacingOptions(),
    PacingOptions(backoff_min_s=0.001, backoff_max_s=0.001),
    PacingOptions(adaptive_factor=1000.0, min_delay_s=0.0, backoff_max_s=60.0),
)


@dataclass
class Site:
    """The state of a site, beside a literal reading of its answers so far."""

    policy: AccessPolicy
    pacing: PacingOptions
    now_wall: float = _START_WALL
    record: Copy | None = None
    backoff: Demand = field(default_factory=Demand)
    file: bytes | None = None  # of the last 2xx, unless a later answer contradicts it
    absent: bool = False  # whether the last decisive answer was that there is no file
    failing_since: float | None = None
    closed_since: float | None = None  # within the failures


def check(octets: bytes) -> None:
    """Hold the reading of answers to the invariant."""
    policy = choose(octets[1:2], _OPTIONS).policy(choose(octets[:1], tuple(Dialect)))
    site = Site(policy, choose(octets[1:2], _PACING))
    for number, block in enumerate(text(octets[2:]).split("\n\n")[:20]):
        first, *lines = block.lstrip("\n").split("\n")
        pairs = [line.partition(":") for line in lines]
        headers = joined_fields([(name.strip(), value.strip(" \t")) for name, colon, value in pairs if colon])
        wait_s, what, *flags = [*first.split(" "), "", ""][:3]
        site.now_wall += _number(wait_s, 8)
        jitter = number % 11 / 10
        _check_headers(headers, site.now_wall)
        _answer(site, _result(what, headers, conditional=flags == ["c"], number=number), jitter)
        _observe(site, headers, None if what in _FAULTS else _number(what, 3), elapsed_s=len(block) / 7, jitter=jitter)
        site.now_wall += _number(flags[0], 6)  # a look at it later
        _check_standing(site)


def _result(what: str, headers: Mapping[str, str], *, conditional: bool, number: int) -> FetchResult:
    if what in _FAULTS:
        retry_after = headers.get("retry-after", "")
        return FetchFault(_FAULTS[what], "a fault", _URL, None, float(_number(retry_after, 9)) if retry_after else None)
    return FetchResponse(_number(what, 3), _URL, headers, b"file %d" % number, conditional=conditional)


def _check_headers(headers: Mapping[str, str], now_wall: float) -> None:
    lifetime_s = freshness_lifetime_s(headers, now_wall)
    assert lifetime_s is None or abs(lifetime_s) <= _CALENDAR_S
    wait_s = retry_after_s(headers, now_wall)
    assert wait_s is None or 0.0 <= wait_s <= _CALENDAR_S
    for name, value in headers.items():
        date = http_date(value)
        assert date is None or abs(date) <= _CALENDAR_S, (name, value)
        assert all(re.fullmatch("[a-z0-9_-]+", directive) for directive in cache_control(value))
    quota = remaining_quota(headers, now_wall)
    if quota is not None:
        remaining, reset_s = quota
        assert 0.0 <= remaining < math.inf
        assert 0.0 <= reset_s < math.inf
        assert quota_fields(headers) or "x-ratelimit-remaining" in headers


def _answer(site: Site, result: FetchResult, jitter: float) -> None:
    """Let the record advance, and the literal reading with it."""
    before, now_wall, policy = site.record, site.now_wall, site.policy
    known = Copy.of_record(Origin.of(_URL), "/robots.txt", Record(None, None)) if before is None else before
    now = Moment("run", now_wall, now_wall)
    site.record = record = advance(known, result, now, policy, jitter)
    answer = known.answer
    meaning = _meaning(result, site)
    if meaning is AccessResult.UNREACHABLE or meaning is AccessResult.TOO_MANY_REQUESTS:
        assert record.answer is answer, "a fault changed what the site said"
        assert record.trouble is not None
        failed = None if known.trouble is None or now_wall - known.trouble.last_wall > 2 * _DAY_S else known.trouble
        was_unreachable = failed is not None and failed.result is AccessResult.UNREACHABLE
        is_closed = isinstance(result, FetchFault) and result.kind is FaultKind.HOST_CLOSED
        kept = AccessResult.UNREACHABLE if was_unreachable and is_closed else meaning
        assert record.trouble.result is kept, "what was not asked is not known to have changed"
        site.failing_since = now_wall if site.failing_since is None else site.failing_since
        if site.closed_since is not None:
            site.failing_since += now_wall - site.closed_since
        site.closed_since = now_wall if is_closed and was_unreachable else None
    else:
        if meaning is AccessResult.SUCCESSFUL and not (isinstance(result, FetchResponse) and result.status == 304):
            assert isinstance(result, FetchResponse)
            site.file = result.body
        elif meaning is not AccessResult.SUCCESSFUL and record.answer is not answer:
            site.file = None
        site.absent = meaning is AccessResult.UNAVAILABLE
        site.failing_since = site.closed_since = None
    if record.answer is not None and record.answer is not answer:
        _check_answer(record.answer, now_wall, policy)
    if record.trouble is not None:
        least_s = 1.0
        if isinstance(result, FetchFault) and result.retry_after_s is not None and _is_unsent(result):
            least_s = min(max(0.0, result.retry_after_s), _DAY_S)  # nothing was sent, so the opening counts alone
        assert now_wall + least_s <= record.trouble.retry_wall <= now_wall + _DAY_S
        assert record.trouble.since_wall <= record.trouble.last_wall == now_wall
        assert record.trouble.failures >= 1
    _check_standing(site)


def _is_unsent(result: FetchResult) -> bool:
    """Return whether the host was closed for a time, so that nothing was sent."""
    if not isinstance(result, FetchFault):
        return False
    return result.kind is FaultKind.HOST_CLOSED and result.retry_after_s is not None


def _meaning(result: FetchResult, site: Site) -> AccessResult:
    """Return the access result of an answer (RFC 9309 2.3.1)."""
    policy = site.policy
    if isinstance(result, FetchFault):
        meanings = {
            FaultKind.REDIRECT_LIMIT: policy.outcomes.too_many_redirects,
            FaultKind.HOST_CLOSED: AccessResult.TOO_MANY_REQUESTS,
        }
        return meanings.get(result.kind, AccessResult.UNREACHABLE)
    status = result.status
    if challenge_of(result.headers):
        return AccessResult.UNREACHABLE
    confirms = status == 304 and result.conditional and site.file is not None and _names_the_copy(result, site.record)
    if confirms or (200 <= status <= 299 and status != 206):
        return AccessResult.SUCCESSFUL
    if status == 429:
        return policy.outcomes.too_many_requests
    if status in {401, 403} and policy.outcomes.forbidden_disallows:
        return AccessResult.FORBIDDEN
    return AccessResult.UNAVAILABLE if 400 <= status <= 499 else AccessResult.UNREACHABLE


def _names_the_copy(not_modified: FetchResponse, record: Copy | None) -> bool:
    """Return whether a 304 is about a copy that has validators, by its entity tag if it names one."""
    answer = record.answer if record is not None else None
    if answer is None or not (answer.etag or answer.last_modified):
        return False
    named = not_modified.headers.get("etag", "")
    readable = named.isascii() and named.isprintable()
    return not (named and readable) or named.removeprefix("W/") == answer.etag.removeprefix("W/")


def _check_answer(answer: DefiniteAnswer, now_wall: float, policy: AccessPolicy) -> None:
    successful = answer.result is AccessResult.SUCCESSFUL
    most_s = policy.outcomes.max_lifetime_s if successful else _DAY_S
    assert answer.confirmed_wall == now_wall
    assert 0.0 < answer.lifetime_s <= most_s
    assert answer.lifetime_s >= min(policy.options.min_lifetime_s, most_s)
    for validator in (answer.etag, answer.last_modified):
        assert validator == "" or (validator.isascii() and validator.isprintable())


def _check_standing(site: Site) -> None:
    now = Moment("run", site.now_wall, site.now_wall)
    held = None if site.record is None else judged(site.record, now, site.policy)
    if held is None:
        return  # robots.txt is requested first
    now_wall, source, outcomes = site.now_wall, held.source, site.policy.outcomes
    longest_s = max(outcomes.max_lifetime_s, outcomes.closed_s + outcomes.stale_s, outcomes.unavailable_copy_s, _DAY_S)
    assert now_wall < held.deadline_mono <= now_wall + longest_s
    assert source.fetched_wall <= now_wall
    assert source.not_before is None or source.not_before > now_wall, "not before a time that is over"
    if source.result is AccessResult.SUCCESSFUL:
        assert site.record is not None
        assert site.record.answer is not None
        assert site.record.body == site.file, "rules that no 2xx brought"
    elif source.result is AccessResult.UNAVAILABLE and not site.absent:
        assert site.failing_since is not None, "the gate is open, and nobody opened it"
        granted_s = outcomes.closed_s if outcomes.opens_without_copy else outcomes.after_s
        assert outcomes.opens_without_copy or outcomes.after_allows is not False, "a fault opened the gate"
        failing_until = now_wall if site.closed_since is None else site.closed_since
        assert failing_until >= site.failing_since + granted_s, "a fault opened the gate too early"


def _observe(site: Site, headers: Mapping[str, str], status: int | None, *, elapsed_s: float, jitter: float) -> None:
    backoff, now_wall, pacing = site.backoff, site.now_wall, site.pacing
    before = backoff.closing.until_mono
    overruled = backoff.observe(status, headers, elapsed_s, now_wall, now_wall, pacing, jitter)
    assert before <= backoff.closing.until_mono <= max(before, now_wall + pacing.backoff_max_s)
    if status is not None and meaning_of(status, headers) in (Meaning.BUSY, Meaning.REFUSED):
        assert backoff.closing.until_mono >= now_wall + min(1.0, pacing.backoff_min_s, pacing.backoff_max_s)
    assert backoff.closing.until_mono <= backoff.remembered_until_mono < math.inf
    pace = backoff.start(Pace(pacing.min_delay_s, Bound.FLOOR), (), now_wall, now_wall, pacing).pace
    assert pacing.min_delay_s <= pace.interval_s < math.inf
    if pace.bound_by is Bound.RATE_LIMIT:
        assert pace.interval_s <= pacing.backoff_max_s
    for one in overruled:
        assert one.field in headers
        assert one.value.isprintable()
        assert one.applied_s is None or 0.0 <= one.applied_s <= pacing.backoff_max_s


def _number(digits: str, most: int) -> int:
    return int(digits[:most]) if digits.isascii() and digits.isdigit() else 0


TARGET: Final = Target(
    "headers", check, (*dictionary("headers"), *(f"\n\n86400 {kind} \n".encode() for kind in _FAULTS)), 1024
)

"""The meaning of an answer to the request for a file, now and later: a pure state machine.

The *copy* of a Record is the last definite answer (2xx, 4xx). Its *trouble* stands for the failures since then (5xx,
429, faults). An answer changes the record (``advance``); time changes only its meaning (``standing``).

    answer                         copy                      trouble
    2xx except 206                 new, successful           none
    304 to a conditional request   confirmed                 none
    401, 403 if they forbid        new, forbidden            none
    another 304                    kept                      unreachable, retry at R
    429, a host that is closed     kept                      too many requests, retry at R
    other 4xx, too many redirects  new, unavailable          none
    the same, with a usable copy   kept                      unavailable, retry at R
    anything else, any fault       kept                      unreachable, retry at R
    any status with a challenge    kept                      unreachable, retry at R

    trouble             copy                                   means                until        refreshed behind
    none                fresh                                  the copy             it is stale  from 90 % of its life
    none                stale                                  fetch
    too many requests   fresh                                  the copy             it is stale  from R
    too many requests   not fresh, before R                    too many requests    R
    unavailable         successful, confirmed within a day     the copy             the day ends from R
    unavailable         other, before R                        unavailable          R
    unreachable         successful, confirmed within a day     the copy             the day ends from R
    unreachable         other, before R                        unreachable          R
    unreachable         other, 30 days on, in some dialects    unavailable          R
    any                 none of these                          fetch

All times are wall times; the caller has corrected the record with both clocks (see ``record``). The table follows RFC
9309. Dialect and options may change the meaning of 429 and of too many redirects. Dialect and options also set how long
a copy is used (``stale_s``), for how long after the first failure no copy is used (``closed_s``), and what trouble
without a copy means after ``closed_s``.

R is the latest of Retry-After, our own backoff (60 s doubling to an hour, with jitter), and the end of the closure that
the answer has caused. A closed host gets no request; R is then the time at which the host opens, if the pacer knows it.

A 304 does not confirm the copy if it has another entity tag, or no tag and another Last-Modified. The request is then
made once more without conditions (``names_another``). A 304 to a request without conditions means unreachable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from politesse._base.constants import DAY_S
from politesse._base.reasons import CLOSED
from politesse._cache.options import AccessPolicy, fault_in_words
from politesse._cache.record import Copy, Record, Trouble, believed
from politesse._http.freshness import freshness_lifetime_s, names_another, retry_after_s, varies_by
from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult
from politesse.verdict import AccessResult, Source

_MIN_RETRY_S: Final = 1.0  # the wait is at least this long, even if the options permit less
_MAX_RETRY_S: Final = DAY_S  # the longest wait, so that a large Retry-After does not close a site for a year
_JITTER: Final = 0.1
_MAX_TYPE: Final = 256  # a media type is cut to this many characters
_MAX_GAP_S: Final = 2 * DAY_S
_TICK_S: Final = 0.001  # an answer is valid for at least this time, so that the waiting callers can use it


class Standing(NamedTuple):
    """The meaning of a record at a moment.

    Attributes:
        source: the source of verdicts; its ``result`` decides how to answer.
        at_wall: the moment.
        until_wall: the end of this meaning.
        refresh_wall: when to fetch again, while the meaning still holds.
    """

    source: Source
    at_wall: float
    until_wall: float
    refresh_wall: float


def advance(record: Record | None, result: FetchResult, now_wall: float, policy: AccessPolicy, jitter: float) -> Record:
    """Return the record after an answer or a fault at ``now_wall``; ``jitter`` is 0 to 1, drawn by the caller."""
    meaning = policy.meaning_of(result)
    if meaning is None:
        validators = None if record is None else record.validators
        confirms = validators is not None and not names_another(result, validators)
        if record is not None and record.copy is not None and confirms and isinstance(result, FetchResponse):
            return Record(_confirmed(record.copy, result, now_wall, policy), None)
        meaning = AccessResult.UNREACHABLE
    record = None if record is None else believed(record, now_wall)
    copy = None if record is None else record.copy
    troubled = meaning in CLOSED
    if troubled or (meaning is AccessResult.UNAVAILABLE and _counts_though_unavailable(copy, now_wall, policy)):
        return Record(copy, _trouble(meaning, result, record, now_wall, policy, jitter))
    return Record(_settled(result, meaning, now_wall, policy), None)


def was_open(record: Record | None, now_wall: float, policy: AccessPolicy) -> bool:
    """Return whether a record permitted requests for pages until its copy expired.

    The age of the copy does not matter, because a copy may expire while a page waits for a Crawl-delay of a day. If the
    host was idle for a long time, the request for robots.txt restarts the interval in any case.
    """
    record = as_read(record, policy)
    if record is None:
        return False
    copy, trouble = record.copy, record.trouble
    if copy is None or copy.result is AccessResult.FORBIDDEN:
        return False
    return trouble is None or (
        not is_closed(trouble, now_wall, policy) and now_wall < _serves_until_wall(copy, trouble, policy)
    )


def shared_lifetime_s(result: FetchResult, now_wall: float, policy: AccessPolicy) -> float:
    """Return how long other origins may use the answer of a redirect's target, in seconds; 0 if they may not.

    Each origin keeps its copy for at least ``min_lifetime_s``, and no copy may become older than the policy permits.
    """
    if isinstance(result, FetchFault):
        redirects = result.kind is FaultKind.REDIRECT_LIMIT and bool(result.location)
        return policy.options.min_lifetime_s if redirects else 0.0
    meaning = policy.classify(result)
    if meaning in CLOSED:
        return 0.0
    known = meaning or AccessResult.SUCCESSFUL  # a 304 confirms a file
    longest_s = _longest_s(known, policy) - policy.options.min_lifetime_s
    return min(_lifetime_s(result, known, now_wall, policy), longest_s)


def _settled(result: FetchResult, meaning: AccessResult, now_wall: float, policy: AccessPolicy) -> Copy:
    if isinstance(result, FetchFault):
        return Copy(
            result=meaning,
            status=result.status,
            final_url=result.final_url,
            body=b"",
            etag="",
            last_modified="",
            confirmed_wall=now_wall,
            lifetime_s=policy.outcomes.lifetimes.max_unavailable_s,
            fault=fault_in_words(result),
            private_addresses=policy.conditions.private_addresses,
            faults_read=policy.faults_read,
        )
    successful = meaning is AccessResult.SUCCESSFUL
    confirmed_wall = now_wall - result.age_s
    return Copy(
        result=meaning,
        status=result.status,
        final_url=result.final_url,
        body=result.body if successful else b"",
        etag=_validator(result, "etag") if successful else "",
        last_modified=_validator(result, "last-modified") if successful else "",
        confirmed_wall=confirmed_wall,
        lifetime_s=_lifetime_s(result, meaning, confirmed_wall, policy),
        user_agent=policy.conditions.user_agent if varies_by(result.headers, "user-agent") else "",
        content_type=result.headers.get("content-type", "")[:_MAX_TYPE] if successful else "",
        cut_bytes=(policy.conditions.max_body_bytes or len(result.body)) if result.truncated else None,
        private_addresses=policy.conditions.private_addresses,
    )


def standing(record: Record | None, url: str, now_wall: float, policy: AccessPolicy) -> Standing | None:
    """Return the meaning of ``record``, for the file at ``url``, at ``now_wall``; None if the file must be fetched."""
    if record is None:
        return None
    record = believed(record, now_wall)
    copy, trouble = record.copy, record.trouble
    closed = trouble is not None and is_closed(trouble, now_wall, policy)
    if copy is not None and not closed and now_wall < (until_wall := _serves_until_wall(copy, trouble, policy)):
        return _standing_of_copy(copy, trouble, url, now_wall, until_wall, policy)
    if trouble is not None and now_wall < trouble.retry_wall:
        return _standing_of_trouble(trouble, copy, url, now_wall, policy)
    return None


def _standing_of_copy(
    copy: Copy, trouble: Trouble | None, url: str, now_wall: float, until_wall: float, policy: AccessPolicy
) -> Standing:
    not_before = None
    if trouble is not None and trouble.result is AccessResult.TOO_MANY_REQUESTS and now_wall < trouble.retry_wall:
        not_before = trouble.retry_wall
    source = Source(
        robots_url=url,
        result=copy.result,
        status=copy.status,
        final_url=url if copy.final_url == url else copy.final_url,  # most entries then share one string
        fetched_wall=copy.confirmed_wall,
        fresh_until_wall=until_wall if trouble is None else copy.fresh_until_wall,
        fault=copy.fault if trouble is None else trouble.fault,
        not_before=not_before,
        of_host=not_before is not None and _is_of_host(trouble, url),
    )
    due_wall = copy.confirmed_wall + policy.options.refresh_after * copy.lifetime_s
    return Standing(source, now_wall, until_wall, refresh_wall=due_wall if trouble is None else trouble.retry_wall)


def _standing_of_trouble(
    trouble: Trouble, copy: Copy | None, url: str, now_wall: float, policy: AccessPolicy
) -> Standing:
    until_wall = trouble.retry_wall
    if is_closed(trouble, now_wall, policy):
        until_wall = min(until_wall, trouble.since_wall + policy.outcomes.grace.closed_s)
    source = Source(
        robots_url=url,
        result=_without_copy(trouble, copy, now_wall, policy),
        status=trouble.status,
        final_url=trouble.final_url,
        fetched_wall=trouble.last_wall,
        fresh_until_wall=until_wall,
        fault=trouble.fault,
        not_before=until_wall,
        of_host=_is_of_host(trouble, url),
        failing_since_wall=trouble.since_wall,
    )
    return Standing(source, now_wall, until_wall, refresh_wall=until_wall)


def _is_of_host(trouble: Trouble | None, robots_url: str) -> bool:
    """Return whether the trouble is a 429 of the host itself, not of a host to which robots.txt redirects."""
    if trouble is None or trouble.result is not AccessResult.TOO_MANY_REQUESTS:
        return False
    try:
        return Origin.of(trouble.final_url).pacing_host == Origin.of(robots_url).pacing_host
    except InvalidURL:  # another program may have written the record
        return True


def is_closed(trouble: Trouble, now_wall: float, policy: AccessPolicy) -> bool:
    """Return whether the file has been unreachable for less than ``closed_s``; until then no copy is used."""
    return trouble.result is AccessResult.UNREACHABLE and now_wall < trouble.since_wall + policy.outcomes.grace.closed_s


def _without_copy(trouble: Trouble, copy: Copy | None, now_wall: float, policy: AccessPolicy) -> AccessResult:
    """Return the meaning of trouble without a usable copy."""
    if trouble.result is not AccessResult.UNREACHABLE or is_closed(trouble, now_wall, policy):
        return trouble.result
    grace = policy.outcomes.grace
    if now_wall >= trouble.since_wall + grace.after_s:
        # RFC 9309 2.3.1.4: a crawler MAY then treat robots.txt as unavailable. This requires an answer, which shows
        # that the host is up. Refusals of pages still close the host.
        allows = grace.after_allows and trouble.status is not None
    else:
        allows = grace.opens_without_copy and (copy is None or copy.result is not AccessResult.SUCCESSFUL)
    return AccessResult.UNAVAILABLE if allows else AccessResult.UNREACHABLE


def _counts_though_unavailable(copy: Copy | None, now_wall: float, policy: AccessPolicy) -> bool:
    """Return whether to use the copy although robots.txt is unavailable (draft-koster-rep-00 2.3.1.3: for 24 hours)."""
    return (
        copy is not None
        and copy.result is AccessResult.SUCCESSFUL
        and now_wall < copy.confirmed_wall + policy.outcomes.unavailable_copy_s
    )


def as_read(record: Record | None, policy: AccessPolicy) -> Record | None:
    """Return a stored record as this policy reads it; drop its copy if this policy would not have made the copy.

    Another or an earlier process may have stored the record with another dialect, User-Agent or limit. A copy from
    other settings is neither used nor revalidated. The failures since then still count.
    """
    if record is None or record.copy is None:
        return record
    copy = record.copy
    alike = copy.faults_read == policy.faults_read if copy.fault else copy.result is policy.result_of(copy.status or 0)
    if not alike or not policy.conditions.permit(copy):
        return None if record.trouble is None else record._replace(copy=None)
    most_s = _longest_s(copy.result, policy)
    return record if copy.lifetime_s <= most_s else record._replace(copy=replace(copy, lifetime_s=most_s))


def _serves_until_wall(copy: Copy, trouble: Trouble | None, policy: AccessPolicy) -> float:
    if trouble is None or trouble.result is AccessResult.TOO_MANY_REQUESTS:
        return copy.fresh_until_wall
    if copy.result is not AccessResult.SUCCESSFUL:
        return copy.confirmed_wall  # the absence of a file is not used beyond its lifetime
    if trouble.result is AccessResult.UNAVAILABLE:
        return copy.confirmed_wall + policy.outcomes.unavailable_copy_s
    # RFC 9309 2.4: a copy may be used beyond its lifetime while robots.txt is unreachable.
    grace = policy.outcomes.grace
    from_wall = trouble.since_wall + grace.closed_s if grace.stale_from_failure else copy.confirmed_wall
    return max(copy.fresh_until_wall, from_wall + grace.stale_s)


def _confirmed(copy: Copy, response: FetchResponse, now_wall: float, policy: AccessPolicy) -> Copy:
    """Return the copy after a 304. RFC 9111 4.3.4: headers of the 304 replace the same headers of the copy."""
    confirmed_wall = now_wall - response.age_s
    says_how_long = "cache-control" in response.headers or "expires" in response.headers
    return replace(
        copy,
        etag=_validator(response, "etag") or copy.etag,  # the same tag, or its weak or strong form
        last_modified=_validator(response, "last-modified") or copy.last_modified,
        confirmed_wall=confirmed_wall,
        lifetime_s=_lifetime_s(response, copy.result, confirmed_wall, policy) if says_how_long else copy.lifetime_s,
        user_agent=policy.conditions.user_agent if varies_by(response.headers, "user-agent") else copy.user_agent,
        private_addresses=policy.conditions.private_addresses,
    )


def _validator(response: FetchResponse, name: str) -> str:
    """Return a header if a client can send it back unchanged; otherwise an empty string."""
    value = response.headers.get(name, "")
    return value if value.isascii() and value.isprintable() else ""


def _lifetime_s(response: FetchResponse, result: AccessResult, received_wall: float, policy: AccessPolicy) -> float:
    """Return the freshness lifetime, from ``received_wall``; at least ``min_lifetime_s`` of it are left now."""
    most_s = _longest_s(result, policy)
    asked_s = freshness_lifetime_s(response.headers, received_wall)
    if asked_s is None:
        asked_s = policy.outcomes.lifetimes.default_s if result is AccessResult.SUCCESSFUL else most_s
    return min(max(asked_s, response.age_s + policy.options.min_lifetime_s, _TICK_S), most_s)


def _longest_s(result: AccessResult, policy: AccessPolicy) -> float:
    lifetimes = policy.outcomes.lifetimes
    return lifetimes.max_s if result is AccessResult.SUCCESSFUL else lifetimes.max_unavailable_s


def _trouble(
    result: AccessResult,
    answer: FetchResult,
    record: Record | None,
    now_wall: float,
    policy: AccessPolicy,
    jitter: float,
) -> Trouble:
    before = record.trouble if record is not None else None
    if before is not None and now_wall - before.last_wall > _MAX_GAP_S:
        before = None  # after days without a request, the old failures no longer count
    if isinstance(answer, FetchFault):
        asked_s = answer.retry_after_s
    else:  # the file cannot be fetched again before its host opens
        asked_s = max(retry_after_s(answer.headers, now_wall) or 0.0, answer.closed_s)
    # A closed host got no request, so the failure does not count. The next request follows when the host opens.
    opens = isinstance(answer, FetchFault) and answer.kind is FaultKind.HOST_CLOSED and asked_s is not None
    failures = 1 if before is None else before.failures + (not opens)
    # A host that answers 429 is not unreachable: the two states count their days separately.
    since_wall = before.since_wall if before is not None and before.result is result else now_wall
    wait_s = max(asked_s or 0.0, _MIN_RETRY_S)
    if not opens:
        # The exponent is bounded, so that a year of failures does not overflow.
        backoff_s = min(policy.options.retry_min_s * 2.0 ** min(failures - 1, 32), policy.options.retry_max_s)
        wait_s = max(wait_s, min(backoff_s * (1.0 + _JITTER * jitter), policy.options.retry_max_s))
    retry_wall = now_wall + min(wait_s, _MAX_RETRY_S)
    fault = fault_in_words(answer)
    return Trouble(result, answer.status, answer.final_url, fault, since_wall, now_wall, failures, retry_wall)

"""What an answer to the request for a file means, and what it means later: one state machine, pure.

A Record has two parts: the copy is the last answer that settled something (2xx, 4xx), the trouble the failures since
(5xx, 429, faults), if there were any. An answer changes the record (``advance``); time changes only what the record
stands for (``standing``).

    answer                         copy                      trouble
    2xx but 206                    new, successful           none
    304 to a conditional request   confirmed                 none
    401, 403 where they forbid     new, forbidden            none
    another 304                    kept                      unreachable, retry at R
    429, a host that is closed     kept                      too many requests, retry at R
    other 4xx, too many redirects  new, unavailable          none
    the same, where a copy counts  kept                      unavailable, retry at R
    anything else, any fault       kept                      unreachable, retry at R

    trouble             copy                                   stands for           until        refreshed behind
    none                fresh                                  the copy             it is stale  from 90 % of its life
    none                stale                                  fetch
    too many requests   fresh                                  the copy             it is stale  from R
    too many requests   not fresh, before R                    too many requests    R
    unavailable         successful, confirmed within a day     the copy             that day     from R
    unavailable         other, before R                        unavailable          R
    unreachable         successful, confirmed within a day     the copy             that day     from R
    unreachable         other, before R                        unreachable          R
    unreachable         other, 30 days on, where opted in      unavailable          R
    any                 none of these                          fetch

All times are wall times; the caller has reckoned the record by both clocks (see ``record``).

The table is RFC 9309. Dialect and options may change the meaning of 429 and of too many redirects, how long a copy
serves (``stale_s``), an initial time in which no copy serves (``closed_s``), and what applies after it without a copy.

R is the later of Retry-After and our own backoff: 60 s doubling to an hour, with jitter. No request is sent to a host
that is closed: then R is the time at which it opens, if that is known.

A 304 that names another entity tag than the copy's confirms nothing, nor does one that names none and another
Last-Modified. The request is made once more without conditions (``names_another``); a 304 to that is unreachable, as
any 304 to a request without conditions is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from politesse._cache.record import Copy, Record, Trouble, believed
from politesse._constants import DAY_S
from politesse._http.freshness import freshness_lifetime_s, retry_after_s
from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult, Validators
from politesse.verdict import AccessResult, Source

if TYPE_CHECKING:
    from politesse.robots.traits import Outcomes

_MIN_RETRY_S: Final = 1.0  # whatever the options say: no licence to hammer
_MAX_RETRY_S: Final = DAY_S  # nor a large one to close a site for a year without asking once a day
_JITTER: Final = 0.1
_MAX_GAP_S: Final = 2 * DAY_S
_FORBIDDEN: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_TROUBLES: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})
_TICK_S: Final = 0.001  # an answer holds at least for the questions that it was fetched for


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The choices that the table leaves open.

    Attributes:
        outcomes: those of the dialect, or of the kind of file; the options may have changed some.
        min_lifetime_s: the least time that an answer holds, whatever its headers say.
        refresh_after: the part of its lifetime after which an answer is refreshed behind the questions.
        retry_min_s: the first wait after a fault that names none.
        retry_max_s: the longest such wait.
    """

    outcomes: Outcomes
    min_lifetime_s: float
    refresh_after: float
    retry_min_s: float
    retry_max_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What a record stands for at a moment.

    Attributes:
        source: whose ``result`` says how to answer.
        at_wall: that moment.
        until_wall: when it ends.
        refresh_wall: from when on to ask again, while it still stands.
    """

    source: Source
    at_wall: float
    until_wall: float
    refresh_wall: float


def advance(record: Record | None, result: FetchResult, now_wall: float, policy: AccessPolicy, jitter: float) -> Record:
    """Return the record after an answer or a fault at ``now_wall``; ``jitter`` is 0 to 1, drawn by the caller."""
    meaning, fault = _meaning(result, policy)
    if meaning is None:
        validators = None if record is None else record.validators
        confirms = validators is not None and not names_another(result, validators)
        if record is not None and record.copy is not None and confirms and isinstance(result, FetchResponse):
            return Record(_confirmed(record.copy, result, now_wall, policy), None)
        meaning = AccessResult.UNREACHABLE
    record = None if record is None else believed(record, now_wall)
    copy = None if record is None else record.copy
    troubled = meaning in _TROUBLES
    if troubled or (meaning is AccessResult.UNAVAILABLE and _counts_though_unavailable(copy, now_wall, policy)):
        return Record(copy, _trouble(meaning, fault, result, record, now_wall, policy, jitter))
    return Record(_settled(result, meaning, fault, now_wall, policy), None)


def names_another(result: FetchResult, validators: Validators) -> bool:
    """Return whether an answer is a 304 about another file than the copy whose validators were sent.

    RFC 9111 4.3.4: a 304 that brings a validator updates only what has that validator. Entity tags are compared as
    RFC 9110 8.8.3.2 does for If-None-Match (weak comparison): a server that compresses on the fly makes a weak tag of a
    strong one. A tag that could not be sent back is another one, too. Without an entity tag Last-Modified decides: some
    servers answer 304 for a file that was replaced by an older one.
    """
    if not (isinstance(result, FetchResponse) and result.status == HTTPStatus.NOT_MODIFIED and result.conditional):
        return False
    etag, modified = result.headers.get("etag", ""), result.headers.get("last-modified", "")
    if etag:
        return etag.removeprefix("W/") != validators.etag.removeprefix("W/")
    return bool(modified and validators.last_modified) and modified != validators.last_modified


def _meaning(result: FetchResult, policy: AccessPolicy) -> tuple[AccessResult | None, str]:
    """Return what an answer or a fault means, None for a 304 that confirms the copy at hand, and the fault in words."""
    if isinstance(result, FetchResponse):
        return classify(result, policy), f"the server answered with status {result.status}"
    if result.kind is FaultKind.REDIRECT_LIMIT:  # RFC 9309 2.3.1.2: MAY assume unavailable
        return policy.outcomes.too_many_redirects, result.detail
    closed = result.kind is FaultKind.HOST_CLOSED
    meaning = AccessResult.TOO_MANY_REQUESTS if closed else AccessResult.UNREACHABLE
    return meaning, f"{result.kind}: {result.detail}"


def _settled(result: FetchResult, meaning: AccessResult, fault: str, now_wall: float, policy: AccessPolicy) -> Copy:
    if isinstance(result, FetchFault):
        lifetime_s = policy.outcomes.lifetimes.max_unavailable_s
        return Copy(meaning, result.status, result.final_url, b"", "", "", now_wall, lifetime_s, fault)
    successful = meaning is AccessResult.SUCCESSFUL
    return Copy(
        result=meaning,
        status=result.status,
        final_url=result.final_url,
        body=result.body if successful else b"",
        etag=_validator(result, "etag") if successful else "",
        last_modified=_validator(result, "last-modified") if successful else "",
        confirmed_wall=now_wall,
        lifetime_s=_lifetime_s(result, meaning, now_wall, policy),
    )


def classify(response: FetchResponse, policy: AccessPolicy) -> AccessResult | None:
    """Return what a status means; None for a 304 that confirms the copy at hand."""
    if response.status == HTTPStatus.NOT_MODIFIED and response.conditional:
        return None
    return _result_of(response.status, policy)


def _result_of(status: int, policy: AccessPolicy) -> AccessResult:
    """Return what a status means that confirms no copy."""
    if _is_in(status, 200) and status != HTTPStatus.PARTIAL_CONTENT:  # the request had no Range
        return AccessResult.SUCCESSFUL
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return policy.outcomes.too_many_requests
    if status in _FORBIDDEN and policy.outcomes.forbidden_disallows:
        return AccessResult.FORBIDDEN
    if _is_in(status, 400):  # RFC 9309 2.3.1.3: unavailable, 400 to 499, means that any resource may be accessed
        return AccessResult.UNAVAILABLE
    # RFC 9309 2.3.1.4: unreachable, 500 to 599, means complete disallow; so does every status that no text defines.
    return AccessResult.UNREACHABLE


def _is_in(status: int, hundred: int) -> bool:
    """Return whether a status is of the class that begins with ``hundred``."""
    return hundred <= status < hundred + 100


def standing(record: Record | None, url: str, now_wall: float, policy: AccessPolicy) -> Standing | None:
    """Return what ``record``, of the file at ``url``, stands for at ``now_wall``; None if the file must be fetched."""
    if record is None:
        return None
    record = believed(record, now_wall)
    copy, trouble = _as_read(record.copy, policy), record.trouble
    closed = trouble is not None and is_closed(trouble, now_wall, policy)
    if copy is not None and not closed and now_wall < _serves_until_wall(copy, trouble, policy):
        return _standing_of_copy(copy, trouble, url, now_wall, policy)
    if trouble is not None and now_wall < trouble.retry_wall:
        return _standing_of_trouble(trouble, copy, url, now_wall, policy)
    return None


def _standing_of_copy(copy: Copy, trouble: Trouble | None, url: str, now_wall: float, policy: AccessPolicy) -> Standing:
    not_before = None
    if trouble is not None and trouble.result is AccessResult.TOO_MANY_REQUESTS and now_wall < trouble.retry_wall:
        not_before = trouble.retry_wall
    source = Source(
        robots_url=url,
        result=copy.result,
        status=copy.status,
        final_url=url if copy.final_url == url else copy.final_url,  # one string for both, in most entries
        fetched_wall=copy.confirmed_wall,
        fresh_until_wall=copy.fresh_until_wall,
        fault=copy.fault if trouble is None else trouble.fault,
        not_before=not_before,
        of_host=not_before is not None and _is_of_host(trouble, url),
    )
    due_wall = copy.confirmed_wall + policy.refresh_after * copy.lifetime_s
    until_wall = _serves_until_wall(copy, trouble, policy)
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


def is_fault_of_kind(source: Source, kind: FaultKind) -> bool:
    """Return whether the fetch of an unreachable robots.txt ended in a fault of ``kind``, as ``_meaning`` words it."""
    return source.result is AccessResult.UNREACHABLE and source.fault.startswith(f"{kind}: ")


def _is_of_host(trouble: Trouble | None, robots_url: str) -> bool:
    """Whether a 429 was said of the host, as it is, and that host is the one asked, not one that it redirects to."""
    if trouble is None or trouble.result is not AccessResult.TOO_MANY_REQUESTS:
        return False
    try:
        return Origin.of(trouble.final_url).pacing_host == Origin.of(robots_url).pacing_host
    except InvalidURL:  # in a record that another program has written
        return True


def is_closed(trouble: Trouble, now_wall: float, policy: AccessPolicy) -> bool:
    """Return whether the file has been unreachable for less than ``closed_s``, a time in which no copy serves."""
    return trouble.result is AccessResult.UNREACHABLE and now_wall < trouble.since_wall + policy.outcomes.grace.closed_s


def _without_copy(trouble: Trouble, copy: Copy | None, now_wall: float, policy: AccessPolicy) -> AccessResult:
    """Return what trouble is where no copy serves."""
    if trouble.result is not AccessResult.UNREACHABLE or is_closed(trouble, now_wall, policy):
        return trouble.result
    grace = policy.outcomes.grace
    if now_wall >= trouble.since_wall + grace.after_s:
        # RFC 9309 2.3.1.4: MAY. A host that answers at all is up; one that fails on its pages closes itself.
        allows = trouble.status is not None if grace.after_allows is None else grace.after_allows
    else:
        allows = grace.opens_without_copy and (copy is None or copy.result is not AccessResult.SUCCESSFUL)
    return AccessResult.UNAVAILABLE if allows else AccessResult.UNREACHABLE


def _counts_though_unavailable(copy: Copy | None, now_wall: float, policy: AccessPolicy) -> bool:
    """draft-koster-rep-00 2.3.1.3: a cached version MAY be used for up to 24 hours instead."""
    return (
        copy is not None
        and copy.result is AccessResult.SUCCESSFUL
        and now_wall < copy.confirmed_wall + policy.outcomes.unavailable_copy_s
    )


def _as_read(copy: Copy | None, policy: AccessPolicy) -> Copy | None:
    """Return a copy as this policy reads it, None if not at all: it may have been kept under another policy."""
    if copy is None or (not copy.fault and _result_of(copy.status or 0, policy) is not copy.result):
        return None
    successful = copy.result is AccessResult.SUCCESSFUL
    most_s = policy.outcomes.lifetimes.max_s if successful else policy.outcomes.lifetimes.max_unavailable_s
    return copy if copy.lifetime_s <= most_s else replace(copy, lifetime_s=most_s)


def _serves_until_wall(copy: Copy, trouble: Trouble | None, policy: AccessPolicy) -> float:
    if trouble is None or trouble.result is AccessResult.TOO_MANY_REQUESTS:
        return copy.fresh_until_wall
    if copy.result is not AccessResult.SUCCESSFUL:
        return copy.confirmed_wall  # the absence of a file is no copy of it
    if trouble.result is AccessResult.UNAVAILABLE:
        return copy.confirmed_wall + policy.outcomes.unavailable_copy_s
    # RFC 9309 2.4: a copy may be used beyond its time while robots.txt is unreachable.
    grace = policy.outcomes.grace
    from_wall = trouble.since_wall + grace.closed_s if grace.stale_from_failure else copy.confirmed_wall
    return max(copy.fresh_until_wall, from_wall + grace.stale_s)


def _confirmed(copy: Copy, response: FetchResponse, now_wall: float, policy: AccessPolicy) -> Copy:
    """RFC 9111 4.3.4: the headers of the 304 replace those of the copy, and those that it does not bring stay."""
    says_how_long = "cache-control" in response.headers or "expires" in response.headers
    return replace(
        copy,
        etag=_validator(response, "etag") or copy.etag,  # the same one, or its weak or strong twin
        last_modified=_validator(response, "last-modified") or copy.last_modified,
        confirmed_wall=now_wall,
        lifetime_s=_lifetime_s(response, copy.result, now_wall, policy) if says_how_long else copy.lifetime_s,
    )


def _validator(response: FetchResponse, name: str) -> str:
    """Return a header that can be sent back as it came; others no client sends without changing them."""
    value = response.headers.get(name, "")
    return value if value.isascii() and value.isprintable() else ""


def _lifetime_s(response: FetchResponse, result: AccessResult, now_wall: float, policy: AccessPolicy) -> float:
    lifetimes = policy.outcomes.lifetimes
    successful = result is AccessResult.SUCCESSFUL
    most_s = lifetimes.max_s if successful else lifetimes.max_unavailable_s
    asked_s = freshness_lifetime_s(response.headers, now_wall)
    if asked_s is None:
        asked_s = lifetimes.default_s if successful else lifetimes.max_unavailable_s
    return min(max(asked_s, policy.min_lifetime_s, _TICK_S), most_s)


def _trouble(
    result: AccessResult,
    fault: str,
    answer: FetchResult,
    record: Record | None,
    now_wall: float,
    policy: AccessPolicy,
    jitter: float,
) -> Trouble:
    before = record.trouble if record is not None else None
    if before is not None and now_wall - before.last_wall > _MAX_GAP_S:
        before = None  # after days without a request, nothing is known of the time between
    asked_s = answer.retry_after_s if isinstance(answer, FetchFault) else retry_after_s(answer.headers, now_wall)
    # A host that is closed was not asked: that is no further failure, and it is asked as soon as it opens.
    opens = isinstance(answer, FetchFault) and answer.kind is FaultKind.HOST_CLOSED and asked_s is not None
    failures = 1 if before is None else before.failures + (not opens)
    # A host that answers 429 is not unreachable: each counts days of its own.
    since_wall = before.since_wall if before is not None and before.result is result else now_wall
    wait_s = max(asked_s or 0.0, _MIN_RETRY_S)
    if not opens:
        # The exponent is bounded, so that a year of failures is no overflow.
        backoff_s = min(policy.retry_min_s * 2.0 ** min(failures - 1, 32), policy.retry_max_s)
        wait_s = max(wait_s, min(backoff_s * (1.0 + _JITTER * jitter), policy.retry_max_s))
    retry_wall = now_wall + min(wait_s, _MAX_RETRY_S)
    return Trouble(result, answer.status, answer.final_url, fault, since_wall, now_wall, failures, retry_wall)

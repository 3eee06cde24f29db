"""Answers to the request for robots.txt, and what records of them mean."""

from politesse import CacheOptions
from politesse._cache.options import AccessPolicy
from politesse._cache.outcome import Standing, advance, as_read, standing
from politesse._cache.record import Record
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult
from politesse.robots import Dialect
from politesse.verdict import AccessResult

T0 = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0
URL = "https://example.com/robots.txt"
BODY = b"User-agent: *\nDisallow: /private\n"
POLICY = CacheOptions().policy(Dialect.RFC9309)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def ok(url: str = URL, **headers: str) -> FetchResponse:
    return FetchResponse(200, url, _named(headers), BODY)


def response(status: int, **headers: str) -> FetchResponse:
    return FetchResponse(status, URL, _named(headers))


def not_changed(**headers: str) -> FetchResponse:
    return FetchResponse(304, URL, _named(headers), conditional=True)


def failed(kind: FaultKind = FaultKind.CONNECT) -> FetchFault:
    return FetchFault(kind, "refused", URL)


def record_after(
    *steps: tuple[float, FetchResult],
    policy: AccessPolicy = POLICY,
    jitter: float = 0.0,
    before: Record | None = None,
) -> Record:
    """Return the record after answers, each at so many seconds behind T0; ``before`` is the record before them."""
    record = before
    for seconds, result in steps:
        record = advance(record, result, T0 + seconds, policy, jitter)
    assert record is not None
    return record


def record_of_failures(
    policy: AccessPolicy, until_s: float, *, copied: bool, failure: FetchResult, start_s: float = 0.0
) -> Record:
    """Return the record of a site that failed once an hour from ``start_s`` on, with or without an earlier copy."""
    hours = int((until_s - start_s) // HOUR) + 1
    copy = [(start_s - HOUR, ok())] if copied else []
    return record_after(*copy, *((start_s + hour * HOUR, failure) for hour in range(hours)), policy=policy)


def held_at(record: Record | None, seconds: float, policy: AccessPolicy = POLICY) -> Standing:
    found = standing(as_read(record, policy), URL, T0 + seconds, policy)
    assert found is not None
    return found


def meaning_at(record: Record | None, seconds: float, policy: AccessPolicy = POLICY) -> AccessResult | None:
    """Return the meaning of a record so many seconds behind T0; None if robots.txt must be fetched."""
    found = standing(as_read(record, policy), URL, T0 + seconds, policy)
    return None if found is None else found.source.result

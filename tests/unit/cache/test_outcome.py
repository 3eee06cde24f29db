"""The two tables at the top of outcome.py, row by row, and what time does to a record."""

from __future__ import annotations

from dataclasses import replace
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.options import CacheOptions
from politesse._cache.outcome import (
    AccessPolicy,
    Standing,
    advance,
    classify,
    names_another,
    standing,
)
from politesse._cache.record import Moment, Reckoning, Record
from politesse.ports import FaultKind, FetchFault, FetchResponse, Validators
from politesse.robots import Dialect
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse._cache.record import Copy, Trouble
    from politesse.ports import FetchResult

T0 = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0
URL = "https://example.com/robots.txt"
BODY = b"User-agent: *\nDisallow: /private\n"

POLICY = CacheOptions().policy(Dialect.RFC9309)

STATUSES_OF_NO_RULES = [400, 401, 402, 403, 404, 405, 410, 418, 428, 430, 451, 499]
STATUSES_OF_UNREACHABLE = [500, 501, 502, 503, 504, 505, 511, 520, 599]
STATUSES_OF_NO_MEANING = [100, 101, 199, 206, 300, 301, 302, 304, 305, 306, 399, 600, 700, 999]
FAULTS = [kind for kind in FaultKind if kind not in {FaultKind.REDIRECT_LIMIT, FaultKind.HOST_CLOSED}]


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _ok(url: str = URL, **headers: str) -> FetchResponse:
    return FetchResponse(200, url, _named(headers), BODY)


def _answer(status: int, **headers: str) -> FetchResponse:
    return FetchResponse(status, URL, _named(headers))


def _not_modified(**headers: str) -> FetchResponse:
    return FetchResponse(304, URL, _named(headers), conditional=True)


def _fault(kind: FaultKind = FaultKind.CONNECT) -> FetchFault:
    return FetchFault(kind, "refused", URL)


def _policy(dialect: Dialect = Dialect.RFC9309, **options: object) -> AccessPolicy:
    return CacheOptions(**options).policy(dialect)  # type: ignore[arg-type]


def _after(*steps: tuple[float, FetchResult], policy: AccessPolicy = POLICY, jitter: float = 0.0) -> Record:
    """Return the record after answers, each at so many seconds behind T0."""
    record = None
    for seconds, result in steps:
        record = advance(record, result, T0 + seconds, policy, jitter)
    assert record is not None
    return record


def _copy(record: Record) -> Copy:
    assert record.copy is not None
    return record.copy


def _trouble(record: Record) -> Trouble:
    assert record.trouble is not None
    return record.trouble


def _held(record: Record | None, seconds: float, policy: AccessPolicy = POLICY) -> Standing:
    held = standing(record, URL, T0 + seconds, policy)
    assert held is not None
    return held


def _result(record: Record | None, seconds: float, policy: AccessPolicy = POLICY) -> AccessResult | None:
    """Return what a record stands for so many seconds behind T0; None where robots.txt has to be asked for first."""
    held = standing(record, URL, T0 + seconds, policy)
    return None if held is None else held.source.result


@pytest.mark.clause("RFC 9309 2.3.1.1")
@pytest.mark.parametrize("status", [200, 201, 202, 203, 204, 205, 207, 226, 299])
def test_2xx_but_206_is_successful(status: int) -> None:
    assert classify(_answer(status), POLICY) is AccessResult.SUCCESSFUL


@pytest.mark.clause("RFC 9309 2.3.1.3")
@pytest.mark.parametrize("status", STATUSES_OF_NO_RULES)
def test_4xx_but_429_is_unavailable(status: int) -> None:
    assert classify(_answer(status), POLICY) is AccessResult.UNAVAILABLE


@pytest.mark.parametrize("status", [401, 403])
def test_401_and_403_are_forbidden_where_they_forbid(status: int) -> None:
    assert classify(_answer(status), _policy(on_forbidden="disallow")) is AccessResult.FORBIDDEN


@pytest.mark.parametrize("status", [400, 402, 404, 407, 410, 418, 451])
def test_no_other_4xx_is_forbidden_where_401_and_403_forbid(status: int) -> None:
    assert classify(_answer(status), _policy(on_forbidden="disallow")) is AccessResult.UNAVAILABLE


def test_429_is_too_many_requests() -> None:
    assert classify(_answer(429), POLICY) is AccessResult.TOO_MANY_REQUESTS


def test_429_is_unavailable_where_it_is_a_4xx_like_the_others() -> None:
    assert classify(_answer(429), _policy(on_too_many_requests="allow")) is AccessResult.UNAVAILABLE


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize("status", STATUSES_OF_UNREACHABLE)
def test_5xx_is_unreachable(status: int) -> None:
    assert classify(_answer(status), POLICY) is AccessResult.UNREACHABLE


@pytest.mark.parametrize("status", STATUSES_OF_NO_MEANING)
def test_every_other_status_is_unreachable(status: int) -> None:
    assert classify(_answer(status), POLICY) is AccessResult.UNREACHABLE


def test_only_a_conditional_304_confirms() -> None:
    assert classify(_not_modified(), POLICY) is None
    assert classify(_answer(304), POLICY) is AccessResult.UNREACHABLE


def _old() -> Record:
    """Return a record with both parts: a copy, and a trouble that a further answer keeps or ends."""
    return _after((0, _ok(etag='"old"')), (HOUR, _answer(503)))


@pytest.mark.parametrize("status", [200, 204])
def test_2xx_makes_a_new_successful_copy_and_ends_the_trouble(status: int) -> None:
    response = FetchResponse(status, "https://cdn.example/r.txt", {"etag": '"new"', "last-modified": "then"}, b"new")
    record = advance(_old(), response, T0 + 2 * HOUR, POLICY, 0.0)
    copy = _copy(record)
    assert record.trouble is None
    assert copy.result is AccessResult.SUCCESSFUL
    assert (copy.status, copy.final_url, copy.body) == (status, "https://cdn.example/r.txt", b"new")
    assert (copy.etag, copy.last_modified) == ('"new"', "then")
    assert copy.confirmed_wall == T0 + 2 * HOUR
    assert copy.fault == ""


def test_304_confirms_the_copy_and_ends_the_trouble() -> None:
    record = advance(_old(), _not_modified(), T0 + 2 * HOUR, POLICY, 0.0)
    assert record.trouble is None
    assert _copy(record) == replace(_copy(_old()), confirmed_wall=T0 + 2 * HOUR)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_makes_a_new_forbidden_copy_and_ends_the_trouble(status: int) -> None:
    record = advance(_old(), _answer(status), T0 + 2 * HOUR, _policy(on_forbidden="disallow"), 0.0)
    assert record.trouble is None
    assert (_copy(record).result, _copy(record).status, _copy(record).body) == (AccessResult.FORBIDDEN, status, b"")


def test_429_keeps_the_copy_and_is_trouble() -> None:
    record = advance(_old(), _answer(429), T0 + 2 * HOUR, POLICY, 0.0)
    assert record.copy == _old().copy
    assert _trouble(record).result is AccessResult.TOO_MANY_REQUESTS
    assert _trouble(record).status == 429


@pytest.mark.parametrize("status", STATUSES_OF_NO_RULES)
def test_another_4xx_makes_a_new_unavailable_copy_and_ends_the_trouble(status: int) -> None:
    record = advance(_old(), _answer(status), T0 + 2 * HOUR, POLICY, 0.0)
    assert record.trouble is None
    assert (_copy(record).result, _copy(record).status) == (AccessResult.UNAVAILABLE, status)


@pytest.mark.clause("RFC 9309 2.3.1.2")
def test_too_many_redirects_make_a_new_unavailable_copy_and_end_the_trouble() -> None:
    fault = FetchFault(FaultKind.REDIRECT_LIMIT, "more than 5 redirects", "https://example.com/5", 302)
    record = advance(_old(), fault, T0 + 2 * HOUR, POLICY, 0.0)
    copy = _copy(record)
    assert record.trouble is None
    assert (copy.result, copy.status, copy.final_url) == (AccessResult.UNAVAILABLE, 302, "https://example.com/5")
    assert copy.fault == "more than 5 redirects"


@pytest.mark.parametrize("status", STATUSES_OF_UNREACHABLE + STATUSES_OF_NO_MEANING)
def test_any_other_status_keeps_the_copy_and_is_trouble(status: int) -> None:
    record = advance(_old(), _answer(status), T0 + 2 * HOUR, POLICY, 0.0)
    assert record.copy == _old().copy
    assert _trouble(record).result is AccessResult.UNREACHABLE
    assert _trouble(record).status == status
    assert str(status) in _trouble(record).fault


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize("kind", FAULTS)
def test_any_fault_but_too_many_redirects_keeps_the_copy_and_is_trouble(kind: FaultKind) -> None:
    fault = FetchFault(kind, "what happened", "https://elsewhere.example/", 200)
    record = advance(_old(), fault, T0 + 2 * HOUR, POLICY, 0.0)
    trouble = _trouble(record)
    assert record.copy == _old().copy
    assert trouble.result is AccessResult.UNREACHABLE
    assert (trouble.status, trouble.final_url) == (200, "https://elsewhere.example/")
    assert trouble.fault == f"{kind.value}: what happened"


def test_a_304_to_an_unconditional_request_is_unreachable() -> None:
    record = _after((0, _ok()), (DAY, _answer(304)))
    assert _trouble(record).result is AccessResult.UNREACHABLE
    assert _copy(record).confirmed_wall == T0


def test_a_conditional_304_without_a_copy_is_unreachable() -> None:
    record = _after((0, _not_modified()))
    assert record.copy is None
    assert _result(record, 1) is AccessResult.UNREACHABLE


@pytest.mark.parametrize("status", [401, 404, 410])
def test_only_a_file_has_body_and_validators(status: int) -> None:
    response = FetchResponse(status, URL, {"etag": '"x"', "last-modified": "then"}, b"<html>not found</html>")
    record = _after((0, response))
    assert (_copy(record).body, _copy(record).etag, _copy(record).last_modified) == (b"", "", "")
    assert record.validators is None


@pytest.mark.clause("RFC 9111 4.3.1")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (_ok(etag='"x"'), Validators(URL, '"x"', "")),
        (_ok(last_modified="then"), Validators(URL, "", "then")),
        (_ok(etag='W/"x"', last_modified="then"), Validators(URL, 'W/"x"', "then")),
        (_ok(), None),
        (_ok(etag="", last_modified=""), None),
    ],
)
def test_validators_are_those_of_the_file(answer: FetchResponse, expected: Validators | None) -> None:
    assert _after((0, answer)).validators == expected


def test_validators_belong_to_the_url_that_the_file_came_from() -> None:
    validators = _after((0, _ok("https://cdn.example/r.txt", etag='"x"'))).validators
    assert validators is not None
    assert validators.url == "https://cdn.example/r.txt"


def test_validators_outlive_trouble() -> None:
    assert _after((0, _ok(etag='"x"')), (DAY, _fault())).validators == Validators(URL, '"x"', "")


def test_a_site_without_a_copy_has_no_validators() -> None:
    assert _after((0, _fault())).validators is None


@pytest.mark.clause("RFC 9309 2.4")
@pytest.mark.parametrize(
    ("headers", "lifetime_s"),
    [
        ({}, DAY),
        ({"cache_control": "max-age=604800"}, DAY),
        ({"cache_control": f"max-age={'9' * 100}"}, DAY),
        ({"expires": "Fri, 31 Dec 9999 23:59:59 GMT"}, DAY),
        ({"cache_control": "max-age=86400"}, DAY),
        ({"cache_control": "max-age=600"}, 600.0),
        ({"cache_control": "max-age=3600", "age": "3000"}, 600.0),
        ({"cache_control": "max-age=60"}, MINUTE),
        ({"cache_control": "max-age=59"}, MINUTE),
        ({"cache_control": "max-age=0"}, MINUTE),
        ({"cache_control": "no-cache"}, MINUTE),
        ({"cache_control": "no-store"}, MINUTE),
        ({"expires": "0"}, MINUTE),
        ({"cache_control": "max-age=60", "age": "9999999999"}, MINUTE),
    ],
)
@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_holds_as_its_headers_say_between_a_minute_and_a_day(
    status: int, headers: dict[str, str], lifetime_s: float
) -> None:
    record = _after((0, _answer(status, **headers)))
    assert _copy(record).fresh_until_wall == T0 + lifetime_s
    assert _held(record, lifetime_s - 0.001).until_wall == T0 + lifetime_s
    assert _result(record, lifetime_s) is None


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_an_absence_without_headers_holds_for_a_day(status: int) -> None:
    record = _after((0, _answer(status)))
    assert _result(record, DAY - 1) is AccessResult.UNAVAILABLE
    assert _result(record, DAY) is None


def test_too_many_redirects_hold_for_a_day() -> None:
    record = _after((0, _fault(FaultKind.REDIRECT_LIMIT)))
    assert _result(record, DAY - 1) is AccessResult.UNAVAILABLE
    assert _result(record, DAY) is None


def test_the_least_lifetime_is_an_option() -> None:
    long = _policy(min_lifetime_s=HOUR)
    assert _copy(_after((0, _ok(cache_control="no-cache")), policy=long)).lifetime_s == HOUR
    none = _policy(min_lifetime_s=0.0)
    assert _copy(_after((0, _ok(cache_control="max-age=5")), policy=none)).lifetime_s == 5.0


@pytest.mark.parametrize("result", [_ok(cache_control="no-store"), _answer(404, cache_control="no-store")])
def test_answer_holds_for_its_question_without_a_minimum_lifetime(result: FetchResponse) -> None:
    policy = _policy(min_lifetime_s=0.0)
    record = _after((0, result), policy=policy)
    assert _result(record, 0, policy) is not None
    assert _result(record, 1, policy) is None


def test_answer_is_due_for_refresh_from_nine_tenths_of_its_lifetime() -> None:
    assert _held(_after((0, _ok())), 0).refresh_wall == T0 + 0.9 * DAY
    assert _held(_after((0, _ok(cache_control="max-age=1000"))), 0).refresh_wall == T0 + 900.0
    assert _held(_after((0, _answer(404))), 0).refresh_wall == T0 + 0.9 * DAY


def test_how_early_a_refresh_is_made_is_an_option() -> None:
    never = _policy(refresh_after=1.0)
    held = _held(_after((0, _ok()), policy=never), 0, never)
    assert held.refresh_wall == held.until_wall == T0 + DAY


def test_nothing_is_known_of_nothing() -> None:
    assert standing(None, URL, T0, POLICY) is None


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (_ok(), AccessResult.SUCCESSFUL),
        (_answer(404), AccessResult.UNAVAILABLE),
        (_fault(FaultKind.REDIRECT_LIMIT), AccessResult.UNAVAILABLE),
    ],
)
def test_without_trouble_a_fresh_copy_stands(answer: FetchResult, result: AccessResult) -> None:
    held = _held(_after((0, answer)), HOUR)
    assert held.source.result is result
    assert held.source.robots_url == URL
    assert held.source.fetched_wall == T0
    assert held.source.fresh_until_wall == held.until_wall == T0 + DAY
    assert held.source.not_before is None


def test_a_fresh_refusal_stands() -> None:
    policy = _policy(on_forbidden="disallow")
    assert _result(_after((0, _answer(403)), policy=policy), HOUR, policy) is AccessResult.FORBIDDEN


@pytest.mark.parametrize("answer", [_ok(), _answer(404), _fault(FaultKind.REDIRECT_LIMIT)])
def test_stale_copy_without_trouble_is_fetched(answer: FetchResult) -> None:
    assert _result(_after((0, answer)), DAY) is None
    assert _result(_after((0, answer)), 365 * DAY) is None


@pytest.mark.parametrize(
    ("answer", "result"), [(_ok(), AccessResult.SUCCESSFUL), (_answer(404), AccessResult.UNAVAILABLE)]
)
def test_after_429_a_fresh_copy_serves_until_it_is_stale_and_names_the_wait(
    answer: FetchResponse, result: AccessResult
) -> None:
    record = _after((0, answer), (HOUR, _answer(429, retry_after="120")))
    held = _held(record, HOUR)
    assert held.source.result is result
    assert held.source.not_before == T0 + HOUR + 120
    assert held.refresh_wall == T0 + HOUR + 120
    assert held.until_wall == T0 + DAY
    assert "429" in held.source.fault


def test_after_429_the_wait_is_over_when_it_is_over() -> None:
    record = _after((0, _ok()), (HOUR, _answer(429, retry_after="120")))
    assert _held(record, HOUR + 119).source.not_before == T0 + HOUR + 120
    assert _held(record, HOUR + 120).source.not_before is None
    assert _result(record, HOUR + 120) is AccessResult.SUCCESSFUL


def test_429_without_a_copy_defers_every_page_until_robots_txt_is_fetched() -> None:
    record = _after((0, _answer(429, retry_after="120")))
    held = _held(record, 119)
    assert held.source.result is AccessResult.TOO_MANY_REQUESTS
    assert held.source.not_before == held.until_wall == T0 + 120
    assert _result(record, 120) is None


def test_after_429_a_stale_copy_does_not_serve() -> None:
    record = _after((0, _ok(cache_control="max-age=600")), (700, _answer(429, retry_after="120")))
    assert _result(record, 701) is AccessResult.TOO_MANY_REQUESTS
    assert _result(record, 820) is None


def test_after_429_a_copy_stops_serving_when_it_becomes_stale() -> None:
    record = _after((0, _ok(cache_control="max-age=600")), (550, _answer(429, retry_after="120")))
    assert _result(record, 599) is AccessResult.SUCCESSFUL
    assert _result(record, 600) is AccessResult.TOO_MANY_REQUESTS
    assert _result(record, 670) is None


@pytest.mark.clause("RFC 9309 2.4")
@pytest.mark.parametrize("trouble", [_answer(503), _answer(206), _answer(999), _fault(), _fault(FaultKind.TRUNCATED)])
@pytest.mark.parametrize("lifetime_s", [600, 86_400])
def test_an_unreachable_site_is_served_by_its_file_within_a_day_of_its_confirmation(
    trouble: FetchResult, lifetime_s: int
) -> None:
    record = _after((0, _ok(cache_control=f"max-age={lifetime_s}")), (700, trouble))
    held = _held(record, 700)
    assert held.source.result is AccessResult.SUCCESSFUL
    assert held.source.fetched_wall == T0
    assert held.source.fault != ""
    assert held.until_wall == T0 + DAY
    assert held.refresh_wall == T0 + 700 + 60
    assert held.source.not_before is None
    assert _result(record, DAY - 1) is AccessResult.SUCCESSFUL


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_an_unreachable_site_is_closed_a_day_after_its_file_was_confirmed() -> None:
    record = _after((0, _ok(cache_control="max-age=600")), (DAY - 30, _answer(503)))
    assert _result(record, DAY - 1) is AccessResult.SUCCESSFUL
    held = _held(record, DAY)
    assert held.source.result is AccessResult.UNREACHABLE
    assert held.source.status == 503
    assert held.source.not_before == held.until_wall == held.refresh_wall == T0 + DAY + 30
    assert _result(record, DAY + 30) is None


def test_a_file_from_fresh_through_stale_to_closed() -> None:
    """Fresh for 10 minutes, unreachable from then on, asked for once an hour."""
    record = _after((0, _ok(cache_control="max-age=600")))
    assert _result(record, 599) is AccessResult.SUCCESSFUL
    assert _result(record, 600) is None
    for hour in range(1, 24):
        record = advance(record, _answer(503, retry_after="3600"), T0 + hour * HOUR, POLICY, 0.0)
        assert _result(record, hour * HOUR) is AccessResult.SUCCESSFUL, hour
    for hour in range(24, 72):
        record = advance(record, _answer(503, retry_after="3600"), T0 + hour * HOUR, POLICY, 0.0)
        assert _result(record, hour * HOUR) is AccessResult.UNREACHABLE, hour
    record = advance(record, _ok(), T0 + 72 * HOUR, POLICY, 0.0)
    assert _result(record, 72 * HOUR) is AccessResult.SUCCESSFUL


def test_a_304_begins_the_day_of_grace_anew() -> None:
    record = _after(
        (0, _ok(etag='"x"', cache_control="max-age=600")),
        (12 * HOUR, _not_modified()),
        (35 * HOUR, _answer(503)),
    )
    assert _held(record, 35 * HOUR).until_wall == T0 + 36 * HOUR


def test_how_long_a_file_serves_while_the_site_is_unreachable_is_an_option() -> None:
    policy = _policy(stale_if_unreachable_s=3 * DAY)
    record = _after((0, _ok()), (2 * DAY, _answer(503, retry_after="86400")), policy=policy)
    assert _held(record, 2 * DAY, policy).until_wall == T0 + 3 * DAY
    record = advance(record, _answer(503), T0 + 3 * DAY - 1, policy, 0.0)
    assert _result(record, 3 * DAY - 1, policy) is AccessResult.SUCCESSFUL
    assert _result(record, 3 * DAY, policy) is AccessResult.UNREACHABLE


@pytest.mark.parametrize("absence", [_answer(404), _answer(403), _fault(FaultKind.REDIRECT_LIMIT)])
def test_a_fresh_absence_does_not_serve_an_unreachable_site(absence: FetchResult) -> None:
    """A file may have come into being behind the fault."""
    record = _after((0, absence), (HOUR, _answer(503)))
    assert _result(record, HOUR) is AccessResult.UNREACHABLE
    assert _result(record, HOUR + 60) is None


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize("answer", [_answer(500), _answer(206), _fault(), _fault(FaultKind.DNS), _fault(FaultKind.TLS)])
def test_an_unreachable_site_without_a_copy_is_closed_until_it_is_asked_again(answer: FetchResult) -> None:
    record = _after((0, answer))
    held = _held(record, 59)
    assert held.source.result is AccessResult.UNREACHABLE
    assert held.source.fetched_wall == T0
    assert held.source.not_before == held.until_wall == T0 + 60
    assert _result(record, 60) is None


def _unreachable_for(days: float, policy: AccessPolicy, *before: tuple[float, FetchResult]) -> Record:
    """Return the record of a site that was unreachable once an hour for so many days, from T0 on."""
    record = _after(*before, policy=policy) if before else None
    for hour in range(int(days * 24) + 1):
        record = advance(record, _fault(), T0 + hour * HOUR, policy, 0.0)
    assert record is not None
    return record


def test_a_site_stays_closed_however_long_it_is_unreachable() -> None:
    assert _result(_unreachable_for(31, POLICY), 31 * DAY) is AccessResult.UNREACHABLE
    assert _result(_unreachable_for(365, POLICY), 365 * DAY) is AccessResult.UNREACHABLE


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_where_opted_in_a_site_is_open_that_was_unreachable_for_30_days() -> None:
    policy = _policy(after_grace="allow")
    record = _unreachable_for(30, policy)
    held = _held(record, 30 * DAY, policy)
    assert held.source.result is AccessResult.UNAVAILABLE
    assert held.until_wall == T0 + 30 * DAY + HOUR  # and is asked for again all the same
    assert _result(_unreachable_for(29.9, policy), 29.9 * DAY, policy) is AccessResult.UNREACHABLE


def test_where_opted_in_429_opens_nothing_however_long() -> None:
    policy = _policy(after_grace="allow")
    record = None
    for hour in range(31 * 24):
        record = advance(record, _answer(429), T0 + hour * HOUR, policy, 0.0)
    assert _result(record, 31 * DAY - HOUR, policy) is AccessResult.TOO_MANY_REQUESTS


@pytest.mark.parametrize("settled", [_ok(cache_control="max-age=60"), _answer(404, cache_control="max-age=60")])
def test_the_30_days_begin_anew_after_an_answer(settled: FetchResult) -> None:
    policy = _policy(after_grace="allow")
    record = advance(_unreachable_for(29, policy), settled, T0 + 29 * DAY + 1, policy, 0.0)
    for hour in range(29 * 24 + 1, 31 * 24 + 1):
        record = advance(record, _fault(), T0 + hour * HOUR, policy, 0.0)
    assert _result(record, 31 * DAY, policy) is AccessResult.UNREACHABLE


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_without_headers_renews_the_copy_for_its_old_lifetime() -> None:
    record = _after(
        (0, _ok(etag='"x"', last_modified="then", cache_control="max-age=600")),
        (600, _not_modified()),
    )
    copy = _copy(record)
    assert copy.fresh_until_wall == T0 + 1200
    assert (copy.body, copy.status, copy.etag, copy.last_modified) == (BODY, 200, '"x"', "then")
    assert _held(record, 600).source.fetched_wall == T0 + 600


@pytest.mark.clause("RFC 9111 4.3.4")
@pytest.mark.parametrize(
    ("headers", "lifetime_s"),
    [
        ({"cache_control": "max-age=1800"}, 1800.0),
        ({"cache_control": "max-age=604800"}, DAY),
        ({"cache_control": "no-cache"}, MINUTE),
        ({"expires": "0"}, MINUTE),
    ],
)
def test_304_with_headers_renews_the_copy_as_they_say(headers: dict[str, str], lifetime_s: float) -> None:
    record = _after(
        (0, _ok(etag='"x"', cache_control="max-age=600")),
        (600, _not_modified(**headers)),
    )
    assert _copy(record).fresh_until_wall == T0 + 600 + lifetime_s


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_replaces_only_the_validators_that_it_has() -> None:
    record = _after((0, _ok(etag='"x"', last_modified="then")), (DAY, _not_modified(etag='W/"x"')))
    assert record.validators == Validators(URL, 'W/"x"', "then")
    record = advance(record, _not_modified(etag='"x"', last_modified="now"), T0 + 2 * DAY, POLICY, 0.0)
    assert record.validators == Validators(URL, '"x"', "now")


@pytest.mark.clause("RFC 9110 8.8.3.2")
@pytest.mark.parametrize(
    ("kept", "named", "confirms"),
    [
        ('"x"', '"x"', True),
        ('"x"', 'W/"x"', True),
        ('W/"x"', '"x"', True),
        ('W/"x"', 'W/"x"', True),
        ('"x"', None, True),
        ('"x"', "", True),
        ('"x"', '"\xe9"', False),  # could not be sent back, and is another one all the same
        ("x", "x", True),
        ('"x"', '"y"', False),
        ('"x"', 'W/"y"', False),
        ('W/"x"', '"y"', False),
        ('W/"x"', 'W/"y"', False),
        ('"x"', '"X"', False),
        ('"x"', 'w/"x"', False),
        ('"x"', "x", False),
        (None, None, True),
        (None, '"y"', False),
    ],
)
def test_304_confirms_only_the_copy_whose_entity_tag_it_names(
    kept: str | None, named: str | None, *, confirms: bool
) -> None:
    etag = {} if kept is None else {"etag": kept}
    before = _after((0, _ok(last_modified="then", **etag)))
    not_modified = _not_modified(**{} if named is None else {"etag": named})
    assert before.validators is not None
    assert names_another(not_modified, before.validators) is not confirms
    record = advance(before, not_modified, T0 + HOUR, POLICY, 0.0)
    if confirms:
        assert record.trouble is None
        assert _copy(record).confirmed_wall == T0 + HOUR
    else:
        assert record.copy == before.copy
        assert _trouble(record).result is AccessResult.UNREACHABLE


@pytest.mark.parametrize("answer", [_ok(etag='"y"'), _answer(304, etag='"y"'), _answer(404, etag='"y"'), _fault()])
def test_only_a_304_with_conditions_can_be_about_another_file(answer: FetchResult) -> None:
    assert not names_another(answer, Validators(URL, '"x"', ""))


def _wait(record: Record) -> float:
    return _trouble(record).retry_wall - _trouble(record).last_wall


@pytest.mark.parametrize("answer", [_answer(503), _answer(429), _answer(304), _fault()])
def test_waits_double_from_a_minute_to_an_hour(answer: FetchResult) -> None:
    record, waits = None, []
    for attempt in range(9):
        record = advance(record, answer, T0 + attempt * DAY, POLICY, 0.0)
        waits.append(_wait(record))
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_a_year_of_failures_waits_no_longer_than_an_hour() -> None:
    record = None
    for attempt in range(9_000):
        record = advance(record, _fault(), T0 + attempt * HOUR, POLICY, 0.0)
    assert record is not None
    assert _trouble(record).failures == 9_000
    assert _wait(record) == HOUR


@given(st.floats(0.0, 1.0))
def test_jitter_lengthens_a_wait_by_a_tenth_at_most_and_never_shortens_it(jitter: float) -> None:
    assert 60.0 <= _wait(_after((0, _fault()), jitter=jitter)) <= 66.0


def test_jitter_spreads_waits() -> None:
    assert len({_wait(_after((0, _fault()), jitter=jitter)) for jitter in (0.0, 0.25, 0.5, 1.0)}) == 4


def test_the_waits_are_options() -> None:
    policy = _policy(retry_min_s=10.0, retry_max_s=30.0)
    record, waits = None, []
    for attempt in range(4):
        record = advance(record, _fault(), T0 + attempt * HOUR, policy, 0.0)
        waits.append(_wait(record))
    assert waits == [10, 20, 30, 30]


@pytest.mark.clause("RFC 9110 10.2.3")
@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("120", 120.0),
        ("7200", 7200.0),
        ("86400", DAY),
        ("86401", DAY),
        ("9" * 400, DAY),
        ("Fri, 15 Jan 2027 08:10:00 GMT", 600.0),
        ("Friday, 15-Jan-27 08:10:00 GMT", 600.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
    ],
)
def test_retry_after_is_waited_for_up_to_a_day(status: int, value: str, wait_s: float) -> None:
    for jitter in (0.0, 1.0):
        assert _wait(_after((0, _answer(status, retry_after=value)), jitter=jitter)) == wait_s


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("value", ["0", "1", "59", "Fri, 15 Jan 2027 08:00:00 GMT", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_retry_after_is_never_sooner_than_our_own_backoff(status: int, value: str) -> None:
    record, waits = None, []
    for attempt in range(9):
        record = advance(record, _answer(status, retry_after=value), T0 + attempt * HOUR, POLICY, 0.0)
        waits.append(_wait(record))
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert _wait(_after((0, _answer(status, retry_after=value)), jitter=1.0)) == 66.0


@pytest.mark.parametrize("behind_s", [-DAY, -600.0, 600.0, DAY])
def test_retry_after_as_a_date_is_waited_for_whatever_the_clock_of_the_server(behind_s: float) -> None:
    date, retry_after = (formatdate(T0 - behind_s + wait_s, usegmt=True) for wait_s in (0, 300))
    assert _wait(_after((0, _answer(503, date=date, retry_after=retry_after)))) == 300.0


def test_no_wait_is_shorter_than_a_second_whatever_the_options() -> None:
    policy = _policy(retry_min_s=0.001, retry_max_s=0.001)
    assert _wait(_after((0, _answer(503, retry_after="0")), policy=policy)) == 1.0
    assert _wait(_after((0, _fault()), policy=policy)) == 1.0


@pytest.mark.parametrize("value", ["", "soon", "-5", "1.5"])
def test_unparsable_retry_after_does_not_change_the_backoff(value: str) -> None:
    record = _after((0, _answer(503)), (HOUR, _answer(503, retry_after=value)))
    assert _wait(record) == 120.0


def test_a_wait_that_the_server_named_counts_as_a_failure_for_the_next() -> None:
    record = _after((0, _answer(503, retry_after="5")), (10, _answer(503, retry_after="5")), (20, _answer(503)))
    assert _wait(record) == 240.0


def test_429_and_503_in_turn_go_on_doubling() -> None:
    record = _after((0, _answer(503)), (HOUR, _answer(429)), (2 * HOUR, _fault()))
    assert _trouble(record).failures == 3
    assert _wait(record) == 240.0


@pytest.mark.parametrize(
    "settled",
    [_ok(cache_control="max-age=60"), _answer(204), _answer(404), _answer(403), _fault(FaultKind.REDIRECT_LIMIT)],
)
def test_an_answer_that_settles_something_resets_the_failures(settled: FetchResult) -> None:
    record = _after((0, _fault()), (HOUR, _fault()), (2 * HOUR, settled), (2 * DAY, _fault()))
    assert _trouble(record).failures == 1
    assert _trouble(record).since_wall == T0 + 2 * DAY
    assert _wait(record) == 60.0


def test_a_304_resets_the_failures() -> None:
    record = _after((0, _ok(etag='"x"')), (DAY, _fault()), (DAY + HOUR, _not_modified()), (2 * DAY, _fault()))
    assert _trouble(record).failures == 1


def test_failures_in_a_row_are_counted_from_the_first() -> None:
    record = _after((0, _fault()), (HOUR, _answer(503)), (2 * HOUR, _fault(FaultKind.TLS)))
    trouble = _trouble(record)
    assert (trouble.failures, trouble.since_wall, trouble.last_wall) == (3, T0, T0 + 2 * HOUR)
    assert trouble.fault.startswith("tls")


def test_rfc_9309_reads_401_and_403_as_any_4xx() -> None:
    assert not Dialect.RFC9309.traits.outcomes.forbidden_disallows
    assert _result(_after((0, _answer(403))), 1) is AccessResult.UNAVAILABLE


_ANSWERS: st.SearchStrategy[FetchResult] = st.one_of(
    st.builds(
        FetchResponse,
        st.integers(100, 999),
        st.just(URL),
        st.dictionaries(
            st.sampled_from(["cache-control", "expires", "age", "retry-after", "etag"]),
            st.sampled_from(
                ["max-age=0", "max-age=600", "max-age=99999999", "no-store", "0", "120", "9" * 30, "", "x"]
            ),
        ),
        st.just(BODY),
        conditional=st.booleans(),
    ),
    st.builds(FetchFault, st.sampled_from(FaultKind), st.just("why"), st.just(URL)),
)
_HISTORIES = st.lists(st.tuples(st.floats(0.0, 3 * DAY), _ANSWERS), min_size=1, max_size=8)
_POLICIES = st.sampled_from(
    [
        POLICY,
        _policy(on_forbidden="disallow"),
        _policy(min_lifetime_s=0.0),
        _policy(after_grace="allow"),
        _policy(stale_if_unreachable_s=30 * DAY),
        _policy(on_too_many_requests="allow"),
        _policy(refresh_after=0.0),
    ]
)


@given(_HISTORIES, _POLICIES, st.floats(0.0, 1.0), st.floats(0.0, 40 * DAY))
def test_every_history_stands_for_something_now_and_for_nothing_beyond_its_end(
    history: list[tuple[float, FetchResult]], policy: AccessPolicy, jitter: float, later: float
) -> None:
    record, now_wall = None, T0
    for pause, result in history:
        now_wall += pause
        record = advance(record, result, now_wall, policy, jitter)
        held = standing(record, URL, now_wall, policy)
        assert held is not None
        assert now_wall < held.until_wall
    assert record is not None
    moment = now_wall + later
    held = standing(record, URL, moment, policy)
    if held is not None:
        assert moment < held.until_wall
        assert held.source.not_before is None or moment < held.source.not_before
    if record.copy is not None and moment >= record.copy.confirmed_wall + policy.outcomes.grace.stale_s:
        assert held is None or held.source.result is not AccessResult.SUCCESSFUL


@given(_HISTORIES, st.floats(0.0, 1.0))
def test_no_history_allows_without_an_answer_that_allows(
    history: list[tuple[float, FetchResult]], jitter: float
) -> None:
    """The gate is open (SUCCESSFUL, UNAVAILABLE) only on the word of a 2xx, a 4xx or too many redirects."""
    record, now_wall, said = None, T0, False
    for pause, result in history:
        now_wall += pause
        if isinstance(result, FetchFault):
            said = said or result.kind is FaultKind.REDIRECT_LIMIT
        else:
            said = said or (200 <= result.status <= 299 and result.status != 206)
            said = said or (400 <= result.status <= 499 and result.status != 429)
        record = advance(record, result, now_wall, POLICY, jitter)
        if not said:
            assert _held(record, now_wall - T0).source.result in {
                AccessResult.UNREACHABLE,
                AccessResult.TOO_MANY_REQUESTS,
            }


@pytest.mark.parametrize("answer", [_ok(), _answer(404), _answer(503), _answer(429)])
def test_record_that_a_wrong_clock_dated_in_the_future_stands_for_nothing(answer: FetchResponse) -> None:
    record = advance(None, answer, T0 + 365 * DAY, POLICY, 0.0)
    assert standing(record, URL, T0, POLICY) is None
    assert standing(record, URL, T0 + 365 * DAY - MINUTE, POLICY) is not None


def test_host_that_is_closed_defers_until_it_opens() -> None:
    fault = FetchFault(FaultKind.HOST_CLOSED, "has asked to be left alone", URL, retry_after_s=500.0)
    held = standing(advance(None, fault, T0, POLICY, 0.0), URL, T0, POLICY)
    assert held is not None
    assert held.source.result is AccessResult.TOO_MANY_REQUESTS
    assert held.source.not_before == T0 + 500


def test_closed_host_is_retried_when_it_opens_and_counts_no_further_failure() -> None:
    closed = FetchFault(FaultKind.HOST_CLOSED, "has asked to be left alone", URL, retry_after_s=5.0)
    record = _after((0, _answer(503)), (60, closed), (65, closed))
    assert _wait(record) == 5.0
    assert _wait(advance(record, _answer(503), T0 + 70, POLICY, 0.0)) == 120.0


@pytest.mark.parametrize("answer", [_ok(), _answer(404), _answer(503, retry_after="3600"), _answer(429)])
def test_record_of_a_clock_that_was_ahead_holds_no_longer_than_one_of_now(answer: FetchResponse) -> None:
    ahead, ours = (advance(None, answer, T0 + seconds, POLICY, 0.0) for seconds in (200, 0))
    held, expected = (standing(record, URL, T0, POLICY) for record in (ahead, ours))
    assert held == expected


def test_absence_of_a_file_keeps_no_copy_that_is_dated_in_the_future() -> None:
    policy = CacheOptions().policy(Dialect.KOSTER_2019)
    assert policy.outcomes.unavailable_copy_s > 0
    record = advance(advance(None, _ok(), T0 + 365 * DAY, policy, 0.0), _answer(404), T0, policy, 0.0)
    assert (_copy(record).result, record.trouble) == (AccessResult.UNAVAILABLE, None)


_SETTLED = st.sampled_from([_ok(), _ok(cache_control="max-age=3600"), _answer(404), _answer(503, retry_after="7200")])
_STEPS = st.lists(
    st.tuples(st.sampled_from([HOUR, 6 * HOUR, DAY]), st.sampled_from([0.0, -0.5, -1.0, -2.0, 1.0]), st.booleans()),
    min_size=1,
    max_size=6,
)


@given(_SETTLED, _POLICIES, _STEPS)
def test_no_record_is_younger_than_either_clock_says_however_the_wall_clock_is_set(
    answer: FetchResult, policy: AccessPolicy, steps: list[tuple[float, float, bool]]
) -> None:
    """Time passes, then the wall clock is set by a part of it; a record may be kept as it was judged, or as it was."""
    now = Moment("run", T0, 0.0)
    record = replace(advance(None, answer, now.wall, policy, 0.0), moment=now)
    held = standing(record, URL, now.wall, policy)
    assert held is not None
    longest_s = held.until_wall - held.at_wall
    for passed_s, part, kept in steps:
        now = Moment("run", now.wall + passed_s + part * passed_s, now.mono + passed_s)
        judged = Reckoning("run").reckoned(record, now)
        held = standing(judged, URL, now.wall, policy)
        assert held is None or now.mono < longest_s + 0.01 * len(steps)
        assert held is None or now.wall - T0 < longest_s + 0.01 * len(steps)
        if kept:
            record = judged

"""The two tables at the top of outcome.py, row by row, and the effect of time on a record."""

from collections.abc import Iterable
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse import CacheOptions
from politesse._cache.options import AccessPolicy
from politesse._cache.outcome import advance, standing
from politesse._cache.record import ClockCorrection, Copy, Moment, Record, Trouble
from politesse._http.freshness import names_another
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult, Validators
from politesse.robots import Dialect
from politesse.verdict import AccessResult
from tests.rules.cache.answers import (
    BODY,
    DAY,
    HOUR,
    MINUTE,
    POLICY,
    T0,
    URL,
    failed,
    held_at,
    meaning_at,
    not_changed,
    ok,
    record_after,
    response,
)

STATUSES_OF_NO_RULES = [400, 401, 402, 403, 404, 405, 410, 418, 428, 430, 451, 499]
STATUSES_OF_UNREACHABLE = [500, 501, 502, 503, 504, 505, 511, 520, 599]
STATUSES_OF_NO_MEANING = [100, 101, 199, 206, 300, 301, 302, 304, 305, 306, 399, 600, 700, 999]
FAULTS = [kind for kind in FaultKind if kind not in {FaultKind.REDIRECT_LIMIT, FaultKind.HOST_CLOSED}]


def _policy(dialect: Dialect = Dialect.RFC9309, **options: object) -> AccessPolicy:
    return CacheOptions(**options).policy(dialect)  # type: ignore[arg-type]


def _copy(record: Record) -> Copy:
    assert record.copy is not None
    return record.copy


def _trouble(record: Record) -> Trouble:
    assert record.trouble is not None
    return record.trouble


FORBIDDING = _policy(on_forbidden="disallow")
MEANINGS = [
    (POLICY, range(200, 300), AccessResult.SUCCESSFUL),
    (POLICY, STATUSES_OF_NO_RULES, AccessResult.UNAVAILABLE),
    (POLICY, [429], AccessResult.TOO_MANY_REQUESTS),
    (POLICY, [*STATUSES_OF_UNREACHABLE, *STATUSES_OF_NO_MEANING], AccessResult.UNREACHABLE),
    (FORBIDDING, [401, 403], AccessResult.FORBIDDEN),
    (FORBIDDING, [400, 402, 404, 407, 410, 418, 451], AccessResult.UNAVAILABLE),
    (_policy(on_too_many_requests="allow"), [429], AccessResult.UNAVAILABLE),
]


@pytest.mark.clause("RFC 9309 2.3.1.1")
@pytest.mark.clause("RFC 9309 2.3.1.3")
@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize(("policy", "statuses", "meaning"), MEANINGS)
def test_each_status_has_a_meaning(policy: AccessPolicy, statuses: Iterable[int], meaning: AccessResult) -> None:
    for status in set(statuses) - {206 if meaning is AccessResult.SUCCESSFUL else 0}:
        assert policy.classify(response(status)) is meaning, status
    assert policy.classify(not_changed()) is None


def _old() -> Record:
    """Return a record with both parts: a copy, and a trouble that a further answer keeps or ends."""
    return record_after((0, ok(etag='"old"')), (HOUR, response(503)))


ELSEWHERE = "https://cdn.example/r.txt"


@pytest.mark.clause("RFC 9309 2.3.1.2")
@pytest.mark.parametrize(
    ("answer", "copy"),
    [
        (
            FetchResponse(200, ELSEWHERE, {"etag": '"new"', "last-modified": "then"}, b"new"),
            (AccessResult.SUCCESSFUL, 200, ELSEWHERE, b"new", '"new"', "then"),
        ),
        (FetchResponse(204, URL), (AccessResult.SUCCESSFUL, 204, URL, b"", "", "")),
        (not_changed(), (AccessResult.SUCCESSFUL, 200, URL, BODY, '"old"', "")),
        # Only a file has a body and validators.
        (FetchResponse(404, URL, {"etag": '"x"'}, b"<html>"), (AccessResult.UNAVAILABLE, 404, URL, b"", "", "")),
        (response(403), (AccessResult.FORBIDDEN, 403, URL, b"", "", "")),
        (
            FetchFault(FaultKind.REDIRECT_LIMIT, "more than 5 redirects", ELSEWHERE, 302),
            (AccessResult.UNAVAILABLE, 302, ELSEWHERE, b"", "", ""),
        ),
    ],
)
def test_an_answer_that_settles_something_makes_a_copy_and_ends_the_trouble(
    answer: FetchResult, copy: tuple[AccessResult, int, str, bytes, str, str]
) -> None:
    record = advance(_old(), answer, T0 + 2 * HOUR, FORBIDDING, 0.0)
    new = _copy(record)
    assert record.trouble is None
    assert (new.result, new.status, new.final_url, new.body, new.etag, new.last_modified) == copy
    assert new.confirmed_wall == T0 + 2 * HOUR
    assert new.fault == (answer.detail if isinstance(answer, FetchFault) else "")


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize(
    ("answer", "result", "fault"),
    [
        (response(429), AccessResult.TOO_MANY_REQUESTS, "status 429"),
        *((response(status), AccessResult.UNREACHABLE, f"status {status}") for status in (500, 503, 206, 304, 999)),
        *(
            (
                FetchFault(kind, "what happened", ELSEWHERE, 200),
                AccessResult.UNREACHABLE,
                f"{kind.value}: what happened",
            )
            for kind in FAULTS
        ),
    ],
)
def test_an_answer_that_settles_nothing_keeps_the_copy_and_is_trouble(
    answer: FetchResult, result: AccessResult, fault: str
) -> None:
    record = advance(_old(), answer, T0 + 2 * HOUR, POLICY, 0.0)
    trouble = _trouble(record)
    assert record.copy == _old().copy
    assert (trouble.result, trouble.status, trouble.final_url) == (result, answer.status, answer.final_url)
    assert trouble.fault.endswith(fault)


def test_a_conditional_304_without_a_copy_is_unreachable() -> None:
    record = record_after((0, not_changed()))
    assert record.copy is None
    assert meaning_at(record, 1) is AccessResult.UNREACHABLE


@pytest.mark.clause("RFC 9111 4.3.1")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ok(etag='"x"'), Validators(URL, '"x"', "")),
        (ok(last_modified="then"), Validators(URL, "", "then")),
        (ok(ELSEWHERE, etag='W/"x"', last_modified="then"), Validators(ELSEWHERE, 'W/"x"', "then")),
        (ok(etag="", last_modified=""), None),
        (failed(), None),
    ],
)
def test_validators_are_those_of_the_file_and_outlive_trouble(answer: FetchResult, expected: Validators | None) -> None:
    assert record_after((0, answer)).validators == expected
    assert record_after((0, answer), (DAY, failed())).validators == expected


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
        ({"cache_control": "max-age=3600", "date": formatdate(T0 - 3000, usegmt=True)}, 600.0),
        ({"cache_control": "max-age=3600", "date": formatdate(T0 + 3000, usegmt=True)}, HOUR),
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
    record = record_after((0, response(status, **headers)))
    assert _copy(record).fresh_until_wall == T0 + lifetime_s
    assert held_at(record, lifetime_s - 0.001).until_wall == T0 + lifetime_s
    assert meaning_at(record, lifetime_s) is None


def test_the_least_lifetime_is_an_option() -> None:
    long = _policy(min_lifetime_s=HOUR)
    assert _copy(record_after((0, ok(cache_control="no-cache")), policy=long)).lifetime_s == HOUR
    none = _policy(min_lifetime_s=0.0)
    assert _copy(record_after((0, ok(cache_control="max-age=5")), policy=none)).lifetime_s == 5.0


@pytest.mark.parametrize("result", [ok(cache_control="no-store"), response(404, cache_control="no-store")])
def test_answer_holds_for_its_question_without_a_minimum_lifetime(result: FetchResponse) -> None:
    policy = _policy(min_lifetime_s=0.0)
    record = record_after((0, result), policy=policy)
    assert meaning_at(record, 0, policy) is not None
    assert meaning_at(record, 1, policy) is None


def test_answer_is_due_for_refresh_from_nine_tenths_of_its_lifetime() -> None:
    assert held_at(record_after((0, ok())), 0).refresh_wall == T0 + 0.9 * DAY
    assert held_at(record_after((0, ok(cache_control="max-age=1000"))), 0).refresh_wall == T0 + 900.0
    assert held_at(record_after((0, response(404))), 0).refresh_wall == T0 + 0.9 * DAY


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (ok(), AccessResult.SUCCESSFUL),
        (response(404), AccessResult.UNAVAILABLE),
        (failed(FaultKind.REDIRECT_LIMIT), AccessResult.UNAVAILABLE),
    ],
)
def test_without_trouble_a_fresh_copy_stands(answer: FetchResult, result: AccessResult) -> None:
    held = held_at(record_after((0, answer)), HOUR)
    assert held.source.result is result
    assert held.source.robots_url == URL
    assert held.source.fetched_wall == T0
    assert held.source.fresh_until_wall == held.until_wall == T0 + DAY
    assert held.source.not_before is None


@pytest.mark.parametrize(
    ("answer", "result"), [(ok(), AccessResult.SUCCESSFUL), (response(404), AccessResult.UNAVAILABLE)]
)
def test_after_429_a_fresh_copy_serves_until_it_is_stale_and_names_the_wait(
    answer: FetchResponse, result: AccessResult
) -> None:
    record = record_after((0, answer), (HOUR, response(429, retry_after="120")))
    held = held_at(record, HOUR)
    assert held.source.result is result
    assert held.source.not_before == T0 + HOUR + 120
    assert held.refresh_wall == T0 + HOUR + 120
    assert held.until_wall == T0 + DAY
    assert "429" in held.source.fault


def test_429_without_a_copy_defers_every_page_until_robots_txt_is_fetched() -> None:
    record = record_after((0, response(429, retry_after="120")))
    held = held_at(record, 119)
    assert held.source.result is AccessResult.TOO_MANY_REQUESTS
    assert held.source.not_before == held.until_wall == T0 + 120
    assert meaning_at(record, 120) is None


@pytest.mark.clause("RFC 9309 2.4")
@pytest.mark.parametrize(
    "trouble", [response(503), response(206), response(999), failed(), failed(FaultKind.TRUNCATED)]
)
@pytest.mark.parametrize("lifetime_s", [600, 86_400])
def test_an_unreachable_site_is_served_by_its_file_within_a_day_of_its_confirmation(
    trouble: FetchResult, lifetime_s: int
) -> None:
    record = record_after((0, ok(cache_control=f"max-age={lifetime_s}")), (700, trouble))
    held = held_at(record, 700)
    assert held.source.result is AccessResult.SUCCESSFUL
    assert held.source.fetched_wall == T0
    assert held.source.fault != ""
    assert held.until_wall == T0 + DAY
    assert held.refresh_wall == T0 + 700 + 60
    assert held.source.not_before is None
    assert meaning_at(record, DAY - 1) is AccessResult.SUCCESSFUL


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_an_unreachable_site_is_closed_a_day_after_its_file_was_confirmed() -> None:
    record = record_after((0, ok(cache_control="max-age=600")), (DAY - 30, response(503)))
    assert meaning_at(record, DAY - 1) is AccessResult.SUCCESSFUL
    held = held_at(record, DAY)
    assert held.source.result is AccessResult.UNREACHABLE
    assert held.source.status == 503
    assert held.source.not_before == held.until_wall == held.refresh_wall == T0 + DAY + 30
    assert meaning_at(record, DAY + 30) is None


def test_how_long_a_file_serves_while_the_site_is_unreachable_is_an_option() -> None:
    policy = _policy(stale_if_unreachable_s=3 * DAY)
    record = record_after((0, ok()), (2 * DAY, response(503, retry_after="86400")), policy=policy)
    assert held_at(record, 2 * DAY, policy).until_wall == T0 + 3 * DAY
    record = advance(record, response(503), T0 + 3 * DAY - 1, policy, 0.0)
    assert meaning_at(record, 3 * DAY - 1, policy) is AccessResult.SUCCESSFUL
    assert meaning_at(record, 3 * DAY, policy) is AccessResult.UNREACHABLE


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize(
    "answer", [response(500), response(206), failed(), failed(FaultKind.DNS), failed(FaultKind.TLS)]
)
def test_an_unreachable_site_without_a_copy_is_closed_until_it_is_asked_again(answer: FetchResult) -> None:
    record = record_after((0, answer))
    held = held_at(record, 59)
    assert held.source.result is AccessResult.UNREACHABLE
    assert held.source.fetched_wall == T0
    assert held.source.not_before == held.until_wall == T0 + 60
    assert meaning_at(record, 60) is None


def _unreachable_for(days: float, policy: AccessPolicy, *before: tuple[float, FetchResult]) -> Record:
    """Return the record of a site that was unreachable once an hour for so many days, from T0 on."""
    record = record_after(*before, policy=policy) if before else None
    for hour in range(int(days * 24) + 1):
        record = advance(record, failed(), T0 + hour * HOUR, policy, 0.0)
    assert record is not None
    return record


def test_a_site_stays_closed_however_long_it_is_unreachable() -> None:
    assert meaning_at(_unreachable_for(31, POLICY), 31 * DAY) is AccessResult.UNREACHABLE
    assert meaning_at(_unreachable_for(365, POLICY), 365 * DAY) is AccessResult.UNREACHABLE


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_without_headers_renews_the_copy_for_its_old_lifetime() -> None:
    record = record_after((0, ok(etag='"x"', last_modified="then", cache_control="max-age=600")), (600, not_changed()))
    copy = _copy(record)
    assert copy.fresh_until_wall == T0 + 1200
    assert (copy.body, copy.status, copy.etag, copy.last_modified) == (BODY, 200, '"x"', "then")
    assert held_at(record, 600).source.fetched_wall == T0 + 600


@pytest.mark.clause("RFC 9111 4.3.4")
@pytest.mark.parametrize(
    ("headers", "lifetime_s"),
    [
        ({"cache_control": "max-age=1800"}, 1800.0),
        ({"cache_control": "max-age=1800", "age": "100"}, 1700.0),
        ({"cache_control": "max-age=604800"}, DAY),
        ({"cache_control": "no-cache"}, MINUTE),
        ({"expires": "0"}, MINUTE),
    ],
)
def test_304_with_headers_renews_the_copy_as_they_say(headers: dict[str, str], lifetime_s: float) -> None:
    record = record_after((0, ok(etag='"x"', cache_control="max-age=600")), (600, not_changed(**headers)))
    assert _copy(record).fresh_until_wall == T0 + 600 + lifetime_s


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_replaces_only_the_validators_that_it_has() -> None:
    record = record_after((0, ok(etag='"x"', last_modified="then")), (DAY, not_changed(etag='W/"x"')))
    assert record.validators == Validators(URL, 'W/"x"', "then")
    record = advance(record, not_changed(etag='"x"', last_modified="now"), T0 + 2 * DAY, POLICY, 0.0)
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
        ('"x"', '"\xe9"', False),  # could not be sent back, and differs
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
    before = record_after((0, ok(last_modified="then", **etag)))
    not_modified = not_changed(**{} if named is None else {"etag": named})
    assert before.validators is not None
    assert names_another(not_modified, before.validators) is not confirms
    record = advance(before, not_modified, T0 + HOUR, POLICY, 0.0)
    if confirms:
        assert record.trouble is None
        assert _copy(record).confirmed_wall == T0 + HOUR
    else:
        assert record.copy == before.copy
        assert _trouble(record).result is AccessResult.UNREACHABLE


def _wait(record: Record) -> float:
    return _trouble(record).retry_wall - _trouble(record).last_wall


SHORT = ["0", "1", "59", "Fri, 15 Jan 2027 08:00:00 GMT", "Wed, 21 Oct 2015 07:28:00 GMT"]


@pytest.mark.parametrize(
    "answer",
    [
        *(response(status) for status in (503, 429, 304)),
        failed(),
        *(response(status, retry_after=value) for status in (429, 500) for value in SHORT),
        response(503, retry_after=SHORT[-1], date="yesterday"),
    ],
)
def test_waits_double_from_a_minute_to_an_hour_whatever_retry_after_says(answer: FetchResult) -> None:
    record, waits = None, []
    for attempt in range(9):
        record = advance(record, answer, T0 + attempt * HOUR, POLICY, 0.0)
        waits.append(_wait(record))
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_the_waits_are_options() -> None:
    policy = _policy(retry_min_s=10.0, retry_max_s=30.0)
    record, waits = None, []
    for attempt in range(4):
        record = advance(record, failed(), T0 + attempt * HOUR, policy, 0.0)
        waits.append(_wait(record))
    assert waits == [10, 20, 30, 30]


@given(st.floats(0.0, 1.0))
def test_jitter_lengthens_a_wait_by_a_tenth_at_most_and_never_shortens_it(jitter: float) -> None:
    assert 60.0 <= _wait(record_after((0, failed()), jitter=jitter)) <= 66.0


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
        assert _wait(record_after((0, response(status, retry_after=value)), jitter=jitter)) == wait_s


@pytest.mark.parametrize("behind_s", [-DAY, -600.0, 600.0, DAY])
def test_retry_after_as_a_date_is_waited_for_whatever_the_clock_of_the_server(behind_s: float) -> None:
    date, retry_after = (formatdate(T0 - behind_s + wait_s, usegmt=True) for wait_s in (0, 300))
    assert _wait(record_after((0, response(503, date=date, retry_after=retry_after)))) == 300.0


def test_no_wait_is_shorter_than_a_second_whatever_the_options() -> None:
    policy = _policy(retry_min_s=0.001, retry_max_s=0.001)
    assert _wait(record_after((0, response(503, retry_after="0")), policy=policy)) == 1.0
    assert _wait(record_after((0, failed()), policy=policy)) == 1.0


@pytest.mark.parametrize(
    "settled",
    [ok(cache_control="max-age=60"), response(204), response(404), response(403), failed(FaultKind.REDIRECT_LIMIT)],
)
def test_an_answer_that_settles_something_resets_the_failures(settled: FetchResult) -> None:
    record = record_after((0, failed()), (HOUR, failed()), (2 * HOUR, settled), (2 * DAY, failed()))
    assert _trouble(record).failures == 1
    assert _trouble(record).since_wall == T0 + 2 * DAY
    assert _wait(record) == 60.0


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
            assert held_at(record, now_wall - T0).source.result in {
                AccessResult.UNREACHABLE,
                AccessResult.TOO_MANY_REQUESTS,
            }


@pytest.mark.parametrize("answer", [ok(), response(404), response(503), response(429)])
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
    record = record_after((0, response(503)), (60, closed), (65, closed))
    assert _wait(record) == 5.0
    assert _wait(advance(record, response(503), T0 + 70, POLICY, 0.0)) == 120.0


@pytest.mark.parametrize("answer", [ok(), response(404), response(503, retry_after="3600"), response(429)])
def test_record_of_a_clock_that_was_ahead_holds_no_longer_than_one_of_now(answer: FetchResponse) -> None:
    ahead, ours = (advance(None, answer, T0 + seconds, POLICY, 0.0) for seconds in (200, 0))
    held, expected = (standing(record, URL, T0, POLICY) for record in (ahead, ours))
    assert held == expected


def test_absence_of_a_file_keeps_no_copy_that_is_dated_in_the_future() -> None:
    policy = CacheOptions().policy(Dialect.KOSTER_2019)
    assert policy.outcomes.unavailable_copy_s > 0
    record = advance(advance(None, ok(), T0 + 365 * DAY, policy, 0.0), response(404), T0, policy, 0.0)
    assert (_copy(record).result, record.trouble) == (AccessResult.UNAVAILABLE, None)


_SETTLED = st.sampled_from([ok(), ok(cache_control="max-age=3600"), response(404), response(503, retry_after="7200")])
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
    record = advance(None, answer, now.wall, policy, 0.0)._replace(moment=now)
    held = standing(record, URL, now.wall, policy)
    assert held is not None
    longest_s = held.until_wall - held.at_wall
    for passed_s, part, kept in steps:
        now = Moment("run", now.wall + passed_s + part * passed_s, now.mono + passed_s)
        judged = ClockCorrection(now).corrected(record, now)
        held = standing(judged, URL, now.wall, policy)
        assert held is None or now.mono < longest_s + 0.01 * len(steps)
        assert held is None or now.wall - T0 < longest_s + 0.01 * len(steps)
        if kept:
            record = judged

"""The two tables at the top of outcome.py, row by row, the effect of time on a record, and what dialects change."""

from email.utils import formatdate
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse import CacheOptions
from politesse._cache import outcome
from politesse._cache.options import AccessPolicy
from politesse._cache.outcome import ClockCorrection, Copy, DefiniteAnswer, Moment, Record, Trouble, as_read, judged
from politesse._http.freshness import names_another
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult, Validators
from politesse.robots import Dialect
from politesse.verdict import AccessResult, Source

T0 = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0
URL = "https://example.com/robots.txt"
ELSEWHERE = "https://cdn.example/r.txt"
BODY = b"User-agent: *\nDisallow: /private\n"
POLICIES = {dialect: CacheOptions().policy(dialect) for dialect in Dialect}
POLICY = POLICIES[Dialect.RFC9309]
GOOGLE = POLICIES[Dialect.GOOGLE]
KOSTER_1996 = POLICIES[Dialect.KOSTER_1996]
KOSTER_2019 = POLICIES[Dialect.KOSTER_2019]
SUCCESSFUL, UNAVAILABLE, UNREACHABLE = AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE, AccessResult.UNREACHABLE


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


class Standing(NamedTuple):
    """What a copy means, with its deadlines by the wall clock."""

    source: Source
    at_wall: float
    until_wall: float
    refresh_wall: float


def at(wall: float) -> Moment:
    """Return a moment at which both clocks show the same."""
    return Moment("run", wall, wall)


def advance(copy: Copy | None, result: FetchResult, now_wall: float, policy: AccessPolicy, jitter: float) -> Copy:
    before = Copy.of_record(Origin.of(URL), "/robots.txt", Record(None, None)) if copy is None else copy
    return outcome.advance(before, result, at(now_wall), policy, jitter)


def standing(copy: Copy | None, now_wall: float, policy: AccessPolicy) -> Standing | None:
    """Return what a copy means at a moment; None if robots.txt must be fetched."""
    held = None if copy is None else judged(copy, at(now_wall), policy)
    return None if held is None else Standing(held.source, now_wall, held.deadline_mono, held.refresh_mono)


def record_after(
    *steps: tuple[float, FetchResult], policy: AccessPolicy = POLICY, jitter: float = 0.0, before: Copy | None = None
) -> Copy:
    """Return the record after answers, each at so many seconds behind T0; ``before`` is the record before them."""
    record = before
    for seconds, result in steps:
        record = advance(record, result, T0 + seconds, policy, jitter)
    assert record is not None
    return record


def record_of_failures(policy: AccessPolicy, until_s: float, failure: FetchResult, *, copied: bool) -> Copy:
    """Return the record of a site that failed once an hour from T0 on, with or without an earlier copy."""
    copy = [(-HOUR, ok())] if copied else []
    return record_after(*copy, *((hour * HOUR, failure) for hour in range(int(until_s // HOUR) + 1)), policy=policy)


def held_at(record: Copy | None, seconds: float, policy: AccessPolicy = POLICY) -> Standing:
    found = standing(None if record is None else as_read(record, policy), T0 + seconds, policy)
    assert found is not None
    return found


def meaning_at(record: Copy | None, seconds: float, policy: AccessPolicy = POLICY) -> AccessResult | None:
    """Return the meaning of a record so many seconds behind T0; None if robots.txt must be fetched."""
    return meanings(record, seconds, policy=policy)[0]


def meanings(record: Copy | None, *seconds: float, policy: AccessPolicy = POLICY) -> list[AccessResult | None]:
    found = [standing(None if record is None else as_read(record, policy), T0 + moment, policy) for moment in seconds]
    return [None if one is None else one.source.result for one in found]


def _policy(dialect: Dialect = Dialect.RFC9309, **options: object) -> AccessPolicy:
    return CacheOptions(**options).policy(dialect)  # type: ignore[arg-type]


def _answer(record: Copy) -> DefiniteAnswer:
    assert record.answer is not None
    return record.answer


def _trouble(record: Copy) -> Trouble:
    assert record.trouble is not None
    return record.trouble


FORBIDDING = _policy(on_forbidden="disallow")


@pytest.mark.clause("RFC 9309 2.3.1.1")
@pytest.mark.clause("RFC 9309 2.3.1.3")
@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_each_status_has_a_meaning() -> None:
    opening = [400, 402, 404, 405, 407, 410, 418, 428, 430, 451, 499]
    nothing = [100, 101, 199, 206, 300, 301, 302, 304, 305, 306, 399, 600, 700, 999]
    closing = [500, 501, 502, 503, 504, 505, 511, 520, 599, *nothing]
    meanings = dict.fromkeys(range(200, 300), SUCCESSFUL) | dict.fromkeys([*opening, 401, 403], UNAVAILABLE)
    meanings |= dict.fromkeys(closing, UNREACHABLE) | {429: AccessResult.TOO_MANY_REQUESTS}
    assert {status: POLICY.meaning_of(response(status)) for status in meanings} == meanings
    meanings |= dict.fromkeys([401, 403], AccessResult.FORBIDDEN)
    assert {status: FORBIDDING.meaning_of(response(status)) for status in meanings} == meanings
    assert _policy(on_too_many_requests="allow").meaning_of(response(429)) is UNAVAILABLE
    assert POLICY.meaning_of(not_changed()) is None


def _old() -> Copy:
    """Return a record with both parts: a copy, and a trouble that a further answer keeps or ends."""
    return record_after((0, ok(etag='"old"')), (HOUR, response(503)))


@pytest.mark.clause("RFC 9309 2.3.1.2")
def test_an_answer_that_settles_something_makes_a_copy_and_ends_the_trouble() -> None:
    moved = FetchResponse(200, ELSEWHERE, {"etag": '"new"', "last-modified": "then"}, b"new")
    redirects = FetchFault(FaultKind.REDIRECT_LIMIT, "more than 5 redirects", ELSEWHERE, 302)
    rows: list[tuple[FetchResult, tuple[AccessResult, int, str, bytes, str, str]]] = [
        (moved, (SUCCESSFUL, 200, ELSEWHERE, b"new", '"new"', "then")),
        (FetchResponse(204, URL), (SUCCESSFUL, 204, URL, b"", "", "")),
        (not_changed(), (SUCCESSFUL, 200, URL, BODY, '"old"', "")),
        # Only a file has a body and validators.
        (FetchResponse(404, URL, {"etag": '"x"'}, b"<html>"), (UNAVAILABLE, 404, URL, b"", "", "")),
        (response(403), (AccessResult.FORBIDDEN, 403, URL, b"", "", "")),
        (redirects, (UNAVAILABLE, 302, ELSEWHERE, b"", "", "")),
    ]
    for answer, copy in rows:
        record = advance(_old(), answer, T0 + 2 * HOUR, FORBIDDING, 0.0)
        new = _answer(record)
        assert record.trouble is None
        assert (new.result, new.status, new.final_url, record.body or b"", new.etag, new.last_modified) == copy
        assert new.confirmed_wall == T0 + 2 * HOUR
        assert new.fault == (answer.detail if isinstance(answer, FetchFault) else "")


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_an_answer_that_settles_nothing_keeps_the_copy_and_is_trouble() -> None:
    kinds = [kind for kind in FaultKind if kind not in {FaultKind.REDIRECT_LIMIT, FaultKind.HOST_CLOSED}]
    faults = [FetchFault(kind, "what happened", ELSEWHERE, 200) for kind in kinds]
    rows: list[tuple[FetchResult, AccessResult, str]] = [
        (response(429), AccessResult.TOO_MANY_REQUESTS, "status 429"),
        *((response(status), UNREACHABLE, f"status {status}") for status in (500, 503, 206, 304, 999)),
        *((fault, UNREACHABLE, f"{fault.kind.value}: what happened") for fault in faults),
    ]
    for answer, result, fault in rows:
        record = advance(_old(), answer, T0 + 2 * HOUR, POLICY, 0.0)
        trouble = _trouble(record)
        assert record.answer == _old().answer
        assert (trouble.result, trouble.status, trouble.final_url) == (result, answer.status, answer.final_url)
        assert trouble.fault.endswith(fault)


@pytest.mark.clause("RFC 9111 4.3.1")
def test_validators_are_those_of_the_file_and_outlive_trouble() -> None:
    rows: list[tuple[FetchResult, Validators | None]] = [
        (ok(etag='"x"'), Validators(URL, '"x"', "")),
        (ok(last_modified="then"), Validators(URL, "", "then")),
        (ok(ELSEWHERE, etag='W/"x"', last_modified="then"), Validators(ELSEWHERE, 'W/"x"', "then")),
        (ok(etag="", last_modified=""), None),
        (failed(), None),
    ]
    assert [(answer, record_after((0, answer)).validators) for answer, _ in rows] == rows
    assert [(answer, record_after((0, answer), (DAY, failed())).validators) for answer, _ in rows] == rows


@pytest.mark.clause("RFC 9309 2.4")
def test_an_answer_holds_as_its_headers_say_between_a_minute_and_a_day() -> None:
    rows: list[tuple[dict[str, str], float]] = [
        ({}, DAY),
        ({"cache_control": "max-age=604800"}, DAY),
        ({"cache_control": f"max-age={'9' * 100}"}, DAY),
        ({"expires": "Fri, 31 Dec 9999 23:59:59 GMT"}, DAY),
        ({"cache_control": "max-age=86400"}, DAY),
        ({"cache_control": "max-age=600"}, 600.0),
        ({"cache_control": "max-age=3600", "age": "3000"}, 600.0),
        ({"cache_control": "max-age=3600", "date": formatdate(T0 - 3000, usegmt=True)}, 600.0),
        ({"cache_control": "max-age=3600", "date": formatdate(T0 + 3000, usegmt=True)}, HOUR),
        *(({"cache_control": said}, MINUTE) for said in ("max-age=60", "max-age=59", "max-age=0", "no-cache")),
        ({"cache_control": "no-store"}, MINUTE),
        ({"expires": "0"}, MINUTE),
        ({"cache_control": "max-age=60", "age": "9999999999"}, MINUTE),
    ]
    for status in (200, 404):
        records = [record_after((0, response(status, **headers))) for headers, _ in rows]
        assert [_answer(record).fresh_until_wall - T0 for record in records] == [lifetime_s for _, lifetime_s in rows]
        for record, (_, lifetime_s) in zip(records, rows, strict=True):
            assert held_at(record, lifetime_s - 0.001).until_wall == T0 + lifetime_s
            assert meaning_at(record, lifetime_s) is None


def test_the_least_lifetime_is_an_option_and_an_answer_holds_for_its_question_at_least() -> None:
    long, none = _policy(min_lifetime_s=HOUR), _policy(min_lifetime_s=0.0)
    assert _answer(record_after((0, ok(cache_control="no-cache")), policy=long)).lifetime_s == HOUR
    assert _answer(record_after((0, ok(cache_control="max-age=5")), policy=none)).lifetime_s == 5.0
    for status, result in ((200, SUCCESSFUL), (404, UNAVAILABLE)):
        record = record_after((0, response(status, cache_control="no-store")), policy=none)
        assert meanings(record, 0, 1, policy=none) == [result, None]


def test_answer_is_due_for_refresh_from_nine_tenths_of_its_lifetime() -> None:
    assert held_at(record_after((0, ok())), 0).refresh_wall == T0 + 0.9 * DAY
    assert held_at(record_after((0, ok(cache_control="max-age=1000"))), 0).refresh_wall == T0 + 900.0
    assert held_at(record_after((0, response(404))), 0).refresh_wall == T0 + 0.9 * DAY


ANSWERED: list[tuple[FetchResult, AccessResult]] = [(ok(), SUCCESSFUL), (response(404), UNAVAILABLE)]


def test_without_trouble_a_fresh_copy_stands() -> None:
    for answer, result in [*ANSWERED, (failed(FaultKind.REDIRECT_LIMIT), UNAVAILABLE)]:
        held = held_at(record_after((0, answer)), HOUR)
        assert (held.source.result, held.source.robots_url, held.source.fetched_wall) == (result, URL, T0)
        assert held.source.fresh_until_wall == held.until_wall == T0 + DAY
        assert held.source.not_before is None


def test_after_429_a_fresh_copy_serves_until_it_is_stale_and_names_the_wait() -> None:
    for answer, result in ANSWERED:
        held = held_at(record_after((0, answer), (HOUR, response(429, retry_after="120"))), HOUR)
        assert held.source.result is result
        assert held.source.not_before == held.refresh_wall == T0 + HOUR + 120
        assert held.until_wall == T0 + DAY
        assert "429" in held.source.fault


UNSETTLED: list[FetchResult] = [not_changed(), response(500), response(503), response(206), response(999)]
UNSETTLED += [failed(kind) for kind in (FaultKind.CONNECT, FaultKind.TRUNCATED, FaultKind.DNS, FaultKind.TLS)]


@pytest.mark.clause("RFC 9309 2.4")
def test_an_unreachable_site_is_served_by_its_file_within_a_day_of_its_confirmation() -> None:
    for trouble, lifetime_s in product(UNSETTLED, (600, 86_400)):
        record = record_after((0, ok(cache_control=f"max-age={lifetime_s}")), (700, trouble))
        held = held_at(record, 700)
        assert (held.source.result, held.source.fetched_wall) == (SUCCESSFUL, T0)
        assert held.source.fault != ""
        assert (held.until_wall, held.refresh_wall) == (T0 + DAY, T0 + 700 + 60)
        assert held.source.not_before is None
        assert meaning_at(record, DAY - 1) is SUCCESSFUL


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_an_unreachable_site_is_closed_a_day_after_its_file_was_confirmed() -> None:
    record = record_after((0, ok(cache_control="max-age=600")), (DAY - 30, response(503)))
    held = held_at(record, DAY)
    assert held.source.status == 503
    assert held.source.not_before == held.until_wall == held.refresh_wall == T0 + DAY + 30
    assert meanings(record, DAY - 1, DAY, DAY + 30) == [SUCCESSFUL, UNREACHABLE, None]


def test_how_long_a_file_serves_while_the_site_is_unreachable_is_an_option() -> None:
    policy = _policy(stale_if_unreachable_s=3 * DAY)
    record = record_after((0, ok()), (2 * DAY, response(503, retry_after="86400")), policy=policy)
    assert held_at(record, 2 * DAY, policy).until_wall == T0 + 3 * DAY
    record = advance(record, response(503), T0 + 3 * DAY - 1, policy, 0.0)
    assert meanings(record, 3 * DAY - 1, 3 * DAY, policy=policy) == [SUCCESSFUL, UNREACHABLE]


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_an_unreachable_site_without_a_copy_is_closed_until_it_is_asked_again_for_however_long() -> None:
    for answer in UNSETTLED:
        record = record_after((0, answer))
        held = held_at(record, 59)
        assert (held.source.result, held.source.fetched_wall) == (UNREACHABLE, T0)
        assert held.source.not_before == held.until_wall == T0 + 60
        assert meaning_at(record, 60) is None
    for days in (31, 365):
        assert meaning_at(record_of_failures(POLICY, days * DAY, failed(), copied=False), days * DAY) is UNREACHABLE


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_without_headers_renews_the_copy_for_its_old_lifetime() -> None:
    record = record_after((0, ok(etag='"x"', last_modified="then", cache_control="max-age=600")), (600, not_changed()))
    copy = _answer(record)
    assert copy.fresh_until_wall == T0 + 1200
    assert (record.body, copy.status, copy.etag, copy.last_modified) == (BODY, 200, '"x"', "then")
    assert held_at(record, 600).source.fetched_wall == T0 + 600


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_with_headers_renews_the_copy_as_they_say() -> None:
    rows: list[tuple[dict[str, str], float]] = [
        ({"cache_control": "max-age=1800"}, 1800.0),
        ({"cache_control": "max-age=1800", "age": "100"}, 1700.0),
        ({"cache_control": "max-age=604800"}, DAY),
        ({"cache_control": "no-cache"}, MINUTE),
        ({"expires": "0"}, MINUTE),
    ]

    def renewed(headers: dict[str, str]) -> float:
        record = record_after((0, ok(etag='"x"', cache_control="max-age=600")), (600, not_changed(**headers)))
        return _answer(record).fresh_until_wall - T0 - 600

    assert [(headers, renewed(headers)) for headers, _ in rows] == rows


@pytest.mark.clause("RFC 9111 4.3.4")
def test_304_replaces_only_the_validators_that_it_has() -> None:
    record = record_after((0, ok(etag='"x"', last_modified="then")), (DAY, not_changed(etag='W/"x"')))
    assert record.validators == Validators(URL, 'W/"x"', "then")
    record = advance(record, not_changed(etag='"x"', last_modified="now"), T0 + 2 * DAY, POLICY, 0.0)
    assert record.validators == Validators(URL, '"x"', "now")


@pytest.mark.clause("RFC 9110 8.8.3.2")
def test_304_confirms_only_the_copy_whose_entity_tag_it_names() -> None:
    confirming: list[tuple[str | None, str | None]] = [
        *(('"x"', named) for named in ('"x"', 'W/"x"', None, "")),
        *(('W/"x"', named) for named in ('"x"', 'W/"x"')),
        ("x", "x"),
        (None, None),
    ]
    other: list[tuple[str | None, str | None]] = [
        # The first could not be sent back, and differs.
        *(('"x"', named) for named in ('"\xe9"', '"y"', 'W/"y"', '"X"', 'w/"x"', "x")),
        *(('W/"x"', named) for named in ('"y"', 'W/"y"')),
        (None, '"y"'),
    ]
    for kept, named in [*confirming, *other]:
        before = record_after((0, ok(last_modified="then", **({} if kept is None else {"etag": kept}))))
        not_modified = not_changed(**{} if named is None else {"etag": named})
        assert before.validators is not None
        confirms = (kept, named) in confirming
        assert names_another(not_modified, before.validators) is not confirms, (kept, named)
        record = advance(before, not_modified, T0 + HOUR, POLICY, 0.0)
        if confirms:
            assert record.trouble is None
            assert _answer(record).confirmed_wall == T0 + HOUR
        else:
            assert record.answer == before.answer
            assert _trouble(record).result is UNREACHABLE


def _wait(record: Copy) -> float:
    return _trouble(record).retry_wall - _trouble(record).last_wall


def _waits(answer: FetchResult, policy: AccessPolicy = POLICY) -> list[float]:
    record, waits = None, []
    for attempt in range(9):
        record = advance(record, answer, T0 + attempt * HOUR, policy, 0.0)
        waits.append(_wait(record))
    return waits


def test_waits_double_from_a_minute_to_an_hour_whatever_retry_after_says() -> None:
    short = ["0", "1", "59", "Fri, 15 Jan 2027 08:00:00 GMT", "Wed, 21 Oct 2015 07:28:00 GMT"]
    answers: list[FetchResult] = [*map(response, (503, 429, 304)), failed()]
    answers += [response(status, retry_after=value) for status in (429, 500) for value in short]
    answers += [response(503, retry_after=short[-1], date="yesterday")]
    doubled = [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert [answer for answer in answers if _waits(answer) != doubled] == []
    assert _waits(failed(), _policy(retry_min_s=10.0, retry_max_s=30.0))[:4] == [10, 20, 30, 30]
    least = _policy(retry_min_s=0.001, retry_max_s=0.001)
    assert _waits(response(503, retry_after="0"), least)[0] == _waits(failed(), least)[0] == 1.0


@given(st.floats(0.0, 1.0))
def test_jitter_lengthens_a_wait_by_a_tenth_at_most_and_never_shortens_it(jitter: float) -> None:
    assert 60.0 <= _wait(record_after((0, failed()), jitter=jitter)) <= 66.0


@pytest.mark.clause("RFC 9110 10.2.3")
def test_retry_after_is_waited_for_up_to_a_day() -> None:
    waits_s = {
        "120": 120.0,
        "7200": 7200.0,
        "86400": DAY,
        "86401": DAY,
        "9" * 400: DAY,
        "Fri, 15 Jan 2027 08:10:00 GMT": 600.0,
        "Friday, 15-Jan-27 08:10:00 GMT": 600.0,
        "Fri, 31 Dec 9999 23:59:59 GMT": DAY,
    }
    for status, jitter in product((429, 500, 503), (0.0, 1.0)):
        answers = {value: response(status, retry_after=value) for value in waits_s}
        assert {value: _wait(record_after((0, answers[value]), jitter=jitter)) for value in waits_s} == waits_s


def test_retry_after_as_a_date_is_waited_for_whatever_the_clock_of_the_server() -> None:
    for behind_s in (-DAY, -600.0, 600.0, DAY):
        date, retry_after = (formatdate(T0 - behind_s + wait_s, usegmt=True) for wait_s in (0, 300))
        assert _wait(record_after((0, response(503, date=date, retry_after=retry_after)))) == 300.0


def test_an_answer_that_settles_something_resets_the_failures() -> None:
    limit = failed(FaultKind.REDIRECT_LIMIT)
    for settled in (ok(cache_control="max-age=60"), response(204), response(404), response(403), limit):
        record = record_after((0, failed()), (HOUR, failed()), (2 * HOUR, settled), (2 * DAY, failed()))
        assert (_trouble(record).failures, _trouble(record).since_wall) == (1, T0 + 2 * DAY)
        assert _wait(record) == 60.0


_ANSWERS: st.SearchStrategy[FetchResult] = st.one_of(
    st.builds(
        FetchResponse,
        st.integers(100, 999),
        st.just(URL),
        st.dictionaries(
            st.sampled_from(["cache-control", "expires", "age", "retry-after", "etag"]),
            st.sampled_from(["max-age=0", "max-age=600", "max-age=9999999", "no-store", "0", "120", "9" * 30, "", "x"]),
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
        held = standing(record, now_wall, policy)
        assert held is not None
        assert now_wall < held.until_wall
    assert record is not None
    moment = now_wall + later
    held = standing(record, moment, policy)
    if held is not None:
        assert moment < held.until_wall
        assert held.source.not_before is None or moment < held.source.not_before
    if record.answer is not None and moment >= record.answer.confirmed_wall + policy.outcomes.stale_s:
        assert held is None or held.source.result is not SUCCESSFUL


@settings(max_examples=1_400)
@given(_HISTORIES, st.sampled_from(Dialect), st.floats(0.0, 1.0))
def test_no_history_allows_without_an_answer_that_allows(
    history: list[tuple[float, FetchResult]], dialect: Dialect, jitter: float
) -> None:
    """The gate is open only on the word of a 2xx, a 4xx or too many redirects; in Google, for the first 12 hours."""
    record, now_wall, policy = None, T0, POLICIES[dialect]
    for pause, result in history:
        now_wall += pause / 24 if dialect is Dialect.GOOGLE else pause
        record = advance(record, result, now_wall, policy, jitter)
        if isinstance(result, FetchFault):
            said = result.kind is FaultKind.REDIRECT_LIMIT
        else:
            said = result.status // 100 in {2, 4} and result.status not in {206, 429}
        if said or (dialect is Dialect.GOOGLE and now_wall >= T0 + 12 * HOUR):
            return
        assert held_at(record, now_wall - T0, policy).source.result in {UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}


def test_record_that_a_wrong_clock_dated_in_the_future_stands_for_nothing_until_then() -> None:
    for answer in (ok(), response(404), response(503), response(429)):
        record = advance(None, answer, T0 + 365 * DAY, POLICY, 0.0)
        assert standing(record, T0, POLICY) is None
        assert standing(record, T0 + 365 * DAY - MINUTE, POLICY) is not None


def test_record_of_a_clock_that_was_ahead_holds_no_longer_than_one_of_now() -> None:
    for answer in (ok(), response(404), response(503, retry_after="3600"), response(429)):
        ahead, ours = (advance(None, answer, T0 + seconds, POLICY, 0.0) for seconds in (200, 0))
        assert standing(ahead, T0, POLICY) == standing(ours, T0, POLICY)


def closed(seconds: float) -> FetchFault:
    return FetchFault(FaultKind.HOST_CLOSED, "has asked to be left alone", URL, retry_after_s=seconds)


def test_closed_host_defers_until_it_opens_and_counts_no_further_failure() -> None:
    held = held_at(record_after((0, closed(500.0))), 0)
    assert (held.source.result, held.source.not_before) == (AccessResult.TOO_MANY_REQUESTS, T0 + 500)
    record = record_after((0, response(503)), (60, closed(5.0)), (65, closed(5.0)))
    assert _wait(record) == 5.0
    assert _wait(advance(record, response(503), T0 + 70, POLICY, 0.0)) == 120.0


def test_a_file_that_was_unreachable_for_long_enough_serves_while_its_host_is_closed_and_no_other() -> None:
    for failing_s, meaning in ((13 * HOUR, SUCCESSFUL), (HOUR, UNREACHABLE)):
        for copied in (True, False):
            record = record_of_failures(GOOGLE, failing_s, response(500), copied=copied)
            record = advance(record, closed(20 * HOUR), T0 + failing_s + MINUTE, GOOGLE, 0.0)
            found = meanings(record, failing_s + HOUR, failing_s + 20 * HOUR, policy=GOOGLE)
            assert found == [meaning if copied or meaning is UNREACHABLE else UNAVAILABLE] * 2


def test_absence_of_a_file_keeps_no_copy_that_is_dated_in_the_future() -> None:
    assert KOSTER_2019.outcomes.unavailable_copy_s > 0
    record = record_after((365 * DAY, ok()), (0, response(404)), policy=KOSTER_2019)
    assert (_answer(record).result, record.trouble) == (UNAVAILABLE, None)


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
    now = at(T0)
    record = advance(None, answer, now.wall, policy, 0.0)
    held = standing(record, now.wall, policy)
    assert held is not None
    longest_s = held.until_wall - held.at_wall
    for passed_s, part, kept in steps:
        now = Moment("run", now.wall + passed_s + part * passed_s, now.mono + passed_s)
        corrected = ClockCorrection(now).corrected(record, now)
        held = standing(corrected, now.wall, policy)
        assert held is None or now.mono - T0 < longest_s + 0.01 * len(steps)
        assert held is None or now.wall - T0 < longest_s + 0.01 * len(steps)
        if kept:
            record = corrected


# Dialects that differ from RFC 9309, and options above them


@pytest.mark.clause("draft-koster-robots-00 3.1")
def test_a_refusal_closes_the_site_in_the_old_dialects_and_opens_it_in_the_others() -> None:
    closing = {Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL}
    for dialect, policy in POLICIES.items():
        for status in (400, 401, 403, 404, 410, 418, 451):
            refused = status in {401, 403} and dialect in closing
            found = meaning_at(record_after((0, response(status)), policy=policy), 1, policy)
            assert found is (AccessResult.FORBIDDEN if refused else UNAVAILABLE), (dialect, status)


def test_the_absence_of_a_file_opens_the_site_for_a_day_at_most_in_every_dialect() -> None:
    for policy in POLICIES.values():
        record = record_after((0, response(404, cache_control="max-age=9999999")), policy=policy)
        assert meanings(record, DAY - 1, DAY, policy=policy) == [UNAVAILABLE, None]


@pytest.mark.clause("draft-koster-robots-00 3.1")
def test_on_temporary_failure_visits_are_deferred_until_the_file_can_be_had() -> None:
    for policy in (POLICIES[Dialect.KOSTER_1994], KOSTER_1996):
        short = record_after((0, ok(cache_control="max-age=600")), (HOUR, response(503)), policy=policy)
        assert meaning_at(short, HOUR, policy) is UNREACHABLE  # a copy that is not fresh does not serve
        assert meaning_at(record_after((0, response(503)), policy=policy), 0, policy) is UNREACHABLE
        assert meaning_at(record_after((0, ok()), (HOUR, response(503)), policy=policy), HOUR, policy) is SUCCESSFUL


def test_429_defers_every_page_until_robots_txt_is_fetched_but_in_google() -> None:
    busy = AccessResult.TOO_MANY_REQUESTS
    google = _policy(Dialect.GOOGLE, on_too_many_requests="defer")
    for policy in [google, *(POLICIES[dialect] for dialect in Dialect if dialect is not Dialect.GOOGLE)]:
        record = record_after((0, response(429, retry_after="120")), policy=policy)
        held = held_at(record, 119, policy)
        assert held.source.not_before == held.until_wall == T0 + 120
        assert meanings(record, 0, 119, 120, policy=policy) == [busy, busy, None]


@pytest.mark.clause("draft-koster-robots-00 3.1")
def test_redirects_without_end_defer_visits_where_the_file_has_to_be_found_and_open_the_site_elsewhere() -> None:
    finding = {Dialect.KOSTER_1994, Dialect.KOSTER_1996}
    for dialect, policy in POLICIES.items():
        assert policy.outcomes.max_redirects == (20 if dialect in finding else 5)
        record = record_after((0, failed(FaultKind.REDIRECT_LIMIT)), policy=policy)
        meant = [UNREACHABLE, None, None] if dialect in finding else [UNAVAILABLE] * 3
        assert meanings(record, 0, 60, DAY - 1, policy=policy) == meant


@pytest.mark.clause("draft-koster-robots-00 3.4")
def test_a_file_holds_as_long_as_its_dialect_says() -> None:
    # "robots should default to an expiry of 7 days"
    longer = {Dialect.KOSTER_1996: (7 * DAY, 7 * DAY), Dialect.GOOGLE: (DAY, 7 * DAY)}
    for dialect, policy in POLICIES.items():
        default_s, most_s = longer.get(dialect, (DAY, DAY))
        for answer, lifetime_s in ((ok(), default_s), (ok(cache_control="max-age=99999999"), most_s)):
            record = record_after((0, answer), policy=policy)
            assert meanings(record, lifetime_s - 1, lifetime_s, policy=policy) == [SUCCESSFUL, None], dialect
    kept = record_after((0, ok()), policy=KOSTER_1996)
    assert meaning_at(kept, 2 * DAY, POLICY) is None, "each dialect holds a copy of another to its own bound"


@pytest.mark.clause("draft-koster-rep-00 2.3.1.3")
def test_a_copy_serves_for_a_day_though_the_file_is_unavailable_now() -> None:
    """It says: "MAY use a cached version of a robots.txt file for up to 24 hours"."""
    for gone in (response(404), response(403), response(410), failed(FaultKind.REDIRECT_LIMIT)):
        record = record_after((0, ok(cache_control="max-age=3600")), (3 * HOUR, gone), policy=KOSTER_2019)
        found = held_at(record, 3 * HOUR, KOSTER_2019)
        assert (found.source.result, found.source.not_before) == (SUCCESSFUL, None)
        assert found.source.fault
        assert (found.refresh_wall, found.until_wall) == (T0 + 3 * HOUR + 60, T0 + DAY)
        assert meanings(record, DAY - 1, DAY, policy=KOSTER_2019) == [SUCCESSFUL, None]
        record = record_after((DAY, gone), policy=KOSTER_2019, before=record)
        assert meanings(record, DAY, 2 * DAY - 1, policy=KOSTER_2019) == [UNAVAILABLE, UNAVAILABLE]


def test_an_unreachable_file_counts_as_a_request_where_it_may_open_the_site() -> None:
    assert (*(policy.opens(policy.meaning_of(response(503))) for policy in (GOOGLE, POLICY)),) == (True, False)


# Google: 12 hours closed, 30 days by the last good copy, and then by whether the site is up


FAILURES: list[FetchResult] = [response(500), response(503), response(429), failed()]


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
def test_for_the_first_12_hours_nothing_is_crawled() -> None:
    for failure, copied, seconds in product(FAILURES, (False, True), (0, HOUR, 11 * HOUR)):
        record = record_of_failures(GOOGLE, seconds, failure, copied=copied)
        found = held_at(record, seconds, GOOGLE)
        assert found.source.result is UNREACHABLE
        assert found.until_wall <= T0 + 12 * HOUR
        assert meaning_at(record, seconds + HOUR, GOOGLE) is not UNREACHABLE  # it is requested again


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
def test_after_12_hours_the_last_good_copy_is_used_for_30_days() -> None:
    for failure, days in product(FAILURES, (13 / 24, 1.0, 30.4)):
        seconds = days * DAY
        with_copy = record_of_failures(GOOGLE, seconds, failure, copied=True)
        found = held_at(with_copy, seconds, GOOGLE)
        assert found.source.result is SUCCESSFUL
        assert found.refresh_wall == _trouble(with_copy).retry_wall  # "while still trying to fetch a new version"
        assert found.until_wall == T0 + 12 * HOUR + 30 * DAY
        without = record_of_failures(GOOGLE, seconds, failure, copied=False)
        assert meaning_at(without, seconds, GOOGLE) is UNAVAILABLE  # "assumes there's no crawl restrictions"


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
def test_after_30_days_a_site_that_answers_is_open_and_one_that_does_not_is_closed() -> None:
    for copied in (False, True):
        up = record_of_failures(GOOGLE, 31 * DAY, response(500), copied=copied)
        # "still keep checking for a new version"
        assert meanings(up, 31 * DAY, 31 * DAY + HOUR, policy=GOOGLE) == [UNAVAILABLE, None]
        down = record_of_failures(GOOGLE, 31 * DAY, failed(), copied=copied)
        assert meaning_at(down, 31 * DAY, GOOGLE) is UNREACHABLE


def test_an_option_shortens_what_google_allows() -> None:
    policy = _policy(Dialect.GOOGLE, stale_if_unreachable_s=DAY)
    record = record_of_failures(policy, 2 * DAY, response(500), copied=True)
    assert meaning_at(record, 2 * DAY, policy) is UNREACHABLE  # the copy serves no longer

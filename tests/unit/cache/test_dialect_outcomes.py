"""What answers mean, and how long they hold, where a dialect reads them otherwise than RFC 9309."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.options import CacheOptions
from politesse._cache.outcome import AccessPolicy, Standing, advance, classify, standing
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.robots import Dialect
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse._cache.record import Record
    from politesse.ports import FetchResult

T0 = 1_800_000_000.0
HOUR = 3_600.0
DAY = 86_400.0
URL = "https://example.com/robots.txt"
BODY = b"User-agent: *\nDisallow: /private\n"

POLICIES = {dialect: CacheOptions().policy(dialect) for dialect in Dialect}
GOOGLE = POLICIES[Dialect.GOOGLE]
KOSTER_1996 = POLICIES[Dialect.KOSTER_1996]
KOSTER_2019 = POLICIES[Dialect.KOSTER_2019]
CLOSING = [Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL]


def ok(**headers: str) -> FetchResponse:
    return FetchResponse(200, URL, {name.replace("_", "-"): value for name, value in headers.items()}, BODY)


def answer(status: int, **headers: str) -> FetchResponse:
    return FetchResponse(status, URL, {name.replace("_", "-"): value for name, value in headers.items()})


def fault(kind: FaultKind = FaultKind.CONNECT) -> FetchFault:
    return FetchFault(kind, "refused", URL)


def after(policy: AccessPolicy, *steps: tuple[float, FetchResult]) -> Record:
    """The record after answers, each at so many seconds behind T0."""
    record = None
    for seconds, result in steps:
        record = advance(record, result, T0 + seconds, policy, 0.0)
    assert record is not None
    return record


def held(policy: AccessPolicy, record: Record, seconds: float) -> Standing | None:
    return standing(record, URL, T0 + seconds, policy)


def result(policy: AccessPolicy, record: Record, seconds: float) -> AccessResult | None:
    found = held(policy, record, seconds)
    return None if found is None else found.source.result


def failing(
    policy: AccessPolicy, until_s: float, *, copied: bool, failure: FetchResult, start_s: float = 0.0
) -> Record:
    """The record of a site that failed once an hour from ``start_s`` on, with or without a copy from before."""
    record = after(policy, (start_s - HOUR, ok())) if copied else None
    seconds = start_s
    while seconds <= until_s:
        record = advance(record, failure, T0 + seconds, policy, 0.0)
        seconds += HOUR
    assert record is not None
    return record


# 401 and 403


@pytest.mark.clause("draft-koster-robots-00 3.1")
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("dialect", CLOSING)
def test_a_refusal_closes_the_site_in_the_old_dialects(dialect: Dialect, status: int) -> None:
    assert result(POLICIES[dialect], after(POLICIES[dialect], (0, answer(status))), 1) is AccessResult.FORBIDDEN


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451])
@pytest.mark.parametrize("dialect", [Dialect.GOOGLE, Dialect.KOSTER_2019, Dialect.CONNER_2])
def test_a_refusal_opens_it_in_the_others(dialect: Dialect, status: int) -> None:
    assert result(POLICIES[dialect], after(POLICIES[dialect], (0, answer(status))), 1) is AccessResult.UNAVAILABLE


@pytest.mark.parametrize("dialect", Dialect)
def test_the_absence_of_a_file_opens_the_site_for_a_day_at_most_in_every_dialect(dialect: Dialect) -> None:
    policy = POLICIES[dialect]
    record = after(policy, (0, answer(404, cache_control="max-age=9999999")))
    assert result(policy, record, DAY - 1) is AccessResult.UNAVAILABLE
    assert result(policy, record, DAY) is None


# Temporary failure


@pytest.mark.clause("draft-koster-robots-00 3.1")
@pytest.mark.parametrize("dialect", [Dialect.KOSTER_1994, Dialect.KOSTER_1996])
def test_on_temporary_failure_visits_are_deferred_until_the_file_can_be_had(dialect: Dialect) -> None:
    policy = POLICIES[dialect]
    record = after(policy, (0, ok(cache_control="max-age=600")), (HOUR, answer(503)))
    assert result(policy, record, HOUR) is AccessResult.UNREACHABLE  # a copy that is not fresh does not serve
    assert result(policy, after(policy, (0, answer(503))), 0) is AccessResult.UNREACHABLE
    assert result(policy, after(policy, (0, ok()), (HOUR, answer(503))), HOUR) is AccessResult.SUCCESSFUL  # it is fresh


@pytest.mark.parametrize("dialect", [dialect for dialect in Dialect if dialect is not Dialect.GOOGLE])
def test_429_defers_every_page_but_in_google(dialect: Dialect) -> None:
    record = after(POLICIES[dialect], (0, answer(429, retry_after="120")))
    found = held(POLICIES[dialect], record, 0)
    assert found is not None
    assert found.source.result is AccessResult.TOO_MANY_REQUESTS
    assert found.source.not_before == T0 + 120


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("status", [206, 304, 500, 503, 600, 999])
def test_undefined_statuses_close_the_site_in_every_dialect(dialect: Dialect, status: int) -> None:
    assert classify(answer(status), POLICIES[dialect]) is AccessResult.UNREACHABLE


# Redirects


@pytest.mark.clause("draft-koster-robots-00 3.1")
@pytest.mark.parametrize("dialect", [Dialect.KOSTER_1994, Dialect.KOSTER_1996])
def test_redirects_without_end_defer_visits_where_the_file_has_to_be_found(dialect: Dialect) -> None:
    assert dialect.traits.outcomes.max_redirects == 20
    record = after(POLICIES[dialect], (0, fault(FaultKind.REDIRECT_LIMIT)))
    assert result(POLICIES[dialect], record, 0) is AccessResult.UNREACHABLE
    assert result(POLICIES[dialect], record, 60) is None


@pytest.mark.parametrize("dialect", [Dialect.GOOGLE, Dialect.KOSTER_2019, Dialect.CONNER_2, Dialect.PERL])
def test_a_sixth_redirect_opens_the_site_in_the_others(dialect: Dialect) -> None:
    assert dialect.traits.outcomes.max_redirects == 5
    record = after(POLICIES[dialect], (0, fault(FaultKind.REDIRECT_LIMIT)))
    assert result(POLICIES[dialect], record, DAY - 1) is AccessResult.UNAVAILABLE


# Lifetimes


@pytest.mark.clause("draft-koster-robots-00 3.4")
@pytest.mark.parametrize(
    ("dialect", "default_s", "most_s"),
    [
        (Dialect.KOSTER_1996, 7 * DAY, 7 * DAY),  # "robots should default to an expiry of 7 days"
        (Dialect.GOOGLE, DAY, 7 * DAY),
        (Dialect.KOSTER_1994, DAY, DAY),
        (Dialect.KOSTER_2019, DAY, DAY),
        (Dialect.CONNER_2, DAY, DAY),
        (Dialect.PERL, DAY, DAY),
    ],
)
def test_a_file_holds_as_long_as_its_dialect_says(dialect: Dialect, default_s: float, most_s: float) -> None:
    policy = POLICIES[dialect]
    for headers, lifetime_s in (({}, default_s), ({"cache_control": "max-age=99999999"}, most_s)):
        record = after(policy, (0, ok(**headers)))
        assert result(policy, record, lifetime_s - 1) is AccessResult.SUCCESSFUL
        assert result(policy, record, lifetime_s) is None


@pytest.mark.parametrize("dialect", Dialect)
def test_headers_may_make_it_shorter_in_every_dialect(dialect: Dialect) -> None:
    record = after(POLICIES[dialect], (0, ok(expires="Fri, 15 Jan 2027 09:00:00 GMT")))  # T0 is 8 o'clock
    assert result(POLICIES[dialect], record, HOUR - 1) is AccessResult.SUCCESSFUL
    assert result(POLICIES[dialect], record, HOUR) is None
    record = after(POLICIES[dialect], (0, ok(cache_control="max-age=600")))
    assert result(POLICIES[dialect], record, 600) is None


def test_a_copy_that_another_dialect_kept_for_longer_is_held_to_the_bound_of_this_one() -> None:
    record = after(KOSTER_1996, (0, ok()))
    assert result(KOSTER_1996, record, 2 * DAY) is AccessResult.SUCCESSFUL
    assert result(POLICIES[Dialect.RFC9309], record, 2 * DAY) is None


# draft-koster-rep-00: "MAY use a cached version of a robots.txt file for up to 24 hours"


@pytest.mark.clause("draft-koster-rep-00 2.3.1.3")
@pytest.mark.parametrize("gone", [answer(404), answer(403), answer(410), fault(FaultKind.REDIRECT_LIMIT)])
def test_a_copy_serves_for_a_day_though_the_file_is_unavailable_now(gone: FetchResult) -> None:
    record = after(KOSTER_2019, (0, ok(cache_control="max-age=3600")), (3 * HOUR, gone))
    found = held(KOSTER_2019, record, 3 * HOUR)
    assert found is not None
    assert found.source.result is AccessResult.SUCCESSFUL
    assert found.source.fault
    assert found.source.not_before is None
    assert (found.refresh_wall, found.until_wall) == (T0 + 3 * HOUR + 60, T0 + DAY)
    assert result(KOSTER_2019, record, DAY - 1) is AccessResult.SUCCESSFUL
    assert result(KOSTER_2019, record, DAY) is None
    record = advance(record, gone, T0 + DAY, KOSTER_2019, 0.0)
    assert result(KOSTER_2019, record, DAY) is AccessResult.UNAVAILABLE
    assert result(KOSTER_2019, record, 2 * DAY - 1) is AccessResult.UNAVAILABLE


@pytest.mark.clause("draft-koster-rep-00 2.3.1.3")
def test_without_a_copy_an_unavailable_file_opens_the_site() -> None:
    record = after(KOSTER_2019, (0, answer(404)))
    assert record.trouble is None
    assert result(KOSTER_2019, record, 1) is AccessResult.UNAVAILABLE
    # ... and a refusal or an absence is no copy.
    again = after(KOSTER_2019, (0, answer(404, cache_control="max-age=60")), (HOUR, answer(404)))
    assert again.trouble is None


@pytest.mark.parametrize("dialect", [dialect for dialect in Dialect if dialect is not Dialect.KOSTER_2019])
def test_in_the_other_dialects_a_file_that_went_away_restricts_nothing(dialect: Dialect) -> None:
    record = after(POLICIES[dialect], (0, ok(cache_control="max-age=3600")), (3 * HOUR, answer(404)))
    assert result(POLICIES[dialect], record, 3 * HOUR) is AccessResult.UNAVAILABLE


# Google: 12 hours closed, 30 days by the last good copy, and then by whether the site is up


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
@pytest.mark.parametrize("failure", [answer(503), answer(429), fault()])
@pytest.mark.parametrize("copied", [False, True])
def test_for_the_first_12_hours_nothing_is_crawled(failure: FetchResult, *, copied: bool) -> None:
    for seconds in (0.0, HOUR, 11 * HOUR):
        record = failing(GOOGLE, seconds, copied=copied, failure=failure)
        found = held(GOOGLE, record, seconds)
        assert found is not None
        assert found.source.result is AccessResult.UNREACHABLE
        assert found.until_wall <= T0 + 12 * HOUR
        assert result(GOOGLE, record, seconds + HOUR) is not AccessResult.UNREACHABLE  # it is asked for again


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
@pytest.mark.parametrize("failure", [answer(500), answer(429), fault()])
@pytest.mark.parametrize("days", [13 / 24, 1.0, 15.0, 30.4])
def test_after_12_hours_the_last_good_copy_is_used_for_30_days(failure: FetchResult, days: float) -> None:
    seconds = days * DAY
    with_copy = failing(GOOGLE, seconds, copied=True, failure=failure)
    assert result(GOOGLE, with_copy, seconds) is AccessResult.SUCCESSFUL
    found = held(GOOGLE, with_copy, seconds)
    assert found is not None
    assert with_copy.trouble is not None
    assert found.refresh_wall == with_copy.trouble.retry_wall  # "while still trying to fetch a new version"
    assert found.until_wall == T0 + 12 * HOUR + 30 * DAY
    without = failing(GOOGLE, seconds, copied=False, failure=failure)
    assert result(GOOGLE, without, seconds) is AccessResult.UNAVAILABLE  # "assumes there's no crawl restrictions"


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
@pytest.mark.parametrize("copied", [False, True])
def test_after_30_days_a_site_that_answers_is_open_and_one_that_does_not_is_closed(*, copied: bool) -> None:
    seconds = 31 * DAY
    up = failing(GOOGLE, seconds, copied=copied, failure=answer(500))
    assert result(GOOGLE, up, seconds) is AccessResult.UNAVAILABLE
    assert result(GOOGLE, up, seconds + HOUR) is None  # "still keep checking for a new version"
    down = failing(GOOGLE, seconds, copied=copied, failure=fault())
    assert result(GOOGLE, down, seconds) is AccessResult.UNREACHABLE


def test_the_end_of_the_12_hours_is_not_slept_through() -> None:
    record = after(GOOGLE, (0, ok()), (HOUR, answer(503)), (12 * HOUR, answer(503, retry_after="86400")))
    found = held(GOOGLE, record, 12 * HOUR)
    assert found is not None
    assert (found.source.result, found.until_wall) == (AccessResult.UNREACHABLE, T0 + 13 * HOUR)
    assert result(GOOGLE, record, 13 * HOUR) is AccessResult.SUCCESSFUL


def test_an_absence_is_no_good_copy() -> None:
    record = after(GOOGLE, (0, answer(404)), (HOUR, answer(503)))
    assert result(GOOGLE, record, HOUR) is AccessResult.UNREACHABLE
    later = failing(GOOGLE, 13 * HOUR, copied=False, failure=answer(503))
    assert result(GOOGLE, later, 13 * HOUR) is AccessResult.UNAVAILABLE


def test_an_answer_ends_the_12_hours() -> None:
    record = after(GOOGLE, (0, answer(503)), (HOUR, ok()))
    assert result(GOOGLE, record, HOUR) is AccessResult.SUCCESSFUL


def test_options_shorten_what_google_allows() -> None:
    policy = CacheOptions(after_grace="disallow", on_too_many_requests="defer").policy(Dialect.GOOGLE)
    assert result(policy, after(policy, (0, answer(429))), 0) is AccessResult.TOO_MANY_REQUESTS
    record = failing(policy, 31 * DAY, copied=False, failure=answer(500))
    assert result(policy, record, 31 * DAY) is AccessResult.UNREACHABLE
    policy = CacheOptions(stale_if_unreachable_s=DAY).policy(Dialect.GOOGLE)
    record = failing(policy, 2 * DAY, copied=True, failure=answer(500))
    assert result(policy, record, 2 * DAY) is AccessResult.UNREACHABLE  # there is a copy, and it serves no longer


_ANSWERS: st.SearchStrategy[FetchResult] = st.one_of(
    st.builds(
        FetchResponse,
        st.sampled_from([200, 206, 304, 401, 404, 429, 500, 503]),
        st.just(URL),
        st.dictionaries(
            st.sampled_from(["cache-control", "retry-after", "etag"]), st.sampled_from(["max-age=600", "0", "120"])
        ),
        st.just(BODY),
        conditional=st.booleans(),
    ),
    st.builds(FetchFault, st.sampled_from(FaultKind), st.just("why"), st.just(URL)),
)


@given(
    st.lists(st.tuples(st.floats(0.0, 3 * DAY), _ANSWERS), min_size=1, max_size=8),
    st.sampled_from(Dialect),
    st.floats(0.0, 40 * DAY),
)
def test_every_history_stands_for_something_now_and_for_nothing_beyond_its_end(
    history: list[tuple[float, FetchResult]], dialect: Dialect, later: float
) -> None:
    policy = POLICIES[dialect]
    record, now_wall = None, T0
    for pause, answered in history:
        now_wall += pause
        record = advance(record, answered, now_wall, policy, 0.5)
        found = standing(record, URL, now_wall, policy)
        assert found is not None
        assert now_wall < found.until_wall
    assert record is not None
    found = standing(record, URL, now_wall + later, policy)
    assert found is None or now_wall + later < found.until_wall


@pytest.mark.parametrize("dialect", Dialect)
@given(history=st.lists(st.tuples(st.floats(0.0, HOUR), _ANSWERS), min_size=1, max_size=8))
def test_in_12_hours_no_dialect_allows_without_an_answer_that_allows(
    dialect: Dialect, history: list[tuple[float, FetchResult]]
) -> None:
    policy = POLICIES[dialect]
    record, now_wall = None, T0
    for pause, answered in history:
        now_wall += pause
        record = advance(record, answered, now_wall, policy, 0.0)
        if isinstance(answered, FetchFault):
            allows = answered.kind is FaultKind.REDIRECT_LIMIT
        else:
            allows = answered.status in {200, 401, 404}
        if allows:
            return
        found = standing(record, URL, now_wall, policy)
        assert found is not None
        assert found.source.result in {AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}

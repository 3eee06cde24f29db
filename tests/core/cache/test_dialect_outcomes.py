"""The meaning and the lifetime of answers in dialects that differ from RFC 9309."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse import CacheOptions
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult
from politesse.robots import Dialect
from politesse.verdict import AccessResult
from tests.rules.cache.answers import (
    BODY,
    DAY,
    HOUR,
    T0,
    URL,
    failed,
    held_at,
    meaning_at,
    ok,
    record_after,
    record_of_failures,
    response,
)

POLICIES = {dialect: CacheOptions().policy(dialect) for dialect in Dialect}
GOOGLE = POLICIES[Dialect.GOOGLE]
KOSTER_1996 = POLICIES[Dialect.KOSTER_1996]
KOSTER_2019 = POLICIES[Dialect.KOSTER_2019]
CLOSING = [Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL]


# 401 and 403


@pytest.mark.clause("draft-koster-robots-00 3.1")
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("dialect", CLOSING)
def test_a_refusal_closes_the_site_in_the_old_dialects(dialect: Dialect, status: int) -> None:
    policy = POLICIES[dialect]
    assert meaning_at(record_after((0, response(status)), policy=policy), 1, policy) is AccessResult.FORBIDDEN


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451])
@pytest.mark.parametrize("dialect", [Dialect.GOOGLE, Dialect.KOSTER_2019, Dialect.CONNER_2])
def test_a_refusal_opens_it_in_the_others(dialect: Dialect, status: int) -> None:
    policy = POLICIES[dialect]
    assert meaning_at(record_after((0, response(status)), policy=policy), 1, policy) is AccessResult.UNAVAILABLE


@pytest.mark.parametrize("dialect", Dialect)
def test_the_absence_of_a_file_opens_the_site_for_a_day_at_most_in_every_dialect(dialect: Dialect) -> None:
    policy = POLICIES[dialect]
    record = record_after((0, response(404, cache_control="max-age=9999999")), policy=policy)
    assert meaning_at(record, DAY - 1, policy) is AccessResult.UNAVAILABLE
    assert meaning_at(record, DAY, policy) is None


# Temporary failure


@pytest.mark.clause("draft-koster-robots-00 3.1")
@pytest.mark.parametrize("dialect", [Dialect.KOSTER_1994, Dialect.KOSTER_1996])
def test_on_temporary_failure_visits_are_deferred_until_the_file_can_be_had(dialect: Dialect) -> None:
    policy = POLICIES[dialect]
    record = record_after((0, ok(cache_control="max-age=600")), (HOUR, response(503)), policy=policy)
    assert meaning_at(record, HOUR, policy) is AccessResult.UNREACHABLE  # a copy that is not fresh does not serve
    assert meaning_at(record_after((0, response(503)), policy=policy), 0, policy) is AccessResult.UNREACHABLE
    assert (
        meaning_at(record_after((0, ok()), (HOUR, response(503)), policy=policy), HOUR, policy)
        is AccessResult.SUCCESSFUL
    )


@pytest.mark.parametrize("dialect", [dialect for dialect in Dialect if dialect is not Dialect.GOOGLE])
def test_429_defers_every_page_but_in_google(dialect: Dialect) -> None:
    record = record_after((0, response(429, retry_after="120")), policy=POLICIES[dialect])
    found = held_at(record, 0, POLICIES[dialect])
    assert found.source.result is AccessResult.TOO_MANY_REQUESTS
    assert found.source.not_before == T0 + 120


# Redirects


@pytest.mark.clause("draft-koster-robots-00 3.1")
@pytest.mark.parametrize("dialect", [Dialect.KOSTER_1994, Dialect.KOSTER_1996])
def test_redirects_without_end_defer_visits_where_the_file_has_to_be_found(dialect: Dialect) -> None:
    assert dialect.traits.outcomes.max_redirects == 20
    record = record_after((0, failed(FaultKind.REDIRECT_LIMIT)), policy=POLICIES[dialect])
    assert meaning_at(record, 0, POLICIES[dialect]) is AccessResult.UNREACHABLE
    assert meaning_at(record, 60, POLICIES[dialect]) is None


@pytest.mark.parametrize("dialect", [Dialect.GOOGLE, Dialect.KOSTER_2019, Dialect.CONNER_2, Dialect.PERL])
def test_a_sixth_redirect_opens_the_site_in_the_others(dialect: Dialect) -> None:
    assert dialect.traits.outcomes.max_redirects == 5
    record = record_after((0, failed(FaultKind.REDIRECT_LIMIT)), policy=POLICIES[dialect])
    assert meaning_at(record, DAY - 1, POLICIES[dialect]) is AccessResult.UNAVAILABLE


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
        record = record_after((0, ok(**headers)), policy=policy)
        assert meaning_at(record, lifetime_s - 1, policy) is AccessResult.SUCCESSFUL
        assert meaning_at(record, lifetime_s, policy) is None


def test_a_copy_that_another_dialect_kept_for_longer_is_held_to_the_bound_of_this_one() -> None:
    record = record_after((0, ok()), policy=KOSTER_1996)
    assert meaning_at(record, 2 * DAY, KOSTER_1996) is AccessResult.SUCCESSFUL
    assert meaning_at(record, 2 * DAY, POLICIES[Dialect.RFC9309]) is None


# draft-koster-rep-00: "MAY use a cached version of a robots.txt file for up to 24 hours"


@pytest.mark.clause("draft-koster-rep-00 2.3.1.3")
@pytest.mark.parametrize("gone", [response(404), response(403), response(410), failed(FaultKind.REDIRECT_LIMIT)])
def test_a_copy_serves_for_a_day_though_the_file_is_unavailable_now(gone: FetchResult) -> None:
    record = record_after((0, ok(cache_control="max-age=3600")), (3 * HOUR, gone), policy=KOSTER_2019)
    found = held_at(record, 3 * HOUR, KOSTER_2019)
    assert found.source.result is AccessResult.SUCCESSFUL
    assert found.source.fault
    assert found.source.not_before is None
    assert (found.refresh_wall, found.until_wall) == (T0 + 3 * HOUR + 60, T0 + DAY)
    assert meaning_at(record, DAY - 1, KOSTER_2019) is AccessResult.SUCCESSFUL
    assert meaning_at(record, DAY, KOSTER_2019) is None
    record = record_after((DAY, gone), policy=KOSTER_2019, before=record)
    assert meaning_at(record, DAY, KOSTER_2019) is AccessResult.UNAVAILABLE
    assert meaning_at(record, 2 * DAY - 1, KOSTER_2019) is AccessResult.UNAVAILABLE


@pytest.mark.parametrize(("dialect", "opens"), [(Dialect.GOOGLE, True), (Dialect.RFC9309, False)])
def test_an_unreachable_file_counts_as_a_request_where_it_may_open_the_site(dialect: Dialect, *, opens: bool) -> None:
    assert POLICIES[dialect].opens(response(503)) is opens


# Google: 12 hours closed, 30 days by the last good copy, and then by whether the site is up


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
@pytest.mark.parametrize("failure", [response(503), response(429), failed()])
@pytest.mark.parametrize("copied", [False, True])
def test_for_the_first_12_hours_nothing_is_crawled(failure: FetchResult, *, copied: bool) -> None:
    for seconds in (0.0, HOUR, 11 * HOUR):
        record = record_of_failures(GOOGLE, seconds, copied=copied, failure=failure)
        found = held_at(record, seconds, GOOGLE)
        assert found.source.result is AccessResult.UNREACHABLE
        assert found.until_wall <= T0 + 12 * HOUR
        assert meaning_at(record, seconds + HOUR, GOOGLE) is not AccessResult.UNREACHABLE  # it is requested again


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
@pytest.mark.parametrize("failure", [response(500), response(429), failed()])
@pytest.mark.parametrize("days", [13 / 24, 1.0, 15.0, 30.4])
def test_after_12_hours_the_last_good_copy_is_used_for_30_days(failure: FetchResult, days: float) -> None:
    seconds = days * DAY
    with_copy = record_of_failures(GOOGLE, seconds, copied=True, failure=failure)
    assert meaning_at(with_copy, seconds, GOOGLE) is AccessResult.SUCCESSFUL
    found = held_at(with_copy, seconds, GOOGLE)
    assert with_copy.trouble is not None
    assert found.refresh_wall == with_copy.trouble.retry_wall  # "while still trying to fetch a new version"
    assert found.until_wall == T0 + 12 * HOUR + 30 * DAY
    without = record_of_failures(GOOGLE, seconds, copied=False, failure=failure)
    assert meaning_at(without, seconds, GOOGLE) is AccessResult.UNAVAILABLE  # "assumes there's no crawl restrictions"


@pytest.mark.clause("Google robots.txt specification, Handling of errors")
@pytest.mark.parametrize("copied", [False, True])
def test_after_30_days_a_site_that_answers_is_open_and_one_that_does_not_is_closed(*, copied: bool) -> None:
    seconds = 31 * DAY
    up = record_of_failures(GOOGLE, seconds, copied=copied, failure=response(500))
    assert meaning_at(up, seconds, GOOGLE) is AccessResult.UNAVAILABLE
    assert meaning_at(up, seconds + HOUR, GOOGLE) is None  # "still keep checking for a new version"
    down = record_of_failures(GOOGLE, seconds, copied=copied, failure=failed())
    assert meaning_at(down, seconds, GOOGLE) is AccessResult.UNREACHABLE


def test_options_shorten_what_google_allows() -> None:
    policy = CacheOptions(on_too_many_requests="defer").policy(Dialect.GOOGLE)
    assert meaning_at(record_after((0, response(429)), policy=policy), 0, policy) is AccessResult.TOO_MANY_REQUESTS
    policy = CacheOptions(stale_if_unreachable_s=DAY).policy(Dialect.GOOGLE)
    record = record_of_failures(policy, 2 * DAY, copied=True, failure=response(500))
    assert meaning_at(record, 2 * DAY, policy) is AccessResult.UNREACHABLE  # the copy serves no longer


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


@pytest.mark.parametrize("dialect", Dialect)
@given(history=st.lists(st.tuples(st.floats(0.0, HOUR), _ANSWERS), min_size=1, max_size=8))
def test_in_12_hours_no_dialect_allows_without_an_answer_that_allows(
    dialect: Dialect, history: list[tuple[float, FetchResult]]
) -> None:
    policy = POLICIES[dialect]
    record, seconds = None, 0.0
    for pause, answered in history:
        seconds += pause
        record = record_after((seconds, answered), policy=policy, before=record)
        if isinstance(answered, FetchFault):
            allows = answered.kind is FaultKind.REDIRECT_LIMIT
        else:
            allows = answered.status in {200, 401, 404}
        if allows:
            return
        found = held_at(record, seconds, policy)
        assert found.source.result in {AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}

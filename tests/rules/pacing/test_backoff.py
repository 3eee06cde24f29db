"""What answers say about the pace that a host can stand, and which refusals close it."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse import PacingOptions
from politesse._pacing.backoff import HostBackoff
from politesse._pacing.pace import Pace
from politesse._pacing.refusals import IgnoredHeader, Meaning, meaning_of
from politesse.verdict import Bound, Refusal

NOW = 1_800_000_000.0
DAY_S = 86_400.0
FLOOR = Pace(1.0, Bound.FLOOR)
OPTIONS = PacingOptions()
PRICE = {"crawler-price": "USD 0.01"}
CHALLENGE = {"cf-mitigated": "challenge"}


def observe(
    backoff: HostBackoff,
    status: int | None,
    *,
    now: float = NOW,
    elapsed_s: float = 0.1,
    options: PacingOptions = OPTIONS,
    jitter: float = 0.0,
    interval_s: float = 1.0,
    **headers: str,
) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    backoff.observe(status, named, elapsed_s, now, now, options, jitter, interval_s)


def pace_after(*answers: tuple[int | None, float], options: PacingOptions = OPTIONS, now: float = NOW) -> Pace:
    backoff = HostBackoff()
    for status, elapsed_s in answers:
        observe(backoff, status, elapsed_s=elapsed_s, options=options)
    return backoff.slow(FLOOR, now, options)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_host_closes_for_ten_seconds_doubling_to_a_quarter_of_an_hour(status: int) -> None:
    backoff, now, closed_s = HostBackoff(), NOW, []
    for _ in range(15):
        observe(backoff, status, now=now)
        closed_s.append(backoff.closing.until_mono - now)
        assert backoff.closing.bound_by is Bound.BACKOFF
        now = backoff.closing.until_mono + 1.0
    assert closed_s == pytest.approx([min(10.0 * 2**number, 900.0) for number in range(15)])


def test_doubling_ends_long_before_numbers_do() -> None:
    backoff, now = HostBackoff(), NOW
    for _ in range(3000):
        observe(backoff, 429, now=now)
        assert backoff.closing.until_mono <= now + 900.0
        now = backoff.closing.until_mono


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, 10.0), (0.5, 10.5), (1.0, 11.0)])
def test_jitter_only_lengthens(jitter: float, expected: float) -> None:
    backoff = HostBackoff()
    observe(backoff, 429, jitter=jitter)
    assert backoff.closing.until_mono - NOW == pytest.approx(expected)


@pytest.mark.parametrize("status", [200, 301, 304, 401, 402, 403, 404, 410, 500, 529, 600, None])
def test_other_answers_close_nothing(status: int | None) -> None:
    backoff = HostBackoff()
    observe(backoff, status)
    assert backoff.closing.until_mono < NOW


@pytest.mark.parametrize("status", [200, 301, 304, 401, 403, 404, 410, 500, 529, 600])
def test_a_retry_after_closes_with_any_status_and_without_a_backoff(status: int) -> None:
    backoff = HostBackoff()
    observe(backoff, status, retry_after="600")
    assert backoff.closing == (NOW + 600.0, Bound.RETRY_AFTER)
    observe(backoff, status, now=NOW + 700.0, retry_after="0")
    assert backoff.closing.until_mono == NOW + 600.0
    assert backoff.remembered_until_mono <= NOW + 700.0 + 900.0  # a 401 or 403 is remembered for that long


@pytest.mark.parametrize(
    ("value", "expected_s", "bound_by"),
    [
        ("120", 120.0, Bound.RETRY_AFTER),
        (" 120 ", 120.0, Bound.RETRY_AFTER),
        ("86400", DAY_S, Bound.RETRY_AFTER),
        (formatdate(NOW + 300, usegmt=True), 300.0, Bound.RETRY_AFTER),
        # What cannot be meant is capped ...
        ("86401", DAY_S, Bound.RETRY_AFTER),
        ("99999999999", DAY_S, Bound.RETRY_AFTER),
        ("9" * 5000, DAY_S, Bound.RETRY_AFTER),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY_S, Bound.RETRY_AFTER),
        # ... or no licence to go on at once ...
        ("0", 10.0, Bound.RETRY_AFTER),
        ("9", 10.0, Bound.RETRY_AFTER),
        ("1.5", 10.0, Bound.RETRY_AFTER),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 10.0, Bound.RETRY_AFTER),
        (formatdate(NOW - 1, usegmt=True), 10.0, Bound.RETRY_AFTER),
        # ... or ignored.
        *((value, 10.0, Bound.BACKOFF) for value in ("-1", "soon", "", "nan", "inf", "1e3", "5 minutes", "\u0665")),
        ("Fri, 31 Dec 10000 23:59:59 GMT", 10.0, Bound.BACKOFF),
        ("Fri, 99 Dec 2026 99:99:99 GMT", 10.0, Bound.BACKOFF),
        ("x" * 100_000, 10.0, Bound.BACKOFF),
        ("\0\r\n", 10.0, Bound.BACKOFF),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_obeyed_within_reason(value: str, expected_s: float, bound_by: Bound, status: int) -> None:
    backoff = HostBackoff()
    observe(backoff, status, retry_after=value)
    assert backoff.closing.until_mono - NOW == pytest.approx(expected_s)
    assert backoff.closing.bound_by is bound_by


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=12), st.text(max_size=12))
def test_no_headers_raise_and_none_open_a_host_that_says_no(retry: str, limit: str, left: str, reset: str) -> None:
    backoff = HostBackoff()
    headers = {"retry-after": retry, "ratelimit": limit, "ratelimit-remaining": left, "ratelimit-reset": reset}
    backoff.observe(429, headers, 0.1, NOW, NOW, OPTIONS, 0.0)
    assert NOW + 10.0 <= backoff.closing.until_mono <= NOW + DAY_S
    backoff.observe(200, headers, 0.1, backoff.closing.until_mono, NOW, OPTIONS, 0.0)
    assert backoff.slow(FLOOR, NOW, OPTIONS).interval_s >= FLOOR.interval_s


@pytest.mark.parametrize("behind_s", [-7200, -600, 600, 7200])
def test_retry_after_as_a_date_is_obeyed_whatever_the_clock_of_the_server(behind_s: float) -> None:
    backoff = HostBackoff()
    date, retry_after = (formatdate(NOW - behind_s + wait_s, usegmt=True) for wait_s in (0, 300))
    observe(backoff, 503, date=date, retry_after=retry_after)
    assert backoff.closing.until_mono == NOW + 300
    assert backoff.closing.bound_by is Bound.RETRY_AFTER


def test_a_shorter_closing_does_not_open_earlier() -> None:
    backoff = HostBackoff()
    observe(backoff, 429, retry_after="600")
    observe(backoff, 503, now=NOW + 1, retry_after="5")
    backoff.close(NOW + 2, Bound.RATE_LIMIT)
    assert backoff.closing.until_mono == NOW + 600
    assert backoff.closing.bound_by is Bound.RETRY_AFTER


def test_requests_that_were_under_way_together_are_refused_once() -> None:
    backoff = HostBackoff()
    for number in range(5):
        observe(backoff, 429, now=NOW + 0.1 * number, elapsed_s=1.0)
    assert backoff.closing.until_mono == pytest.approx(NOW + 0.4 + 10)
    observe(backoff, 429, now=NOW + 12, elapsed_s=1.0)
    assert backoff.closing.until_mono == pytest.approx(NOW + 12 + 20)


def test_a_refusal_that_was_under_way_closes_the_host_whatever_answers_came_meanwhile() -> None:
    backoff = HostBackoff()
    observe(backoff, 503, now=NOW, retry_after="0")
    observe(backoff, 200, now=NOW + 1.5)
    observe(backoff, 503, now=NOW + 3.0, elapsed_s=4.0, retry_after="0")
    assert backoff.closing.until_mono == NOW + 13.0


@pytest.mark.parametrize(
    ("interval_s", "first_s"), [(0.0, 10.0), (1.0, 10.0), (2.5, 10.0), (3.0, 12.0), (60.0, 240.0), (3600.0, 900.0)]
)
def test_the_first_refusal_closes_a_host_for_four_intervals_and_ten_seconds_at_least(
    interval_s: float, first_s: float
) -> None:
    backoff = HostBackoff()
    observe(backoff, 503, interval_s=interval_s)
    assert backoff.closing.until_mono == NOW + first_s
    observe(backoff, 503, now=NOW + 2_000.0, interval_s=interval_s)
    assert backoff.closing.until_mono == NOW + 2_000.0 + min(2 * first_s, 900.0)


@pytest.mark.parametrize(
    ("statuses", "closed_s"),
    [
        ((503, 429, 503), [10, 20, 40]),
        ((503, 503, 503, 200, 503), [10, 20, 40, 40]),
        ((503, 503, 503, 404, 200, 503), [10, 20, 40, 20]),
        ((503, 503, 503, 301, 200, 304, 503), [10, 20, 40, 10]),
        ((503, 503, 503, 500, 503), [10, 20, 40, 80]),  # an error does not show that the host can take more
        ((503, 200, 503, 200, 503), [10, 10, 10]),
        ((503, 503, None, 503), [10, 20, 40]),
        ((503,) * 8 + (200, 503), [10, 20, 40, 80, 160, 320, 640, 900, 900]),
    ],
)
def test_refusals_in_a_row_double_and_answers_halve(statuses: tuple[int | None, ...], closed_s: list[float]) -> None:
    backoff, now, measured_s = HostBackoff(), NOW, []
    for status in statuses:
        observe(backoff, status, now=now)
        if status in {429, 503}:
            measured_s.append(backoff.closing.until_mono - now)
        now += 1_000.0
    assert measured_s == closed_s


def test_a_half_below_the_first_closing_is_forgotten() -> None:
    backoff = HostBackoff()
    observe(backoff, 503, interval_s=10.0)  # for 40 s
    observe(backoff, 200, now=NOW + 100.0, interval_s=10.0)
    observe(backoff, 503, now=NOW + 200.0, interval_s=15.0)
    assert backoff.closing.until_mono == NOW + 260.0


def test_a_first_closing_that_is_raised_is_no_longer_than_the_option_says() -> None:
    options = PacingOptions(backoff_min_s=1200.0)
    backoff = HostBackoff()
    for number in range(3):
        observe(backoff, 503, now=NOW + 10_000 * number, options=options)
        assert backoff.closing.until_mono == NOW + 10_000 * number + 1200.0
    short = HostBackoff()
    observe(short, 503, options=PacingOptions(backoff_max_s=12.0), retry_after="600")
    assert short.closing.until_mono == NOW + 12.0


def test_a_refusal_is_remembered_for_as_much_quiet_as_its_backoff() -> None:
    backoff = HostBackoff()
    observe(backoff, 429)
    assert backoff.remembered_until_mono == NOW + 20.0
    observe(backoff, 429, now=NOW + 15.0, retry_after="600")
    assert backoff.remembered_until_mono == NOW + 15.0 + 600.0 + 20.0


@pytest.mark.parametrize(
    ("least_s", "first_s"), [(10.0, 60.0), (60.0, 60.0), (120.0, 120.0), (1.0, 6.0), (7200.0, 7200.0)]
)
def test_a_robots_txt_that_is_refused_closes_the_host_for_as_long_as_it_is_not_fetched_again(
    least_s: float, first_s: float
) -> None:
    backoff, options, now = HostBackoff(), PacingOptions(backoff_min_s=least_s), NOW
    for number in range(12):
        backoff.observe_fetch({}, 0.1, now, now, options)
        assert backoff.closing.until_mono - now == min(first_s * 2**number, max(3600.0, least_s))
        now += DAY_S
    for _ in range(12):
        observe(backoff, 200, now=now, options=options)
    backoff.observe_fetch({"retry-after": "5"}, 0.1, now, now, options)
    assert (backoff.closing.until_mono - now, backoff.closing.bound_by) == (first_s, Bound.RETRY_AFTER)


def test_the_backoff_of_a_robots_txt_and_of_pages_are_two() -> None:
    backoff = HostBackoff()
    backoff.observe_fetch({}, 0.1, NOW, NOW, OPTIONS)
    observe(backoff, 503, now=NOW + 100.0)
    assert backoff.closing.until_mono == NOW + 110.0
    backoff.observe_fetch({}, 0.1, NOW + 200.0, NOW, OPTIONS)
    assert backoff.closing.until_mono == NOW + 320.0


def test_what_a_host_that_never_failed_said_need_not_be_remembered() -> None:
    backoff = HostBackoff()
    observe(backoff, 200)
    assert backoff.remembered_until_mono <= NOW
    observe(backoff, 200, ratelimit='"default";r=5;t=30')
    assert backoff.remembered_until_mono == NOW + 30


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(200, 0.2)], Pace(1.0, Bound.FLOOR)),
        ([(200, 4.0)], Pace(4.0, Bound.ADAPTIVE)),
        ([(200, 4.0), (200, 2.0)], Pace(3.0, Bound.ADAPTIVE)),
        ([(200, 2.0), (301, 4.0)], Pace(3.0, Bound.ADAPTIVE)),
        # Refusals and server errors never shorten a delay.
        *(([(200, 4.0), (status, 0.002)], Pace(4.0, Bound.ADAPTIVE)) for status in (429, 500, 503, 599)),
        # All other answers do, and so does a turn of which none was observed.
        *(([(200, 4.0), (status, 0.002)], Pace(2.001, Bound.ADAPTIVE)) for status in (304, 404, 410, None)),
        ([(429, 0.002), (200, 4.0)], Pace(4.0, Bound.ADAPTIVE)),
        ([(429, 0.002)] * 50 + [(200, 4.0)], Pace(4.0, Bound.ADAPTIVE)),
        # Slow ones lengthen it.
        ([(200, 4.0), (500, 8.0)], Pace(6.0, Bound.ADAPTIVE)),
        ([(None, 30.0)], Pace(30.0, Bound.ADAPTIVE)),
        ([(None, 30.0), (200, 1.0)], Pace(15.5, Bound.ADAPTIVE)),
        ([(None, 30.0), (200, 1.0), (200, 2.0)], Pace(8.75, Bound.ADAPTIVE)),
        # The delay has a ceiling.
        ([(200, 61.0)], Pace(60.0, Bound.ADAPTIVE)),
        ([(None, 86_400.0)], Pace(60.0, Bound.ADAPTIVE)),
    ],
)
def test_a_slow_host_is_asked_less_often(answers: list[tuple[int | None, float]], expected: Pace) -> None:
    assert pace_after(*answers) == expected


ANSWERS = st.lists(st.tuples(st.sampled_from((200, 304, 404, 429, 500, None)), st.floats(0.001, 60.0)), max_size=12)


@given(ANSWERS)
def test_no_error_among_the_answers_makes_the_pace_faster(answers: list[tuple[int | None, float]]) -> None:
    worked = [answer for answer in answers if answer[0] not in {429, 500}]
    with_errors, without = pace_after(*answers), pace_after(*worked)
    assert with_errors.interval_s >= without.interval_s - 1e-9


def test_ceiling_of_the_adaptive_delay_is_an_option() -> None:
    assert pace_after((200, 61.0), options=PacingOptions(adaptive_max_s=5.0)) == Pace(5.0, Bound.ADAPTIVE)


def test_adaptive_delay_is_off_at_factor_0_and_grows_with_it() -> None:
    assert pace_after((200, 4.0), options=PacingOptions(adaptive_factor=0.0)) == FLOOR
    assert pace_after((200, 4.0), options=PacingOptions(adaptive_factor=2.5)) == Pace(10.0, Bound.ADAPTIVE)


def test_a_quota_is_spread_over_its_time() -> None:
    backoff = HostBackoff()
    observe(backoff, 200, ratelimit='"default";r=10;t=60')
    assert backoff.slow(FLOOR, NOW + 59, OPTIONS) == Pace(6.0, Bound.RATE_LIMIT)
    assert backoff.slow(FLOOR, NOW + 60, OPTIONS) == FLOOR
    assert backoff.slow(Pace(9.0, Bound.CRAWL_DELAY), NOW, OPTIONS).bound_by is Bound.CRAWL_DELAY
    assert backoff.closing.until_mono < NOW


@pytest.mark.parametrize(
    ("value", "closed_s"),
    [('"default";r=0;t=60', 60.0), ('"default";r=0;t=999999', DAY_S), ('"default";r=0;t=999999999999999', DAY_S)],
)
def test_a_spent_quota_closes_the_host_before_a_429_has_to(value: str, closed_s: float) -> None:
    backoff = HostBackoff()
    observe(backoff, 200, ratelimit=value)
    assert backoff.closing.until_mono == NOW + closed_s
    assert backoff.closing.bound_by is Bound.RATE_LIMIT


def test_the_later_of_retry_after_and_quota_binds() -> None:
    backoff = HostBackoff()
    observe(backoff, 429, retry_after="5", ratelimit='"default";r=0;t=60')
    assert (backoff.closing.until_mono, backoff.closing.bound_by) == (NOW + 60, Bound.RATE_LIMIT)


def ignored(status: int, **headers: str) -> list[IgnoredHeader]:
    """What of an answer is not obeyed as it stands."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return list(HostBackoff().observe(status, named, 0.1, NOW, NOW, OPTIONS, 0.0))


@pytest.mark.parametrize(
    ("value", "applied_s", "asked_s"),
    [
        ("-1", 10.0, None),
        ("soon", 10.0, None),
        ("", 10.0, None),
        ("0", 10.0, 0.0),
        ("9", 10.0, 9.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 10.0, 0.0),
        ("99999999999", DAY_S, 9_999_999_999.0),  # the largest number that is read
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY_S, 253_402_300_799.0 - NOW),
    ],
)
def test_a_retry_after_that_is_ignored_or_capped_is_told(value: str, applied_s: float, asked_s: float | None) -> None:
    assert ignored(429, retry_after=value) == [IgnoredHeader("retry-after", value, applied_s, asked_s)]


@pytest.mark.parametrize("value", ["10", "120", "86400", formatdate(NOW + 300, usegmt=True)])
def test_a_retry_after_that_is_obeyed_is_not(value: str) -> None:
    assert ignored(503, retry_after=value) == []
    assert ignored(429) == []
    assert ignored(200, retry_after=value) == []
    assert ignored(200, retry_after="soon") == [IgnoredHeader("retry-after", "soon", None)]


def test_what_is_told_of_a_header_is_short_and_printable() -> None:
    [told] = ignored(429, retry_after="\x1b[2J" + "x" * 100_000)
    assert told.value == "\\x1b[2J" + "x" * 96


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"ratelimit": "garbage"}, [IgnoredHeader("ratelimit", "garbage", None)]),
        ({"ratelimit": '"a";r=5;t=-1'}, [IgnoredHeader("ratelimit", '"a";r=5;t=-1', None)]),
        ({"ratelimit": '"a";r=5;t=86401'}, [IgnoredHeader("ratelimit", '"a";r=5;t=86401', DAY_S, 86_401.0)]),
        (
            {"ratelimit": '"a";r=0;t=99999999999'},
            [IgnoredHeader("ratelimit", '"a";r=0;t=99999999999', DAY_S, 99_999_999_999.0)],
        ),
        ({"ratelimit_policy": "soon"}, [IgnoredHeader("ratelimit-policy", "soon", None)]),
        ({"x_ratelimit_remaining": "many"}, [IgnoredHeader("x-ratelimit-remaining", "many", None)]),
        ({"ratelimit": '"a";r=5;t=30'}, []),
        ({"server": "garbage"}, []),
    ],
)
def test_a_quota_that_is_ignored_or_capped_is_told(headers: dict[str, str], told: list[IgnoredHeader]) -> None:
    assert ignored(200, **headers) == told


def test_refusals_without_end_double_even_what_the_server_asks_for() -> None:
    backoff, now, closed_s = HostBackoff(), NOW, []
    for _ in range(4):
        observe(backoff, 429, now=now, retry_after="0")
        closed_s.append(backoff.closing.until_mono - now)
        now = backoff.closing.until_mono
    assert closed_s == [10.0, 20.0, 40.0, 80.0]
    for _ in range(4):
        observe(backoff, 200, now=now)  # it does answer again: what it asks for is enough again
    observe(backoff, 429, now=now + 1, retry_after="12")
    assert backoff.closing.until_mono == now + 13


# Refusals of this crawler


def answer(
    backoff: HostBackoff,
    *statuses: int,
    headers: dict[str, str] | None = None,
    now: float = NOW,
    options: PacingOptions = OPTIONS,
    elapsed_s: float = 0.1,
) -> None:
    for status in statuses:
        backoff.observe(status, headers or {}, elapsed_s, now, now, options, 0.0, 1.0)


@pytest.mark.parametrize(
    ("status", "headers", "meaning"),
    [
        *((status, {}, Meaning.SUCCESS) for status in (200, 204, 206, 299, 304)),
        *((status, {}, Meaning.OTHER) for status in (100, 301, 302, 307, 400, 402, 404, 410, 418, 451, 600, 999)),
        *((status, {}, Meaning.DENIED) for status in (401, 403)),
        *((status, {}, Meaning.BUSY) for status in (429, 502, 503, 504)),
        *((status, {}, Meaning.ERROR) for status in (500, 501, 505, 520, 599)),
        *((status, CHALLENGE, Meaning.REFUSED) for status in (200, 403, 429, 503)),
        (403, {"cf-mitigated": " Challenge "}, Meaning.REFUSED),
        (403, {"cf-mitigated": "block"}, Meaning.DENIED),
        (402, PRICE, Meaning.REFUSED),
        (200, PRICE, Meaning.SUCCESS),
        (403, PRICE, Meaning.DENIED),
        (401, {"www-authenticate": "License"}, Meaning.DENIED),
    ],
)
def test_meaning_of_an_answer(status: int, headers: dict[str, str], meaning: Meaning) -> None:
    assert meaning_of(status, headers) is meaning


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (402, PRICE, "402, crawler-price: USD 0.01"),
        (403, CHALLENGE, "403, cf-mitigated: challenge"),
        (
            402,
            PRICE | {"www-authenticate": 'License realm="x"'},
            '402, crawler-price: USD 0.01, WWW-Authenticate: License realm="x"',
        ),
        (402, {"crawler-price": "\x1b[2J" + "x" * 1000}, "402, crawler-price: \\x1b[2J" + "x" * 96),
    ],
)
def test_a_refusal_closes_the_host_for_a_quarter_of_an_hour_doubled_each_time(
    status: int, headers: dict[str, str], words: str
) -> None:
    backoff, now, closed_s = HostBackoff(), NOW, []
    for times in range(1, 10):
        answer(backoff, status, headers=headers, now=now)
        assert backoff.closing.bound_by is Bound.REFUSED
        assert backoff.refusal(OPTIONS) == Refusal(times, words)
        closed_s.append(backoff.closing.until_mono - now)
        now = backoff.closing.until_mono + 1.0
        backoff.rested(1.0, now, OPTIONS)
    assert closed_s == [900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0, DAY_S, DAY_S]


@pytest.mark.parametrize("status", [401, 403])
def test_the_tenth_denial_in_a_row_is_a_refusal_and_so_is_each_one_after_it(status: int) -> None:
    backoff = HostBackoff()
    answer(backoff, *[status] * 9)
    assert backoff.closing.until_mono < NOW
    answer(backoff, status)
    assert backoff.closing == (NOW + 900.0, Bound.REFUSED)
    answer(backoff, status, now=NOW + 901.0)
    assert backoff.closing == (NOW + 901.0 + 1800.0, Bound.REFUSED)
    assert backoff.refusal(OPTIONS) == Refusal(2, str(status))


@pytest.mark.parametrize(
    ("between", "closes"), [(200, False), (304, False), (301, True), (404, True), (429, True), (500, True)]
)
def test_only_a_success_ends_a_row_of_denials(between: int, *, closes: bool) -> None:
    backoff = HostBackoff()
    answer(backoff, *[403] * 9, between, 403)
    assert (backoff.closing.bound_by is Bound.REFUSED) is closes


def test_denials_are_forgotten_after_a_quarter_of_an_hour_without_any() -> None:
    backoff = HostBackoff()
    answer(backoff, *[403] * 9)
    assert backoff.remembered_until_mono == NOW + 900.0
    backoff.rested(901.0, NOW + 901.0, OPTIONS)
    answer(backoff, 403, now=NOW + 901.0)
    assert backoff.closing.until_mono < NOW


def test_each_success_halves_the_closing() -> None:
    backoff = HostBackoff()
    for times in range(3):
        answer(backoff, 402, headers=PRICE, now=NOW + 10_000.0 * times)
    answer(backoff, 301, 404, now=NOW + 40_000.0)  # no success
    assert backoff.refusal(OPTIONS) == Refusal(3, "402, crawler-price: USD 0.01")
    answer(backoff, 200, now=NOW + 40_000.0)
    assert backoff.refusal(OPTIONS) == Refusal(2, "402, crawler-price: USD 0.01")
    answer(backoff, 200, 200, now=NOW + 40_000.0)
    assert backoff.refusal(OPTIONS) is None
    answer(backoff, 402, headers=PRICE, now=NOW + 50_000.0)
    assert backoff.closing.until_mono == NOW + 50_000.0 + 900.0


def test_refusals_of_requests_that_were_under_way_together_count_once() -> None:
    backoff = HostBackoff()
    for number in range(5):
        answer(backoff, 402, headers=PRICE, now=NOW + number / 10, elapsed_s=1.0)
    assert backoff.refusal(OPTIONS) == Refusal(1, "402, crawler-price: USD 0.01")


def test_a_longer_retry_after_of_a_refusal_counts() -> None:
    backoff = HostBackoff()
    answer(backoff, 402, headers=PRICE | {"retry-after": "5000"})
    assert backoff.closing == (NOW + 5000.0, Bound.REFUSED)
    answer(backoff, 402, headers=PRICE | {"retry-after": "5"}, now=NOW + 6000.0)
    assert backoff.closing == (NOW + 6000.0 + 1800.0, Bound.REFUSED)


def test_the_numbers_are_options() -> None:
    options = PacingOptions(refused_min_s=60.0, refused_after=2, backoff_max_s=100.0)
    backoff = HostBackoff()
    answer(backoff, 403, options=options)
    assert backoff.closing.until_mono < NOW
    answer(backoff, 403, options=options)
    assert backoff.closing.until_mono == NOW + 60.0
    answer(backoff, 403, now=NOW + 70.0, options=options)
    assert backoff.closing.until_mono == NOW + 70.0 + 100.0
    answer(backoff, 403, now=NOW + 180.0, options=options)
    assert backoff.refusal(options) == Refusal(3, "403")


def test_an_error_doubles_the_delay_and_the_third_in_a_row_counts_as_busy() -> None:
    backoff, pace = HostBackoff(), Pace(1.0, Bound.FLOOR)
    delays_s = []
    for _ in range(2):
        backoff.observe(500, {}, 0.01, NOW, NOW, OPTIONS, 0.0, pace.interval_s)
        pace = backoff.slow(Pace(1.0, Bound.FLOOR), NOW, OPTIONS)
        delays_s.append(pace.interval_s)
    assert delays_s == [2.0, 4.0]
    assert backoff.closing.until_mono < NOW
    backoff.observe(501, {}, 0.01, NOW, NOW, OPTIONS, 0.0, pace.interval_s)
    assert backoff.closing == (NOW + 16.0, Bound.BACKOFF)
    answer(backoff, 500, now=NOW + 20.0)
    assert backoff.closing == (NOW + 20.0 + 32.0, Bound.BACKOFF)


def test_a_delay_after_errors_has_a_ceiling_and_falls_with_successes() -> None:
    backoff = HostBackoff()
    backoff.observe(500, {}, 0.01, NOW, NOW, OPTIONS, 0.0, 50.0)
    assert backoff.slow(Pace(1.0, Bound.FLOOR), NOW, OPTIONS) == Pace(60.0, Bound.ADAPTIVE)
    answer(backoff, *[200] * 6)
    assert backoff.slow(Pace(1.0, Bound.FLOOR), NOW, OPTIONS).interval_s < 2.0


@pytest.mark.parametrize("between", [200, 404, 403])
def test_an_answer_without_an_error_ends_a_row_of_errors(between: int) -> None:
    backoff = HostBackoff()
    answer(backoff, 500, 500, between, 500, 500)
    assert backoff.closing.until_mono < NOW


def test_without_an_adaptive_factor_errors_do_not_slow_but_close() -> None:
    options, backoff = PacingOptions(adaptive_factor=0.0), HostBackoff()
    answer(backoff, 500, 500, options=options)
    assert backoff.slow(Pace(1.0, Bound.FLOOR), NOW, options) == Pace(1.0, Bound.FLOOR)
    answer(backoff, 500, options=options)
    assert backoff.closing.bound_by is Bound.BACKOFF


def test_a_refusal_outlives_its_process_with_its_number() -> None:
    backoff, later = HostBackoff(), HostBackoff()
    for _ in range(3):
        answer(backoff, 402, headers=PRICE, now=NOW)
    answer(backoff, 402, headers=PRICE, now=NOW + 5_000.0)
    later.recall(backoff.record(NOW + 5_000.0), NOW + 5_000.0, OPTIONS)
    assert later.closing == backoff.closing
    assert later.refusal(OPTIONS) == Refusal(2, "")

"""What answers say about the pace that a host can stand, and which refusals close it."""

from collections.abc import Iterable
from email.utils import formatdate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from politesse import PacingOptions
from politesse._pacing.demand import Demand
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
    backoff: Demand,
    *statuses: int | None,
    after_s: float = 0.0,
    elapsed_s: float = 0.1,
    options: PacingOptions = OPTIONS,
    jitter: float = 0.0,
    interval_s: float = 1.0,
    headers: dict[str, str] | None = None,
    **more: str,
) -> list[IgnoredHeader]:
    """Observe answers so many seconds after NOW; return what headers of the last are not obeyed as they stand."""
    named = {name.replace("_", "-"): value for name, value in more.items()} | (headers or {})
    now, ignored = NOW + after_s, list[IgnoredHeader]()
    for status in statuses:
        ignored = list(backoff.observe(status, named, elapsed_s, now, now, options, jitter, interval_s))
    return ignored


def after(*statuses: int | None, **said: Any) -> Demand:
    """Return what is known after answers."""
    backoff = Demand()
    observe(backoff, *statuses, **said)
    return backoff


def closed_s(backoff: Demand) -> float:
    """Return how long after NOW the host is closed; less than 0 if it is not."""
    return round(backoff.closing.until_mono - NOW, 6)


def closings(statuses: Iterable[int | None], **said: Any) -> list[float]:
    """Return for how long each refusal closes a host whose every request comes when it has been open for long."""
    backoff, measured_s = Demand(), list[float]()
    for place, status in enumerate(statuses):
        observe(backoff, status, after_s=place * 100_000.0, **said)
        if status in {429, 502, 503, 504}:
            measured_s.append(round(closed_s(backoff) - place * 100_000.0, 6))
    return measured_s


def slowest(backoff: Demand, pace: Pace, now_mono: float = NOW, options: PacingOptions = OPTIONS) -> Pace:
    return backoff.start(pace, (), now_mono, NOW, options).pace


def pace_after(*answers: tuple[int | None, float], options: PacingOptions = OPTIONS) -> Pace:
    backoff = Demand()
    for status, elapsed_s in answers:
        observe(backoff, status, elapsed_s=elapsed_s, options=options)
    return slowest(backoff, FLOOR, NOW, options)


def test_a_host_closes_for_ten_seconds_doubling_to_a_quarter_of_an_hour() -> None:
    doubled = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0] + [900.0] * 2_993  # it ends before numbers do
    assert [status for status in (429, 502, 503, 504) if closings([status] * 3_000) != doubled] == []
    assert after(429).closing.bound_by is Bound.BACKOFF


def test_jitter_only_lengthens() -> None:
    lengths = {0.0: 10.0, 0.5: 10.5, 1.0: 11.0}
    assert {jitter: closed_s(after(429, jitter=jitter)) for jitter in lengths} == lengths


def test_other_answers_close_nothing_without_a_retry_after_which_closes_without_a_backoff() -> None:
    for status in (200, 301, 304, 401, 402, 403, 404, 410, 500, 529, 600, None):
        assert closed_s(after(status)) < 0.0, status
        if status not in {402, None}:
            backoff = after(status, retry_after="600")
            assert backoff.closing == (NOW + 600.0, Bound.RETRY_AFTER), status
            observe(backoff, status, after_s=700.0, retry_after="0")
            assert closed_s(backoff) == 600.0, status
            assert backoff.remembered_until_mono <= NOW + 700.0 + 900.0  # a 401 or 403 is remembered for that long


def test_retry_after_is_obeyed_within_reason_and_what_is_not_obeyed_is_told() -> None:
    soon, past = (formatdate(NOW + seconds, usegmt=True) for seconds in (300, -1))
    table: dict[str, tuple[float, Bound, float | None]] = {
        "10": (10.0, Bound.RETRY_AFTER, 10.0),
        "120": (120.0, Bound.RETRY_AFTER, 120.0),
        " 120 ": (120.0, Bound.RETRY_AFTER, 120.0),
        "86400": (DAY_S, Bound.RETRY_AFTER, DAY_S),
        soon: (300.0, Bound.RETRY_AFTER, 300.0),
        # What cannot be meant is capped ...
        "86401": (DAY_S, Bound.RETRY_AFTER, 86_401.0),
        "99999999999": (DAY_S, Bound.RETRY_AFTER, 9_999_999_999.0),  # the largest number that is read
        "9" * 5000: (DAY_S, Bound.RETRY_AFTER, 9_999_999_999.0),
        "Fri, 31 Dec 9999 23:59:59 GMT": (DAY_S, Bound.RETRY_AFTER, 253_402_300_799.0 - NOW),
        # ... or no licence to go on at once ...
        "0": (10.0, Bound.RETRY_AFTER, 0.0),
        "9": (10.0, Bound.RETRY_AFTER, 9.0),
        "1.5": (10.0, Bound.RETRY_AFTER, 1.5),
        "Thu, 01 Jan 1970 00:00:00 GMT": (10.0, Bound.RETRY_AFTER, 0.0),
        past: (10.0, Bound.RETRY_AFTER, 0.0),
        # ... or ignored.
        **dict.fromkeys(["-1", "soon", "", "nan", "inf", "1e3", "5 minutes", "\u0665"], (10.0, Bound.BACKOFF, None)),
        "Fri, 31 Dec 10000 23:59:59 GMT": (10.0, Bound.BACKOFF, None),
        "Fri, 99 Dec 2026 99:99:99 GMT": (10.0, Bound.BACKOFF, None),
        "x" * 100_000: (10.0, Bound.BACKOFF, None),
        "\0\r\n": (10.0, Bound.BACKOFF, None),
    }

    def read(status: int, value: str) -> tuple[float, Bound, float | None]:
        backoff = Demand()
        told = observe(backoff, status, retry_after=value)
        seconds, bound_by = closed_s(backoff), backoff.closing.bound_by
        assert [one.applied_s for one in told] in ([], [seconds])
        return seconds, bound_by, told[0].asked_s if told else seconds

    assert {value: read(429, value) for value in table} == table
    assert {value: read(503, value) for value in table} == table
    assert observe(Demand(), 429) == observe(Demand(), 200, retry_after="120") == []
    assert observe(Demand(), 200, retry_after="soon") == [IgnoredHeader("retry-after", "soon", None)]
    assert observe(Demand(), 429, retry_after="9") == [IgnoredHeader("retry-after", "9", 10.0, 9.0)]
    [told] = observe(Demand(), 429, retry_after="\x1b[2J" + "x" * 100_000)
    assert told.value == "\\x1b[2J" + "x" * 96, "short and printable"


def test_retry_after_as_a_date_is_obeyed_whatever_the_clock_of_the_server() -> None:
    for behind_s in (-7200, -600, 600, 7200):
        date, retry_after = (formatdate(NOW - behind_s + wait_s, usegmt=True) for wait_s in (0, 300))
        assert after(503, date=date, retry_after=retry_after).closing == (NOW + 300.0, Bound.RETRY_AFTER), behind_s


def test_requests_that_were_under_way_together_are_refused_once() -> None:
    busy, refused = Demand(), Demand()
    for number in range(5):
        observe(busy, 429, after_s=0.1 * number, elapsed_s=1.0)
        observe(refused, 402, headers=PRICE, after_s=0.1 * number, elapsed_s=1.0)
    assert closed_s(busy) == 0.4 + 10.0
    observe(busy, 429, after_s=12.0, elapsed_s=1.0)
    assert closed_s(busy) == 12.0 + 20.0
    assert refused.refusal(OPTIONS) == Refusal(1, "402, crawler-price: USD 0.01")


def test_a_refusal_that_was_under_way_closes_the_host_whatever_answers_came_meanwhile() -> None:
    backoff = after(503, retry_after="0")
    observe(backoff, 200, after_s=1.5)
    observe(backoff, 503, after_s=3.0, elapsed_s=4.0, retry_after="0")
    assert closed_s(backoff) == 13.0


def test_the_first_refusal_closes_a_host_for_four_intervals_and_ten_seconds_at_least() -> None:
    first_s = {0.0: 10.0, 1.0: 10.0, 2.5: 10.0, 3.0: 12.0, 60.0: 240.0, 3600.0: 900.0}
    twice = {interval_s: [first, min(2 * first, 900.0)] for interval_s, first in first_s.items()}
    assert {interval_s: closings([503, 503], interval_s=interval_s) for interval_s in first_s} == twice


def test_refusals_in_a_row_double_and_answers_halve() -> None:
    table: dict[tuple[int | None, ...], list[float]] = {
        (503, 429, 503): [10, 20, 40],
        (503, 503, 503, 200, 503): [10, 20, 40, 40],
        (503, 503, 503, 404, 200, 503): [10, 20, 40, 20],
        (503, 503, 503, 301, 200, 304, 503): [10, 20, 40, 10],
        (503, 503, 503, 500, 503): [10, 20, 40, 80],  # an error does not show that the host can take more
        (503, 200, 503, 200, 503): [10, 10, 10],
        (503, 503, None, 503): [10, 20, 40],
        (503,) * 8 + (200, 503): [10, 20, 40, 80, 160, 320, 640, 900, 900],
    }
    assert {statuses: closings(statuses) for statuses in table} == table


def test_a_half_below_the_first_closing_is_forgotten() -> None:
    backoff = after(503, interval_s=10.0)  # for 40 s
    observe(backoff, 200, after_s=100.0, interval_s=10.0)
    observe(backoff, 503, after_s=200.0, interval_s=15.0)
    assert closed_s(backoff) == 260.0


def test_the_first_and_the_longest_closing_are_options() -> None:
    assert closings([503] * 3, options=PacingOptions(backoff_min_s=1200.0)) == [1200.0] * 3
    assert closings([503], options=PacingOptions(backoff_max_s=12.0), retry_after="600") == [12.0]


def test_a_refusal_is_remembered_for_as_much_quiet_as_its_backoff() -> None:
    backoff = after(429)
    assert backoff.remembered_until_mono == NOW + 20.0
    observe(backoff, 429, after_s=15.0, retry_after="600")
    assert backoff.remembered_until_mono == NOW + 15.0 + 600.0 + 20.0


def test_a_robots_txt_that_is_refused_closes_the_host_for_as_long_as_it_is_not_fetched_again() -> None:
    for least_s, first_s in ((10.0, 60.0), (60.0, 60.0), (120.0, 120.0), (1.0, 6.0), (7200.0, 7200.0)):
        backoff, options, now = Demand(), PacingOptions(backoff_min_s=least_s), NOW
        for number in range(12):
            backoff.observe_fetch({}, now, now, options)
            assert backoff.closing.until_mono - now == min(first_s * 2**number, max(3600.0, least_s)), least_s
            now += DAY_S
        observe(backoff, *[200] * 12, after_s=now - NOW, options=options)
        backoff.observe_fetch({"retry-after": "5"}, now, now, options)
        assert backoff.closing == (now + first_s, Bound.RETRY_AFTER), least_s


def test_the_backoff_of_a_robots_txt_and_of_pages_are_two() -> None:
    backoff = Demand()
    backoff.observe_fetch({}, NOW, NOW, OPTIONS)
    observe(backoff, 503, after_s=100.0)
    assert closed_s(backoff) == 110.0
    backoff.observe_fetch({}, NOW + 200.0, NOW, OPTIONS)
    assert closed_s(backoff) == 320.0


def test_a_refused_robots_txt_beside_a_page_leaves_the_backoff_of_pages_to_double() -> None:
    backoff = after(503)
    backoff.observe_fetch({}, NOW + 100.05, NOW, OPTIONS)
    observe(backoff, 503, after_s=100.1)  # its request began at 100.0
    assert backoff.backoff_s == 20.0
    backoff = after(503, after_s=-0.05)
    backoff.observe_fetch({}, NOW, NOW, OPTIONS)
    assert backoff.fetch_backoff_s == 60.0


def test_what_a_host_that_never_failed_said_need_not_be_remembered() -> None:
    backoff = after(200)
    assert backoff.remembered_until_mono <= NOW
    observe(backoff, 200, ratelimit='"default";r=5;t=30')
    assert backoff.remembered_until_mono == NOW + 30


def test_a_slow_host_is_asked_less_often() -> None:
    def row(interval_s: float, *answers: tuple[int | None, float]) -> tuple[tuple[tuple[int | None, float], ...], Pace]:
        return answers, Pace(interval_s, Bound.ADAPTIVE)

    table = [
        (((200, 0.2),), FLOOR),
        row(4.0, (200, 4.0)),
        row(3.0, (200, 4.0), (200, 2.0)),
        row(3.0, (200, 2.0), (301, 4.0)),
        # Refusals and server errors never shorten a delay.
        *(row(4.0, (200, 4.0), (status, 0.002)) for status in (429, 500, 503, 599)),
        # All other answers do, and so does a turn of which none was observed.
        *(row(2.001, (200, 4.0), (status, 0.002)) for status in (304, 404, 410, None)),
        row(4.0, (429, 0.002), (200, 4.0)),
        row(4.0, *[(429, 0.002)] * 50, (200, 4.0)),
        # Slow ones lengthen it.
        row(6.0, (200, 4.0), (500, 8.0)),
        row(30.0, (None, 30.0)),
        row(15.5, (None, 30.0), (200, 1.0)),
        row(8.75, (None, 30.0), (200, 1.0), (200, 2.0)),
        # The delay has a ceiling.
        row(60.0, (200, 61.0)),
        row(60.0, (None, 86_400.0)),
    ]
    assert [(answers, pace_after(*answers)) for answers, _ in table] == table
    assert pace_after((200, 61.0), options=PacingOptions(adaptive_max_s=5.0)) == Pace(5.0, Bound.ADAPTIVE)
    assert pace_after((200, 4.0), options=PacingOptions(adaptive_factor=0.0)) == FLOOR
    assert pace_after((200, 4.0), options=PacingOptions(adaptive_factor=2.5)) == Pace(10.0, Bound.ADAPTIVE)


ANSWERS = st.lists(st.tuples(st.sampled_from((200, 304, 404, 429, 500, None)), st.floats(0.001, 60.0)), max_size=12)


@given(ANSWERS)
def test_no_error_among_the_answers_makes_the_pace_faster(answers: list[tuple[int | None, float]]) -> None:
    worked = [answer for answer in answers if answer[0] not in {429, 500}]
    assert pace_after(*answers).interval_s >= pace_after(*worked).interval_s - 1e-9


def test_a_quota_is_spread_over_its_time() -> None:
    backoff = after(200, ratelimit='"default";r=10;t=60')
    assert slowest(backoff, FLOOR, NOW + 59, OPTIONS) == Pace(6.0, Bound.RATE_LIMIT)
    assert slowest(backoff, FLOOR, NOW + 60, OPTIONS) == FLOOR
    assert slowest(backoff, Pace(9.0, Bound.CRAWL_DELAY), NOW, OPTIONS).bound_by is Bound.CRAWL_DELAY
    assert closed_s(backoff) < 0.0


def test_a_spent_quota_closes_the_host_before_a_429_has_to_and_the_later_of_both_binds() -> None:
    for seconds, expected_s in ((60, 60.0), (999_999, DAY_S), (999_999_999_999_999, DAY_S)):
        spent = f'"default";r=0;t={seconds}'
        assert after(200, ratelimit=spent).closing == (NOW + expected_s, Bound.RATE_LIMIT)
        assert after(429, retry_after="5", ratelimit=spent).closing == (NOW + expected_s, Bound.RATE_LIMIT)


def test_a_quota_that_is_ignored_or_capped_is_told() -> None:
    table: list[tuple[str, str, list[tuple[float | None, ...]]]] = [
        ("ratelimit", "garbage", [(None,)]),
        ("ratelimit", '"a";r=5;t=-1', [(None,)]),
        ("ratelimit", '"a";r=5;t=86401', [(DAY_S, 86_401.0)]),
        ("ratelimit", '"a";r=0;t=99999999999', [(DAY_S, 99_999_999_999.0)]),
        ("ratelimit-policy", "soon", [(None,)]),
        ("x-ratelimit-remaining", "many", [(None,)]),
        ("ratelimit", '"a";r=5;t=30', []),
        ("server", "garbage", []),
    ]
    told = [observe(Demand(), 200, headers={name: value}) for name, value, _ in table]
    assert told == [[IgnoredHeader(name, value, *seconds) for seconds in rows] for name, value, rows in table]


def test_refusals_without_end_double_even_what_the_server_asks_for() -> None:
    backoff, now_s = Demand(), 0.0
    for expected_s in (10.0, 20.0, 40.0, 80.0):
        observe(backoff, 429, after_s=now_s, retry_after="0")
        assert closed_s(backoff) == now_s + expected_s
        now_s += expected_s
    observe(backoff, *[200] * 4, after_s=now_s)  # it does answer again: what it asks for is enough again
    observe(backoff, 429, after_s=now_s + 1.0, retry_after="12")
    assert closed_s(backoff) == now_s + 13.0


# Refusals of this crawler


def test_meaning_of_an_answer() -> None:
    plain = {
        Meaning.SUCCESS: (200, 204, 206, 299, 304),
        Meaning.OTHER: (100, 301, 302, 307, 400, 402, 404, 410, 418, 451, 600, 999),
        Meaning.DENIED: (401, 403),
        Meaning.BUSY: (429, 502, 503, 504),
        Meaning.ERROR: (500, 501, 505, 520, 599),
    }
    rows: list[tuple[int, dict[str, str], Meaning]] = [
        *((status, {}, meaning) for meaning, statuses in plain.items() for status in statuses),
        *((status, CHALLENGE, Meaning.REFUSED) for status in (200, 403, 429, 503)),
        (403, {"cf-mitigated": " Challenge "}, Meaning.REFUSED),
        (403, {"cf-mitigated": "block"}, Meaning.DENIED),
        (402, PRICE, Meaning.REFUSED),
        (200, PRICE, Meaning.SUCCESS),
        (403, PRICE, Meaning.DENIED),
        (401, {"www-authenticate": "License"}, Meaning.DENIED),
    ]
    assert [(status, headers, meaning_of(status, headers)) for status, headers, _ in rows] == rows


def test_a_refusal_closes_the_host_for_a_quarter_of_an_hour_doubled_each_time() -> None:
    licence = {"www-authenticate": 'License realm="x"'}
    for status, headers, words in (
        (402, PRICE, "402, crawler-price: USD 0.01"),
        (403, CHALLENGE, "403, cf-mitigated: challenge"),
        (402, PRICE | licence, '402, crawler-price: USD 0.01, WWW-Authenticate: License realm="x"'),
        (402, {"crawler-price": "\x1b[2J" + "x" * 1000}, "402, crawler-price: \\x1b[2J" + "x" * 96),
    ):
        backoff, now_s = Demand(), 0.0
        doubled = [900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0, DAY_S, DAY_S]
        for times, expected_s in enumerate(doubled, start=1):
            observe(backoff, status, after_s=now_s, headers=headers)
            assert backoff.closing == (NOW + now_s + expected_s, Bound.REFUSED)
            assert backoff.refusal(OPTIONS) == Refusal(times, words)
            now_s += expected_s + 1.0
            backoff.rested(1.0, NOW + now_s, OPTIONS)


def test_the_tenth_denial_in_a_row_is_a_refusal_and_so_is_each_one_after_it() -> None:
    for status in (401, 403):
        backoff = after(*[status] * 9)
        assert closed_s(backoff) < 0.0
        observe(backoff, status)
        assert backoff.closing == (NOW + 900.0, Bound.REFUSED)
        observe(backoff, status, after_s=901.0)
        assert backoff.closing == (NOW + 901.0 + 1800.0, Bound.REFUSED)
        assert backoff.refusal(OPTIONS) == Refusal(2, str(status))


def test_only_a_success_ends_a_row_of_denials() -> None:
    closes = {200: False, 304: False, 301: True, 404: True, 429: True, 500: True}
    refused = {between: after(*[403] * 9, between, 403).closing.bound_by is Bound.REFUSED for between in closes}
    assert refused == closes


def test_denials_are_forgotten_after_a_quarter_of_an_hour_without_any() -> None:
    backoff = after(*[403] * 9)
    assert backoff.remembered_until_mono == NOW + 900.0
    backoff.rested(901.0, NOW + 901.0, OPTIONS)
    observe(backoff, 403, after_s=901.0)
    assert closed_s(backoff) < 0.0


def test_each_success_halves_the_closing() -> None:
    backoff = Demand()
    for times in range(3):
        observe(backoff, 402, headers=PRICE, after_s=10_000.0 * times)
    for statuses, left in (((301, 404), 3), ((200,), 2), ((200, 200), None)):  # the first two are no success
        observe(backoff, *statuses, after_s=40_000.0)
        assert backoff.refusal(OPTIONS) == (left and Refusal(left, "402, crawler-price: USD 0.01"))
    observe(backoff, 402, headers=PRICE, after_s=50_000.0)
    assert closed_s(backoff) == 50_900.0


def test_a_longer_retry_after_of_a_refusal_counts() -> None:
    backoff = after(402, headers=PRICE | {"retry-after": "5000"})
    assert backoff.closing == (NOW + 5000.0, Bound.REFUSED)
    observe(backoff, 402, headers=PRICE | {"retry-after": "5"}, after_s=6000.0)
    assert backoff.closing == (NOW + 6000.0 + 1800.0, Bound.REFUSED)


def test_the_numbers_of_refusals_are_options() -> None:
    options = PacingOptions(refused_min_s=60.0, refused_after=2, backoff_max_s=100.0)
    backoff = after(403, options=options)
    assert closed_s(backoff) < 0.0
    observe(backoff, 403, options=options)
    assert closed_s(backoff) == 60.0
    observe(backoff, 403, after_s=70.0, options=options)
    assert closed_s(backoff) == 70.0 + 100.0
    observe(backoff, 403, after_s=180.0, options=options)
    assert backoff.refusal(options) == Refusal(3, "403")


def test_an_error_doubles_the_delay_and_the_third_in_a_row_counts_as_busy() -> None:
    backoff, interval_s = Demand(), 1.0
    for expected_s in (2.0, 4.0):
        observe(backoff, 500, elapsed_s=0.01, interval_s=interval_s)
        interval_s = slowest(backoff, FLOOR).interval_s
        assert interval_s == expected_s
    assert closed_s(backoff) < 0.0
    observe(backoff, 501, elapsed_s=0.01, interval_s=interval_s)
    assert backoff.closing == (NOW + 16.0, Bound.BACKOFF)
    observe(backoff, 500, after_s=20.0)
    assert backoff.closing == (NOW + 20.0 + 32.0, Bound.BACKOFF)
    assert [between for between in (200, 404, 403) if closed_s(after(500, 500, between, 500, 500)) > 0.0] == []


def test_a_delay_after_errors_has_a_ceiling_and_falls_with_successes() -> None:
    backoff = after(500, elapsed_s=0.01, interval_s=50.0)
    assert slowest(backoff, FLOOR) == Pace(60.0, Bound.ADAPTIVE)
    observe(backoff, *[200] * 6)
    assert slowest(backoff, FLOOR).interval_s < 2.0


def test_without_an_adaptive_factor_errors_do_not_slow_but_close() -> None:
    options = PacingOptions(adaptive_factor=0.0)
    backoff = after(500, 500, options=options)
    assert slowest(backoff, FLOOR, NOW, options) == FLOOR
    observe(backoff, 500, options=options)
    assert backoff.closing.bound_by is Bound.BACKOFF


def test_a_refusal_outlives_its_process_with_its_number() -> None:
    backoff, later = after(402, 402, 402, headers=PRICE), Demand()
    observe(backoff, 402, headers=PRICE, after_s=5_000.0)
    later.recall(backoff.record(NOW + 5_000.0), NOW + 5_000.0, OPTIONS)
    assert later.closing == backoff.closing
    assert later.refusal(OPTIONS) == Refusal(2, "")

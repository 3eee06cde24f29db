"""Which answers close a host that refuses this crawler, for how long, and what ends that."""

import pytest

from politesse import PacingOptions
from politesse._pacing.backoff import HostBackoff
from politesse._pacing.pace import Pace
from politesse._pacing.refusals import Meaning, meaning_of
from politesse.verdict import Bound, Refusal

NOW = 1_800_000_000.0
DAY_S = 86_400.0
OPTIONS = PacingOptions()
PRICE = {"crawler-price": "USD 0.01"}
CHALLENGE = {"cf-mitigated": "challenge"}


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


@pytest.mark.parametrize("wrong", [{"refused_min_s": 0.0}, {"refused_min_s": DAY_S + 1}, {"refused_after": 0}])
def test_options_out_of_range_are_errors(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PacingOptions(**wrong)  # type: ignore[arg-type] # a number for each


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

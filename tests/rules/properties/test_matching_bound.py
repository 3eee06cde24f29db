"""The bound on the matching work of one decision: closed where it is reached, and never reached by ordinary files."""

from __future__ import annotations

import sys
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.corpus import RobotsFile
from benchmarks.generator import generate
from benchmarks.urls import fresh_urls
from benchmarks.words import word
from politesse import Gatekeeper, Reason
from politesse.events import MatchingBounded
from politesse.origin import MAX_URL_LENGTH
from politesse.robots import Dialect, RobotsTxt, budget
from politesse.robots.explain import explain
from politesse.robots.line import Quirk
from politesse.testing import ScriptedFetcher
from tests.rules.properties import reference
from tests.rules.properties.strategies import ONE_GROUP, Case
from tests.support.calls import calls_of
from tests.support.examples import examples
from tests.support.pure_robots import pure_robots
from tests.support.tiers import first_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse.robots import Match

FILE_BYTES = 500 * 1024
SLOW = "/b" + "a" * 20_000


def hostile(field: str = "Disallow", *before: str) -> str:
    """500 KiB of long needles of which each place of /baaaa... compares a half."""
    needles = (f"{field}:*{'a' * 40}b{''.join(bits)}aa" for bits in product("ab", repeat=13))
    return filled(["User-agent: *", "Robot-version: 2.0.0", *before], needles)


def filled(head: list[str], lines: Iterable[str]) -> str:
    text = "\n".join([*head, *lines])
    return text[: text.rindex("\n", 0, FILE_BYTES)]


HOSTILE = hostile()


def _octets(match: Match) -> int | None:
    return None if match.rule is None else len(match.rule.pattern)


def test_disallow_whose_bound_is_reached_counts_as_matching() -> None:
    for dialect in (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019, Dialect.CONNER_2):
        rules = RobotsTxt.parse(HOSTILE, dialect).rules_for("x")
        for octets in (2_000, 20_000):
            match = rules.match("/b" + "a" * octets)
            assert (match.allowed, match.reason, match.bound_reached) == (False, Reason.DISALLOW_RULE, True), dialect
            assert match.rule is not None
            assert not match.rule.allow


def test_allow_whose_bound_is_reached_counts_as_not_matching() -> None:
    closed = RobotsTxt.parse(hostile("Allow", "Disallow: /b")).rules_for("x").match(SLOW)
    assert (closed.allowed, closed.bound_reached) == (False, True)
    assert closed.rule is not None
    assert closed.rule.value == "/b"
    opened = RobotsTxt.parse(hostile("Allow")).rules_for("x").match(SLOW)
    assert (opened.allowed, opened.reason, opened.bound_reached) == (True, Reason.NO_RULE, True)


def test_a_longer_allow_that_was_compared_goes_before_disallows_that_were_not() -> None:
    allowed = "/b" + "a" * 1_000 + "*a$"
    rules = RobotsTxt.parse(hostile("Disallow", f"Allow: {allowed}")).rules_for("x")
    match = rules.match(SLOW)
    assert (match.allowed, match.bound_reached) == (True, False)
    assert match.rule is not None
    assert match.rule.value == allowed


def test_rule_that_no_wildcard_can_outrank_decides_without_comparing_them() -> None:
    path = "/b" + "a" * 400
    rules = RobotsTxt.parse(hostile("Disallow", f"Allow: {path}")).rules_for("x")
    match = rules.match(SLOW)
    assert (match.allowed, match.bound_reached) == (True, False)
    assert rules.match("/robots.txt").reason is Reason.ROBOTS_TXT


def test_a_rule_whose_head_does_not_fit_never_counts_as_matching() -> None:
    rooted = [f"Disallow: /other{'c' * 80}*{number}" for number in range(2_000)]
    match = RobotsTxt.parse(hostile("Allow", *rooted)).rules_for("x").match(SLOW)
    assert (match.allowed, match.bound_reached) == (True, True)


def test_conner_2_denies_by_disallows_that_were_not_compared_and_opens_by_no_such_allow() -> None:
    match = RobotsTxt.parse(hostile("Allow"), Dialect.CONNER_2).rules_for("x").match(SLOW)
    assert (match.allowed, match.reason, match.bound_reached) == (False, Reason.NOT_ALLOWED, True)
    rules = RobotsTxt.parse(hostile("Disallow", f"Allow: {SLOW}"), Dialect.CONNER_2).rules_for("x")
    assert rules.match(SLOW).reason is Reason.ALLOW_RULE  # an explicit Allow goes before every Disallow


def test_both_forms_of_a_target_are_paid_for_together() -> None:
    target = "/b" + "a" * 10_000 + "?x=%2F"
    match = RobotsTxt.parse(hostile("Allow", "Disallow: /*?x=%2F")).rules_for("x").match(target)
    assert (match.allowed, match.bound_reached) == (False, True)


def test_long_segments_whose_ends_are_rare_cost_one_pass_of_the_target_each() -> None:
    needles = [f"Disallow: /*Qbcdef{number}{'a' * 20}uvwxyZ" for number in range(10, 35)]
    rules = RobotsTxt.parse("\n".join(["User-agent: *", *needles])).rules_for("x")
    match = rules.match(f"/0123456789Qbcdef{'a' * 20_000}uvwxyZ")
    assert (match.allowed, match.bound_reached) == (True, False)


@pytest.mark.parametrize("field", ["Allow", "Disallow"])
async def test_decision_at_the_bound_is_reported_and_logged(field: str, caplog: pytest.LogCaptureFixture) -> None:
    fetcher = ScriptedFetcher({"https://h.example": hostile(field).encode()})
    events: list[MatchingBounded] = []
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher) as gate:
        gate.subscribe(lambda event: events.append(event) if isinstance(event, MatchingBounded) else None)
        assert await gate.check("https://h.example/")
        assert events == []
        verdict = await gate.check(f"https://h.example{SLOW}")
        peeked = gate.peek(f"https://h.example{SLOW}a")
    assert [event.verdict for event in events] == [verdict, peeked]
    assert verdict.allowed is (field == "Allow")
    assert verdict.match.bound_reached
    if not verdict.allowed:
        assert "the bound of matching work was reached" in str(verdict)
        assert "too much work to compare them all" in verdict.explain()
    warning = next(record for record in caplog.records if record.levelname == "WARNING")
    assert warning.getMessage().startswith("The rules of https://h.example/robots.txt take too much work")


def test_explanation_names_the_bound_as_a_quirk() -> None:
    needles = [f"Disallow: /{'*a' * (5_000 - number)}*b" for number in range(10)]
    robots = RobotsTxt.parse("\n".join(["User-agent: *", "Allow: /c", *needles]))
    told = explain(robots, SLOW, "x")
    assert told.quirks == (Quirk.MATCHING_BOUND,)
    assert told.winner is not None
    assert f"Disallow: {told.winner.value}" in needles
    assert explain(robots, "/c", "x").quirks == ()


@pytest.mark.parametrize("segments", first_of(2, ["*%4", "*%4" * 50, "*a%4*%5", "*%4*z"]))
def test_a_decision_over_cut_escapes_takes_no_loop_over_the_percent_signs(segments: str) -> None:
    rules = pure_robots("\n".join(["User-agent: *", *(f"Disallow: {segments}*{number}" for number in range(1_000))]))
    decide = rules.rules_for("x").match
    for unit in ("%C3", "%25", "%254", "a%25", "%25" * 30 + "%254"):
        target = f"/{unit * (18_000 // len(unit))}"
        assert decide(target).bound_reached, unit
        # Normalising takes two calls for each escape. Twenty thousand calls stand for four milliseconds.
        assert calls_of(lambda: decide(target)) < 2 * target.count("%") + 20_000, unit  # noqa: B023


@settings(max_examples=2_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ONE_GROUP, st.integers(0, 12_000))
def test_no_budget_allows_what_the_literal_reading_disallows(case: Case, octets: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "BUDGET", octets)
        rules = RobotsTxt.parse(case.robots_txt).rules_for("x")
        records = reference.records_for(case.robots_txt, b"x")
        for target in case.targets:
            match, expected = rules.match(target), reference.decide(records, target.encode())
            assert expected.allowed or not match.allowed, target
            if not match.bound_reached:
                assert (match.allowed, _octets(match)) == (expected.allowed, expected.octets), target


@settings(max_examples=2_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ONE_GROUP, st.sampled_from([0, 600, 3_000]))
def test_counted_work_changes_no_answer_within_the_budget(case: Case, more: int) -> None:
    rules, longer = RobotsTxt.parse(case.robots_txt).rules_for("x"), []
    for target in case.targets:
        path, mark, rest = target.partition("#")
        longer.append(f"{path}{'?' if '?' not in path else '&'}{'b/a?' * (more // 4)}{mark}{rest}" if more else target)
    uncounted = [rules.match(target) for target in longer]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget.Wildcards, "_at_most", lambda *_: sys.maxsize)
        assert [rules.match(target) for target in longer] == uncounted
    assert not any(match.bound_reached for match in uncounted)


def _long_url(random: Random, octets: int) -> str:
    target = "/"
    while len(target) < octets:
        target += word(random) + random.choice("//--&&==?_.")
    return target[:octets]


def test_realistic_files_never_reach_the_bound() -> None:
    random = Random(9309)
    for number, body in enumerate(generate(examples(240), 9309)):
        file = RobotsFile.of(f"www.site{number}.example", body)
        rules = RobotsTxt.parse(body).rules_for("ExampleBot")
        urls = fresh_urls(file, 9309, 0) + [_long_url(random, octets) for octets in (1_000, 8_000, MAX_URL_LENGTH - 8)]
        assert not any(rules.match(url).bound_reached for url in urls), number


def test_more_wildcards_than_any_real_file_has_never_reach_the_bound() -> None:
    random = Random(9309)
    shapes = ("/*?{}=", "/*&{}=", "*/{}/", "/{}/*/edit", "/*{}*.html$", "*?*sort={}")
    lines = (f"Disallow: {random.choice(shapes).format(word(random))}" for _ in range(500))
    rules = RobotsTxt.parse("\n".join(["User-agent: *", *lines])).rules_for("x")
    assert len(rules) > 350
    for octets in (100, 1_000, 4_000, 8_000):
        target = "".join(random.choice("abcdefghijklmnopqrstuvwxyz0123456789-_") for _ in range(octets))
        assert not rules.match(f"/search?token={target}").bound_reached
        assert not rules.match(_long_url(random, octets)).bound_reached

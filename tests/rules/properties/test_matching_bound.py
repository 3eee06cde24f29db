"""The bound on the matching work of one decision: closed where it is reached, and never reached by ordinary files."""

from __future__ import annotations

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
SHORT = "/" + "a" * 40


def hostile(field: str = "Disallow", *before: str) -> str:
    """500 KiB of long needles of which each place of /baaaa... compares a half."""
    needles = (f"{field}:*{'a' * 40}b{''.join(bits)}aa" for bits in product("ab", repeat=13))
    return filled(["User-agent: *", "Robot-version: 2.0.0", *before], needles)


def filled(head: list[str], lines: Iterable[str]) -> str:
    text = "\n".join([*head, *lines])
    return text[: text.rindex("\n", 0, FILE_BYTES)]


def _octets(match: Match) -> int | None:
    return None if match.rule is None else len(match.rule.pattern)


DENIED = (False, Reason.DISALLOW_RULE, True)
OPENED = (True, Reason.NO_RULE, True)
COMPARED = (True, Reason.ALLOW_RULE, False)
TWO_FORMS = "/b" + "a" * 10_000 + "?x=%2F"
RARE = f"/0123456789Qbcdef{'a' * 20_000}uvwxyZ"


def test_rule_that_was_not_compared_may_deny_and_never_opens() -> None:
    rfc9309, conner_2 = Dialect.RFC9309, Dialect.CONNER_2
    head_that_does_not_fit = [f"Disallow: /other{'c' * 80}*{number}" for number in range(2_000)]
    starred = (f"Allow: /{'*a' * 16}*{''.join(bits)}b" for bits in product("ab", repeat=13))
    rare_ends = [f"Disallow: /*Qbcdef{number}{'a' * 20}uvwxyZ" for number in range(10, 35)]
    rows: dict[str, tuple[str, Dialect, str, tuple[bool, Reason, bool]]] = {
        "Disallow of RFC 9309": (hostile(), rfc9309, SLOW, DENIED),
        "Disallow of RFC 9309 and a shorter target": (hostile(), rfc9309, "/b" + "a" * 2_000, DENIED),
        "Disallow of Google": (hostile(), Dialect.GOOGLE, SLOW, DENIED),
        "Disallow of Koster": (hostile(), Dialect.KOSTER_2019, SLOW, DENIED),
        "Disallow of Conner": (hostile(), conner_2, SLOW, DENIED),
        "Allow": (hostile("Allow"), rfc9309, SLOW, OPENED),
        "Allow of Conner": (hostile("Allow"), conner_2, SLOW, (False, Reason.NOT_ALLOWED, True)),
        "Allow beside a Disallow": (hostile("Allow", "Disallow: /b"), rfc9309, SLOW, DENIED),
        "Allow beside heads that do not fit": (hostile("Allow", *head_that_does_not_fit), rfc9309, SLOW, OPENED),
        "both forms of a target together": (hostile("Allow", "Disallow: /*?x=%2F"), rfc9309, TWO_FORMS, DENIED),
        # Here the rule that decides was compared.
        "longer Allow": (hostile("Disallow", f"Allow: /b{'a' * 1_000}*a$"), rfc9309, SLOW, COMPARED),
        "anchored Allow behind Allows that were not compared": (
            filled(["User-agent: *", f"Allow: {SHORT}$", "Disallow: /"], starred),
            rfc9309,
            SHORT,
            (True, Reason.ALLOW_RULE, True),
        ),
        "Allow that no wildcard can outrank": (hostile("Disallow", f"Allow: /b{'a' * 400}"), rfc9309, SLOW, COMPARED),
        "explicit Allow of Conner": (hostile("Disallow", f"Allow: {SLOW}"), conner_2, SLOW, COMPARED),
        "robots.txt": (hostile(), rfc9309, "/robots.txt", (True, Reason.ROBOTS_TXT, False)),
        # One pass of the target for each.
        "rare ends": (filled(["User-agent: *"], [*rare_ends, ""]), rfc9309, RARE, (True, Reason.NO_RULE, False)),
    }
    for parse in (RobotsTxt.parse, pure_robots):
        matches = {name: parse(row[0], row[1]).rules_for("x").match(row[2]) for name, row in rows.items()}
        found = {name: (match.allowed, match.reason, match.bound_reached) for name, match in matches.items()}
        assert found == {name: row[-1] for name, row in rows.items()}


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


@pytest.mark.parametrize("target", ["/", f"/{'a' * 12}", "/?x=%2F"])
def test_a_decision_looks_at_no_rule_that_is_longer_than_the_target(target: str) -> None:
    rules = pure_robots("\n".join(["User-agent: *", *(f"Disallow: /*{'a' * 9}{n:05}" for n in range(20_000))]))
    decide = rules.rules_for("x").match
    assert decide(target).reason is Reason.NO_RULE
    assert calls_of(lambda: decide(target)) < 500


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
    rules, longer = pure_robots(case.robots_txt).rules_for("x"), []
    for target in case.targets:
        path, mark, rest = target.partition("#")
        longer.append(f"{path}{'?' if '?' not in path else '&'}{'b/a?' * (more // 4)}{mark}{rest}" if more else target)
    counted = [rules.match(target) for target in longer]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "BUDGET", 10**12)
        assert [rules.match(target) for target in longer] == counted
    assert not any(match.bound_reached for match in counted)


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

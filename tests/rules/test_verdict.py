"""Verdicts: of the gate about URLs, and of the judge about traces."""

import copy
import gc
import pickle
import tracemalloc
from collections.abc import Iterator

import pytest

from politesse import Gatekeeper, Reason, RobotsTxt, Verdict
from politesse._judge import Exchange, Kind, Promises, TraceJudge
from politesse.testing import ScriptedFetcher
from politesse.verdict import Match, Rule
from tests.support.calls import calls_of


def verdict_of(reason: Reason, note: str = "") -> Verdict:
    return Verdict("https://example.com/", "examplebot", allowed=True, match=Match(reason), note=note)


def test_every_reason_has_words() -> None:
    for reason in Reason:
        verdict = verdict_of(reason, "in short")
        words = str(verdict).partition("(")[2].removesuffix(")")
        assert len(words) > len("in short"), reason
        assert words in verdict.explain(), reason


def test_what_verdicts_have_in_common_is_read_only() -> None:
    verdict = verdict_of(Reason.NO_RULE)
    for name in ("agent", "source", "age_s", "note", "site_usage"):
        before = getattr(verdict, name)
        with pytest.raises(AttributeError):
            setattr(verdict, name, "other")
        assert getattr(verdict, name) == before


def test_every_reason_is_true_or_false_of_its_match() -> None:
    allows = {Reason.ALLOW_RULE, Reason.NO_RULE, Reason.ROBOTS_TXT, Reason.UNAVAILABLE, Reason.POLICY_EXEMPT}
    assert {reason for reason in Reason if Match(reason)} == allows


def test_match_is_a_value_whether_its_rule_was_asked_for_or_not() -> None:
    rules = RobotsTxt.parse(b"User-agent: *\nDisallow: /a\nAllow: /a/b").rules_for("ExampleBot")
    made = Match(Reason.ALLOW_RULE, Rule(3, "Allow", "/a/b", "/a/b", allow=True))
    assert rules.match("/a/b") == rules.match("/a/b?c") == made
    assert len({rules.match("/a/b"), made, rules.match("/a"), rules.match("/a/c")}) == 2
    assert rules.match("/a") not in {made, Match(Reason.DISALLOW_RULE), "Disallow: /a"}
    for copied in (copy.copy(rules.match("/a/b")), pickle.loads(pickle.dumps(rules.match("/a/b")))):  # noqa: S301 - ours
        assert (copied, copied.allowed, copied.rule) == (made, True, made.rule)
    bounded = Match(Reason.NO_RULE, bound_reached=True)
    assert pickle.loads(pickle.dumps(bounded)) == bounded != Match(Reason.NO_RULE)  # noqa: S301 - ours


async def test_verdict_names_its_rule_after_its_copy_is_gone() -> None:
    site = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private"})
    async with Gatekeeper("ExampleBot/1.0", fetcher=site) as gate:
        verdict = await gate.check("https://example.com/private/a")
        await gate.forget("https://example.com")
    gc.collect()
    assert str(verdict.rule) == "Disallow: /private"
    assert verdict.rule is verdict.rule


async def test_text_of_a_site_is_cut_in_explanations() -> None:
    rule, license_ = f"Disallow: /{'*' * 400_000}é", f"License: https://h.example/{'é' * 40_000}\u202e"
    robots_txt = f"User-agent: *\n{rule}\nContent-Signal: ai-train=no\n{license_}".encode()
    async with Gatekeeper(
        "ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher({"https://h.example": robots_txt})
    ) as gate:
        verdict, usage = await gate.check("https://h.example/é"), (await gate.check("https://h.example/")).usage
    assert usage is not None
    for told in (verdict.explain, verdict.__str__, usage.explain, usage.__str__):
        assert len(told()) < 1_000
        assert calls_of(told) < 2_000
    assert verdict.rule is not None
    assert str(verdict.rule) == rule
    assert usage.licenses[0].url == license_.partition(" ")[2]


DAY_S = 86_400.0


def kinds(judge: TraceJudge, *trace: Exchange) -> list[Kind]:
    return [violation.kind for exchange in trace for violation in judge.judge(exchange)]


def page(started: float, host: str = "a.test", path: str = "/", status: int = 200) -> Exchange:
    return Exchange(f"https://{host}{path}", started, started + 0.1, status)


def endless(days: int) -> Iterator[Exchange]:
    """New hosts, which come back after three days, and a busy host in a closing, which redirects its robots.txt."""
    for n in range(days * 2_000):
        at, other = n * DAY_S / 2_000, f"new{n % 6_000}.test"
        yield page(at, other, path="/robots.txt")
        moved = Exchange("https://busy.test/robots.txt", at, at + 0.1, 301, DAY_S, location=f"https://{other}/x")
        yield moved if n % 2 else Exchange("https://busy.test/a", at + 0.2, at + 0.3, 503, DAY_S)


def grown_bytes(days: int) -> int:
    judge = TraceJudge(lambda _: None, Promises(max_hosts=1_000))
    tracemalloc.start()
    for exchange in endless(days):
        judge.judge(exchange)
    gc.collect()  # hosts and their robots.txt refer to each other
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


@pytest.mark.full
def test_memory_is_bounded_by_the_number_of_hosts_that_are_remembered() -> None:
    _, few, many = (grown_bytes(days) for days in (3, 1, 3))  # the first fills the caches of origins
    assert many < 1.1 * few


def test_the_host_that_was_requested_least_recently_is_forgotten_and_nothing_is_invented() -> None:
    closing = Exchange("https://a.test/", 0.0, 0.1, 503, retry_after_s=3_600.0)
    others = [page(100.0 + n / 100, f"other{n % 50}.test", "/robots.txt") for n in range(150)]

    def found(max_hosts: int) -> list[Kind]:
        judge = TraceJudge(lambda _: None, Promises(max_hosts=max_hosts, min_refetch_s=0.0))
        return kinds(judge, page(0.0, path="/robots.txt"), closing, *others, page(3_599.0))[1:]

    assert (found(51), found(50)) == ([Kind.RETRY_AFTER], [])

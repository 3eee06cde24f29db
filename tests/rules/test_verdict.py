import pytest

from politesse import Gatekeeper, Reason, Verdict
from politesse.testing import ScriptedFetcher
from politesse.verdict import Match
from tests.support.calls import calls_of


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words(reason: Reason) -> None:
    verdict = Verdict("https://example.com/", "examplebot", allowed=True, match=Match(reason), note="in short")
    words = str(verdict).partition("(")[2].removesuffix(")")
    assert len(words) > len("in short")
    assert words in verdict.explain()


@pytest.mark.parametrize("name", ["agent", "source", "age_s", "note", "site_usage"])
def test_what_verdicts_have_in_common_is_read_only(name: str) -> None:
    verdict = Verdict("https://example.com/", "examplebot", allowed=True, match=Match(Reason.NO_RULE))
    before = getattr(verdict, name)
    with pytest.raises(AttributeError):
        setattr(verdict, name, "other")
    assert getattr(verdict, name) == before


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_true_or_false_of_its_match(reason: Reason) -> None:
    allows = {Reason.ALLOW_RULE, Reason.NO_RULE, Reason.ROBOTS_TXT, Reason.UNAVAILABLE, Reason.POLICY_EXEMPT}
    assert bool(Match(reason)) == (reason in allows)


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

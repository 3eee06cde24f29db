import pytest

from politesse import Reason, Verdict
from politesse.verdict import Match


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

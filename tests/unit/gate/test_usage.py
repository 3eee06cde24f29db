import pytest

from politesse import Gatekeeper, HostPolicy, Reason, Verdict
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.usage import Preference, Purpose, Usage
from politesse.usage.model import NOTHING_STATED
from politesse.verdict import WITHOUT_RULE

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
SILENT = "https://silent.example"
FILE = b"User-agent: *\nDisallow: /private\nContent-Usage: train-ai=n\nContent-Usage: /open train-ai=y\n"


def gate(**options: object) -> Gatekeeper:
    fetcher = ScriptedFetcher({SITE: FILE, SILENT: b"User-agent: *\nDisallow: /private\n"})
    return Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(), **options)  # type: ignore[arg-type] # one test's own


def train(verdict: Verdict | None) -> Preference:
    assert verdict is not None
    assert isinstance(verdict.usage, Usage)
    return verdict.usage.preference(Purpose.AI_TRAIN)


async def test_preference_stands_beside_the_verdict() -> None:
    async with gate() as asked:
        verdict = await asked.check(f"{SITE}/page")
        assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE)
        assert train(verdict) is Preference.DISALLOWED
        assert train(await asked.check(f"{SITE}/open/page")) is Preference.ALLOWED


async def test_peek_and_other_spellings_report_the_same_usage() -> None:
    async with gate() as asked:
        await asked.check(f"{SITE}/")
        for url in (f"{SITE}/open", "HTTPS://EXAMPLE.com/open", f"{SITE}/%6Fpen", f"{SITE}/x/../open"):
            assert train(asked.peek(url)) is Preference.ALLOWED, url


async def test_denied_page_has_no_preferences_even_in_report_mode() -> None:
    async with gate() as asked:
        verdict = await asked.check(f"{SITE}/private")
        assert (verdict.allowed, verdict.usage) == (False, None)
    async with gate(mode="report") as asked:
        verdict = await asked.check(f"{SITE}/private")
        assert (verdict.allowed, verdict.usage) == (True, None)


async def test_preference_is_unstated_where_the_file_has_none() -> None:
    async with gate() as asked:
        assert (await asked.check(f"{SILENT}/page")).usage is NOTHING_STATED
        asked.set_policy("exempt.example", HostPolicy(exempt=True, reason="our own"))
        assert (await asked.check("https://exempt.example/page")).usage is NOTHING_STATED
        missing = await asked.check("https://none.example/page")  # its robots.txt is a 404
        assert (missing.reason, missing.usage) == (Reason.UNAVAILABLE, NOTHING_STATED)


async def test_verdict_outlives_the_entry_that_it_came_from() -> None:
    async with gate() as asked:
        verdict = await asked.check(f"{SITE}/page")
        await asked.forget(SITE)
        assert train(verdict) is Preference.DISALLOWED


def test_usage_is_built_on_first_access() -> None:
    class Said:
        asked = 0

        def usage(self, url: str) -> Usage:
            self.asked += 1
            assert url == "/a"
            return NOTHING_STATED

    said = Said()
    verdict = Verdict("/a", "x", allowed=True, match=WITHOUT_RULE[Reason.NO_RULE], site_usage=said)
    assert bool(verdict)
    assert str(verdict)
    assert verdict.explain()
    assert said.asked == 0
    assert verdict.usage is NOTHING_STATED
    assert said.asked == 1


@pytest.mark.parametrize("url", ["mailto:us", "https://"])
async def test_invalid_url_has_no_usage(url: str) -> None:
    async with gate() as asked:
        (verdict,) = await asked.check_batch([url])
        assert (verdict.reason, verdict.usage) == (Reason.INVALID_URL, None)

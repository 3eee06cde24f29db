"""The dialect is chosen once, on the gatekeeper, and governs files, statuses, redirects and lifetimes alike."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from politesse import Dialect, Gatekeeper, Reason
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.stores.memory import MemoryStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
HOUR = 3_600.0
DAY = 86_400.0

# Each URL is allowed by some dialects and denied by the others.
FILE = """\
Disallow: /before

User-agent: example
Disallow: /part

User-agent: *
Disallow: /everybody/
Allow: /everybody/index.html
Disallow: /everybody/%7Ex
Dissalow: /typo
disallowed: /prefix
Allow: /first
Disallow: /first/longer
"""
DENIED = {
    Dialect.RFC9309: {"/everybody/", "/everybody/~x", "/typo", "/first/longer"},
    Dialect.GOOGLE: {"/everybody/~x", "/typo", "/prefix", "/first/longer"},
    Dialect.KOSTER_2019: {"/everybody/", "/everybody/~x", "/typo", "/first/longer"},
    Dialect.KOSTER_1996: {"/part"},
    Dialect.KOSTER_1994: {"/part"},
    Dialect.CONNER_2: {"/part"},
    Dialect.PERL: {"/part"},
}
PATHS = ("/before", "/part", "/everybody/", "/everybody/~x", "/typo", "/prefix", "/first/longer", "/other")


@pytest.mark.parametrize("dialect", Dialect)
async def test_dialect_governs_how_the_file_is_read(dialect: Dialect) -> None:
    async with Gatekeeper(UA, dialect=dialect, fetcher=ScriptedFetcher({SITE: FILE}), clock=ManualClock()) as gate:
        denied = {path for path in PATHS if not await gate.check(f"{SITE}{path}")}
        assert denied == DENIED[dialect]
        # ... by peek, from an entry that is known, too.
        assert {path for path in PATHS if gate.peek(f"{SITE}{path}") is not None} == set(PATHS)
        for path in PATHS:
            verdict = gate.peek(f"{SITE}{path}")
            assert verdict is not None
            assert verdict.allowed is (path not in denied)


async def test_rules_before_any_agent_bind_every_agent_in_perl() -> None:
    for dialect, allowed in ((Dialect.PERL, False), (Dialect.KOSTER_1994, True), (Dialect.RFC9309, True)):
        async with Gatekeeper(
            UA, dialect=dialect, fetcher=ScriptedFetcher({SITE: "Disallow: /"}), clock=ManualClock()
        ) as gate:
            assert (await gate.check(f"{SITE}/a")).allowed is allowed


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("status", "closed"),
    [
        (401, {Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL}),
        (403, {Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL}),
        (404, set[Dialect]()),
        (503, set(Dialect)),
        (429, set(Dialect)),
    ],
)
async def test_dialect_governs_what_a_status_means(dialect: Dialect, status: int, closed: set[Dialect]) -> None:
    async with Gatekeeper(UA, dialect=dialect, fetcher=ScriptedFetcher({SITE: status}), clock=ManualClock()) as gate:
        verdict = await gate.check(f"{SITE}/a")
        assert verdict.allowed is (dialect not in closed)
        assert (await gate.check(f"{SITE}/robots.txt")).allowed
        if status == 429:
            as_5xx = dialect is Dialect.GOOGLE
            assert verdict.reason is (Reason.UNREACHABLE if as_5xx else Reason.TOO_MANY_REQUESTS)


@pytest.mark.parametrize("dialect", Dialect)
async def test_dialect_governs_how_many_redirects_are_followed(dialect: Dialect) -> None:
    urls = [SITE, *(f"{SITE}/{number}" for number in range(1, 30))]
    answers: dict[str, Answer | Sequence[Answer]] = {
        url: FetchFault(FaultKind.REDIRECT_LIMIT, "more than 0 redirects", url, 301, location=then)
        for url, then in pairwise(urls)
    }
    fetcher = ScriptedFetcher(answers)
    async with Gatekeeper(UA, dialect=dialect, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate:
        await gate.check(f"{SITE}/a")
    found_or_not = dialect in {Dialect.KOSTER_1994, Dialect.KOSTER_1996}
    assert len(fetcher.requests) == 1 + (20 if found_or_not else 5)


class _Forgetful(MemoryStore):
    async def get(self, key: str, /) -> bytes | None:
        return None


async def test_google_closes_a_site_although_the_store_lost_the_copy_that_the_gate_holds() -> None:
    copy = FetchResponse(200, f"{SITE}/robots.txt", {"cache-control": "max-age=6000"}, b"User-agent: *\n")
    for dialect, allowed in ((Dialect.RFC9309, True), (Dialect.GOOGLE, False)):
        fetcher, clock = ScriptedFetcher({SITE: [copy, 503]}), ManualClock()
        async with Gatekeeper(UA, dialect=dialect, fetcher=fetcher, clock=clock, store=_Forgetful()) as gate:
            assert await gate.check(f"{SITE}/b")
            clock.advance(5_700)  # 95 % of its life: it is asked for again behind
            assert await gate.check(f"{SITE}/b")
            while gate.statistics().in_flight:
                await asyncio.sleep(0)
            assert (await gate.check(f"{SITE}/b")).allowed is allowed


async def test_perl_rule_that_is_a_url_binds_only_the_site_that_it_names() -> None:
    body = "User-agent: *\nDisallow: http://one.example/\nDisallow: http://two.example/a\n"
    sites = ("http://one.example", "http://two.example", "http://three.example")
    async with Gatekeeper(
        UA, dialect=Dialect.PERL, fetcher=ScriptedFetcher(dict.fromkeys(sites, body)), clock=ManualClock()
    ) as gate:
        verdicts = await gate.check_batch([f"{site}{path}" for site in sites for path in ("/a", "/b")])
        assert [verdict.allowed for verdict in verdicts] == [False, False, False, True, True, True]


async def test_url_that_no_allow_matches_is_counted_and_explained() -> None:
    body = "User-agent: ExampleBot\nRobot-version: 2.0.0\nAllow: */index.html\n"
    async with Gatekeeper(
        UA, dialect=Dialect.CONNER_2, fetcher=ScriptedFetcher({SITE: body}), clock=ManualClock()
    ) as gate:
        assert await gate.check(f"{SITE}/a/index.html")
        verdict = await gate.check(f"{SITE}/a")
        assert verdict.reason is Reason.NOT_ALLOWED
        assert gate.peek(f"{SITE}/%61") is not None  # by the slow road, too
        assert gate.statistics().denied == {Reason.NOT_ALLOWED: 2}
        assert "only what an Allow rule matches is allowed" in verdict.explain()
        assert "line 3, 'Allow: */index.html'" in verdict.explain()

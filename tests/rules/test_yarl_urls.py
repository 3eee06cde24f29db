"""A yarl.URL is taken wherever a URL is, and judged as the text that clients send."""

import pytest
from yarl import URL

from politesse import Dialect, Gatekeeper, Origin, PoliteQueue, Reason, RobotsTxt, Turn
from politesse.origin import StrOrURL
from politesse.page import PageDirectives, followable_links, parse_tdmrep, response_usage, tdmrep_usage
from politesse.robotrules import RobotRules, RobotRulesAnswer
from politesse.robots.explain import explain
from politesse.testing import ScriptedFetcher

ROBOTS = "User-agent: *\nDisallow: /%C3%A4\nContent-Usage: train-ai=n\nSitemap: https://a.test/map.xml"
HUMAN = URL("https://a.test/ä?q=ö#part")
SENT = "https://a.test/%C3%A4?q=%C3%B6#part"
OPEN = URL("https://a.test/open")


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({"https://a.test": ROBOTS, "https://xn--mller-kva.test": ROBOTS})


@pytest.mark.parametrize("known", [False, True])
async def test_verdict_is_on_the_text_that_is_sent(gate: Gatekeeper, *, known: bool) -> None:
    if known:
        await gate.check("https://a.test/")
    verdict = await gate.check(HUMAN)
    assert (verdict.url, verdict.reason) == (SENT.removesuffix("#part"), Reason.DISALLOW_RULE)
    assert type(verdict.url) is str


async def test_as_encoded_url_is_judged_as_it_is_written(gate: Gatekeeper) -> None:
    verdict = await gate.check(URL("https://a.test/ä", encoded=True))
    assert (verdict.url, verdict.reason) == ("https://a.test/ä", Reason.DISALLOW_RULE)


async def test_internationalised_host_is_that_of_the_request(gate: Gatekeeper) -> None:
    verdict = await gate.check(URL("https://müller.test/ä"))
    assert (verdict.url, verdict.allowed) == ("https://xn--mller-kva.test/%C3%A4", False)


async def test_peek_answers_a_known_origin_and_none_else(gate: Gatekeeper) -> None:
    assert gate.peek(OPEN) is None
    await gate.check(OPEN)
    assert gate.peek(OPEN)
    assert not gate.peek(HUMAN)


async def test_turns_are_taken_for_a_url_and_name_its_text(gate: Gatekeeper) -> None:
    async with gate.turn(OPEN) as turn:
        assert turn.url == "https://a.test/open"
    with await gate.take_turn(HUMAN, exempt="by agreement") as turn:
        assert turn.url == SENT
    with await gate.take_turn(OPEN):
        pass
    assert not isinstance(gate.try_turn(OPEN), Turn)  # in the interval


async def test_methods_of_an_origin_take_a_url(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    assert (await gate.sitemaps(OPEN)).urls == ("https://a.test/map.xml",)
    usage = await gate.usage(OPEN)
    assert usage is not None
    assert usage.preference("ai-train") == "disallowed"
    assert (await gate.datatxt(OPEN)).status == 404
    await gate.forget(OPEN)
    assert gate.peek(OPEN) is None
    await gate.check(OPEN)
    assert fetcher.count("https://a.test") == 2


async def test_batch_and_filter_mix_text_and_urls(gate: Gatekeeper) -> None:
    given: list[StrOrURL] = [OPEN, "https://a.test/%C3%A4", HUMAN]
    assert [bool(verdict) for verdict in await gate.check_batch(given)] == [True, False, False]
    assert {str(item): bool(verdict) async for item, verdict in gate.filter(given)} == {
        str(OPEN): True,
        "https://a.test/%C3%A4": False,
        SENT: False,
    }
    assert [bool(verdict) async for _, verdict in gate.filter([(1, HUMAN)], key=lambda item: item[1])] == [False]


async def test_queue_hands_out_the_text(gate: Gatekeeper) -> None:
    queue: PoliteQueue[None] = PoliteQueue(gate)
    await queue.put(OPEN)
    queue.put_nowait(OPEN / "next")
    for expected in ("https://a.test/open", "https://a.test/open/next"):
        async with queue.turn() as turn:
            assert turn.url == expected


@pytest.mark.parametrize("dialect", Dialect)
def test_rules_of_every_dialect_take_a_url(dialect: Dialect) -> None:
    robots = RobotsTxt.parse("User-agent: *\nDisallow: /a", dialect)
    rules = robots.rules_for("examplebot")
    url = URL("https://a.test/a")
    assert (rules.allowed(url), rules.match(url).allowed, rules.usage(url)) == (False, False, None)
    assert rules.allowed(OPEN)
    assert not explain(robots, url, "examplebot").match


def test_functions_over_texts_take_a_url() -> None:
    assert Origin.of(URL("https://müller.test")) == Origin.given(URL("https://müller.test/a"))
    params = RobotsTxt.parse("Clean-param: sid").clean_params
    assert params.canonical(URL("https://a.test/?sid=1")) == "https://a.test/"
    assert tdmrep_usage(parse_tdmrep(b'[{"location": "/", "tdm-reservation": 1}]'), OPEN).preference("tdm")
    headers = {"Link": '</license>; rel="license"'}
    [terms] = response_usage(headers, PageDirectives.from_response(headers, None), OPEN).licenses
    assert terms.url == "https://a.test/license"
    assert followable_links(b'<a href="b">b</a>', HUMAN) == ["https://a.test/b"]


def test_robot_rules_take_a_url() -> None:
    rules = RobotRules("ExampleBot/1.0")
    rules.parse(URL("https://a.test/robots.txt"), ROBOTS)
    assert rules.allowed(HUMAN) is RobotRulesAnswer.DENIED
    rules.visit(OPEN)
    assert rules.no_visits(URL("https://a.test/")) == 1

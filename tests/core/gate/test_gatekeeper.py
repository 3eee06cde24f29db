import asyncio
from typing import Any, cast

import pytest

from politesse import ConfigurationError, Disallowed, Gatekeeper, HostPolicy, InvalidURL, Reason
from politesse.events import Decided, Event, RobotsFetched
from politesse.origin import MAX_URL_LENGTH
from politesse.ports import FaultKind, FetchFault
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
FILE = """\
User-agent: *
Disallow: /

User-agent: ExampleBot
Disallow: /private
Allow: /private/open
Disallow: /*.pdf$

User-agent: ExampleBot-Image
Disallow: /images
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: FILE})


async def test_escaped_host_is_judged_by_the_file_of_the_decoded_host(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({"http://www.xn--mnich-kva.com": "User-agent: *\nDisallow: /x\n"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        for host in ("www.m%C3%BCnich.com", "WWW.m%c3%bcnich%2Ecom", "www.münich.com", "www.xn--mnich-kva.com"):
            assert not await gate.check(f"http://{host}/x")
            assert await gate.check(f"http://{host}/y")
            assert gate.peek(f"http://{host}/x") is not None
        for host in (
            "www.m%C3%BCnich.com%2Fx",
            "www.m%25C3%25BCnich.com",
            "www.m%FCnich.com",
            "u%40www.xn--mnich-kva.com",
        ):
            with pytest.raises(InvalidURL):
                await gate.check(f"http://{host}/y")
    assert [request.url for request in fetcher.requests] == ["http://www.xn--mnich-kva.com/robots.txt"]


async def test_verdict_names_the_deciding_line_and_its_source(gate: Gatekeeper, clock: ManualClock) -> None:
    verdict = await gate.check(f"{SITE}/private/x")
    assert not verdict
    assert verdict.allowed is False
    assert verdict.reason is Reason.DISALLOW_RULE
    assert verdict.rule is not None
    assert (verdict.rule.line, str(verdict.rule)) == (5, "Disallow: /private")
    assert verdict.source is not None
    assert (verdict.source.status, verdict.source.final_url) == (200, f"{SITE}/robots.txt")
    assert verdict.source.fresh_until_wall == clock.wall() + 86_400
    assert verdict.not_before is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/", Reason.NO_RULE),
        ("/private", Reason.DISALLOW_RULE),
        ("/private/open/x", Reason.ALLOW_RULE),
        ("/a.pdf", Reason.DISALLOW_RULE),
        ("/a.pdf?download", Reason.NO_RULE),
        ("/%70rivate", Reason.DISALLOW_RULE),
        ("/open/../private", Reason.DISALLOW_RULE),
        ("/open/%2e%2e/private", Reason.DISALLOW_RULE),
        ("/priv#ate", Reason.NO_RULE),
        ("/private#x", Reason.DISALLOW_RULE),
        ("", Reason.NO_RULE),
        ("?x", Reason.NO_RULE),
        ("/robots.txt", Reason.ROBOTS_TXT),
        ("/robots.txt?x", Reason.NO_RULE),
    ],
)
async def test_peek_and_check_say_the_same(gate: Gatekeeper, path: str, reason: Reason) -> None:
    first = await gate.check(SITE + path)
    again = gate.peek(SITE + path)
    assert again is not None
    assert first.reason is again.reason is reason
    assert first.allowed is again.allowed


@pytest.mark.parametrize(
    "spelling",
    [
        "HTTPS://example.com",
        "https://EXAMPLE.com",
        "https://example.com:443",
        "https://user:pw@example.com",
        "https://example.com:",
    ],
)
async def test_other_spellings_of_an_origin_share_its_copy(
    gate: Gatekeeper, fetcher: ScriptedFetcher, spelling: str
) -> None:
    await gate.check(f"{SITE}/")
    verdict = gate.peek(f"{spelling}/private")
    assert verdict is not None
    assert verdict.reason is Reason.DISALLOW_RULE
    assert fetcher.count(SITE) == 1


@pytest.mark.parametrize(
    "other", ["http://example.com", "https://www.example.com", "https://example.com:444", "https://example.com."]
)
async def test_rules_never_leak_to_another_origin(gate: Gatekeeper, fetcher: ScriptedFetcher, other: str) -> None:
    await gate.check(f"{SITE}/")
    assert gate.peek(f"{other}/private") is None
    verdict = await gate.check(f"{other}/private")
    assert verdict.reason is Reason.UNAVAILABLE
    assert fetcher.count(other) == 1


async def test_peek_of_an_unknown_origin_is_none_and_fetches_nothing(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    assert gate.peek(f"{SITE}/x") is None
    await asyncio.sleep(0)
    assert fetcher.requests == []


async def test_verdict_on_robots_txt_itself_needs_no_fetch(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    verdict = await gate.check(f"{SITE}/robots.txt")
    assert verdict.reason is Reason.ROBOTS_TXT
    assert fetcher.requests == []


@pytest.mark.parametrize("answer", [503, 200, FetchFault(FaultKind.DNS, "no such host", SITE)])
async def test_robots_txt_itself_is_allowed_whatever_its_outcome(answer: int | FetchFault, clock: ManualClock) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: answer}), clock=clock) as gate:
        await gate.check(f"{SITE}/")
        assert (await gate.check(f"{SITE}/robots.txt")).allowed


@pytest.mark.parametrize(
    "url", ["", "/x", "example.com/x", "ftp://example.com/", "https://", "https://h:99999/", "x\0y"]
)
async def test_invalid_url_raises(gate: Gatekeeper, url: str) -> None:
    with pytest.raises(InvalidURL):
        gate.peek(url)
    with pytest.raises(InvalidURL):
        await gate.check(url)


async def test_control_character_in_a_known_origin_raises_too(gate: Gatekeeper) -> None:
    await gate.check(f"{SITE}/")
    with pytest.raises(InvalidURL, match="control character"):
        gate.peek(f"{SITE}/pri\nvate")


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_unreachable_denies_with_the_fault_and_the_time_of_the_next_fetch(clock: ManualClock) -> None:
    fault = FetchFault(FaultKind.CONNECT, "refused", f"{SITE}/robots.txt")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: fault}), clock=clock) as gate:
        verdict = await gate.check(f"{SITE}/x")
    assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
    assert verdict.not_before is not None
    assert 60 <= verdict.not_before - clock.wall() <= 66
    assert "refused" in verdict.explain()


async def test_age_of_a_verdict_is_the_age_of_the_copy_at_the_decision(gate: Gatekeeper, clock: ManualClock) -> None:
    assert (await gate.check(f"{SITE}/")).age_s == 0
    clock.advance(500)
    verdict = gate.peek(f"{SITE}/")
    assert verdict is not None
    assert verdict.age_s == 500
    assert "500 s old" in verdict.explain()


async def test_agents_share_the_copy_and_judge_by_their_own_groups(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
    other = gate.agent(tokens="ExampleBot-Video", user_agent="ExampleBot-Video/1.0")
    assert not await images.check(f"{SITE}/images/x")
    assert await images.check(f"{SITE}/private")
    assert await gate.check(f"{SITE}/images/x")
    assert not await other.check(f"{SITE}/anything")
    assert fetcher.count(SITE) == 1
    assert (await images.check(f"{SITE}/images/x")).agent == "examplebot-image,examplebot"


async def test_robots_txt_of_a_denied_host_is_not_fetched(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    gate.set_policy("Example.com", HostPolicy(deny=True, reason="asked us to stay away"))
    for url in (f"{SITE}/open", "http://example.com:8080/x", "https://example.com./x"):
        verdict = await gate.check(url)
        assert verdict.reason is Reason.POLICY_DENY
        assert "asked us to stay away" in str(verdict)
    assert fetcher.requests == []


async def test_exempt_host_is_allowed_with_its_reason(gate: Gatekeeper) -> None:
    await gate.check(f"{SITE}/private")
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="our own server"))
    verdict = await gate.check(f"{SITE}/private")
    assert (verdict.allowed, verdict.reason) == (True, Reason.POLICY_EXEMPT)
    assert "our own server" in verdict.explain()
    gate.set_policy("example.com", None)
    assert not await gate.check(f"{SITE}/private")


async def test_policy_of_one_host_affects_no_other(gate: Gatekeeper) -> None:
    gate.set_policy("partner.example", HostPolicy(deny=True))
    assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
    assert (await gate.check(f"{SITE}/x")).reason is Reason.NO_RULE


@pytest.mark.parametrize(
    "host",
    [
        *("", "https://example.com", "example.com/path", "example.com?x", "a b"),
        *("u@a.example", "a.example#x", "a.example:80", "::1"),
    ],
)
async def test_policy_for_an_invalid_host_is_refused(gate: Gatekeeper, host: str) -> None:
    with pytest.raises(InvalidURL):
        gate.set_policy(host, HostPolicy(deny=True))


async def test_policy_may_be_that_of_an_address(gate: Gatekeeper) -> None:
    gate.set_policy("[::1]", HostPolicy(deny=True))
    assert not await gate.check("http://[::1]/")


@pytest.mark.parametrize(
    "wrong", [{"deny": True, "exempt": True, "reason": "x"}, {"exempt": True}, {"exempt": True, "reason": " "}]
)
def test_invalid_policy_is_refused(wrong: dict[str, bool | str]) -> None:
    with pytest.raises(ConfigurationError):
        HostPolicy(**wrong)  # type: ignore[arg-type]


async def test_report_mode_allows_and_reports_denials(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: FILE, "https://down.example": 503})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        for url, reason in ((f"{SITE}/private", Reason.DISALLOW_RULE), ("https://down.example/", Reason.UNREACHABLE)):
            for verdict in (await gate.check(url), gate.peek(url)):
                assert verdict is not None
                assert verdict.allowed
                assert verdict.reason is reason
                assert verdict.denied_by_reason
                assert "only reports" in verdict.explain()
        assert gate.statistics().denied == {Reason.DISALLOW_RULE: 2, Reason.UNREACHABLE: 2}


async def test_batch_keeps_its_order_and_fetches_each_robots_txt_once(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    urls = [f"{SITE}/private", "https://b.example/", "no url", f"{SITE}/x", "https://b.example/2", f"{SITE}/private"]
    verdicts = await gate.check_batch(urls)
    assert [verdict.url for verdict in verdicts] == urls
    assert [verdict.reason for verdict in verdicts] == [
        Reason.DISALLOW_RULE,
        Reason.UNAVAILABLE,
        Reason.INVALID_URL,
        Reason.NO_RULE,
        Reason.UNAVAILABLE,
        Reason.DISALLOW_RULE,
    ]
    assert not verdicts[2]
    assert (fetcher.count(SITE), fetcher.count("https://b.example")) == (1, 1)


async def test_batch_fetches_from_its_origins_concurrently(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher()
    fetcher.gate.clear()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        batch = asyncio.ensure_future(gate.check_batch(f"https://{n}.example/" for n in "abcdef"))
        while len(fetcher.requests) < 6:
            await asyncio.sleep(0)
        fetcher.gate.set()
        assert all(await batch)


async def test_one_url_instead_of_many_is_refused(gate: Gatekeeper) -> None:
    with pytest.raises(TypeError, match="iterable"):
        await gate.check_batch(f"{SITE}/")
    with pytest.raises(TypeError, match="iterable"):
        gate.filter(f"{SITE}/")


async def test_events_report_fetches_and_decisions(gate: Gatekeeper) -> None:
    events: list[Event] = []
    end = gate.subscribe(events.append)
    await gate.check(f"{SITE}/private")
    gate.peek(f"{SITE}/x")
    assert [type(event) for event in events] == [RobotsFetched, Decided, Decided]
    fetched, first, second = events
    assert isinstance(fetched, RobotsFetched)
    assert (str(fetched.origin), fetched.status, fetched.fault) == (SITE, 200, "")
    assert isinstance(first, Decided)
    assert isinstance(second, Decided)
    assert (first.verdict.allowed, second.verdict.allowed) == (False, True)
    end()
    gate.peek(f"{SITE}/x")
    assert len(events) == 3


async def test_statistics_count_every_verdict_once(gate: Gatekeeper) -> None:
    await gate.check(f"{SITE}/private")
    await gate.check(f"{SITE}/x")
    gate.peek(f"{SITE}/x")
    await gate.agent(tokens="Other", user_agent="Other/1.0").check(f"{SITE}/x")
    await gate.check_batch(["nothing"])
    statistics = gate.statistics()
    assert statistics.allowed == 2
    assert statistics.denied == {Reason.DISALLOW_RULE: 2, Reason.INVALID_URL: 1}
    assert statistics.decisions == 5
    assert (statistics.fetches, statistics.in_flight, statistics.origins) == (1, 0, 1)
    assert statistics.entries_bytes > 0


async def test_repr_shows_the_state_of_the_gate(gate: Gatekeeper) -> None:
    await gate.check(f"{SITE}/")
    assert repr(gate) == "<Gatekeeper examplebot (enforce): 1 origins known, 0 being fetched>"
    assert repr(await gate.check(f"{SITE}/x")) == "<Verdict allowed: https://example.com/x (no rule matches)>"


async def test_explanation_escapes_what_could_steer_a_terminal(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: "User-agent: *\nDisallow: /\u202e\u009b2J"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        told = (await gate.check(f"{SITE}/\u202e\u009b2J")).explain()
    assert "Disallow: /\\\\u202e\\\\x9b2J" in told
    assert told.replace("\n", "").isprintable()


@pytest.mark.parametrize("wrong", [{"mode": "watch"}, {"fetcher": ScriptedFetcher(), "session": object()}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Gatekeeper(UA, **wrong)  # type: ignore[arg-type]


async def test_peek_works_outside_the_event_loop(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock)
    await gate.check(f"{SITE}/")
    clock.advance(0.95 * 86_400)
    verdict = await asyncio.to_thread(gate.peek, f"{SITE}/x")
    assert verdict is not None
    assert verdict.allowed
    await gate.aclose()


@pytest.mark.parametrize("robots", ["", 404, 503])
@pytest.mark.parametrize("url", [f"{SITE}/a\nb", f"{SITE}/a\udce9"])
async def test_error_names_the_whole_url(url: str, robots: str | int) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: robots})) as gate:
        await gate.check(f"{SITE}/")
        with pytest.raises(InvalidURL) as caught:
            gate.peek(url)
    assert caught.value.url == url


async def test_policy_set_during_the_fetch_of_robots_txt_denies() -> None:
    fetcher = ScriptedFetcher()
    fetcher.gate.clear()
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        asking = asyncio.ensure_future(gate.check("https://example.com/x"))
        while not fetcher.requests:
            await asyncio.sleep(0)
        gate.set_policy("example.com", HostPolicy(deny=True))
        fetcher.gate.set()
        assert (await asking).reason is Reason.POLICY_DENY


async def test_url_longer_than_servers_accept_is_refused_whether_its_origin_is_known_or_not() -> None:
    hostile = "User-agent: *\n" + "Disallow: /" + "*a" * 100_000 + "b\n"
    url = "https://example.com/" + "a" * MAX_URL_LENGTH
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({"https://example.com": hostile})) as gate:
        for _ in range(2):
            with pytest.raises(InvalidURL, match="are more than servers take"):
                gate.peek(url)
            with pytest.raises(InvalidURL, match="are more than servers take"):
                await gate.check(url)
            assert await gate.check("https://example.com/a")


async def test_a_subscriber_that_cannot_be_called_is_refused() -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        with pytest.raises(ConfigurationError, match="subscriber=None"):
            gate.subscribe(cast("Any", None))


async def test_agents_that_take_turns_at_an_origin_get_the_verdicts_of_their_own_rules() -> None:
    site = ScriptedFetcher({"https://example.com": "User-agent: ExampleBot-Image\nDisallow: /\n"})
    async with Gatekeeper(UA, fetcher=site) as gate:
        images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
        for view in gate, images:
            await view.check("https://example.com/")
        for _ in range(2):
            for view, name, allowed in (gate, "examplebot", True), (images, "examplebot-image,examplebot", False):
                verdict = view.peek("https://example.com/cat.png")
                assert verdict is not None
                assert (verdict.agent, verdict.allowed) == (name, allowed)


async def test_a_host_that_only_begins_as_a_known_one_is_not_judged_by_its_file(clock: ManualClock) -> None:
    open_, closed = "https://a.example", "https://a.examples"
    fetcher = ScriptedFetcher({open_: "User-agent: *\nAllow: /\n", closed: "User-agent: *\nDisallow: /\n"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert await gate.check(f"{open_}/")
        for known in (False, True):  # without a third slash, the URL less its last letter is the known origin
            assert (gate.peek(closed) is not None) is known
            with pytest.raises(Disallowed):
                async with gate.turn(closed):
                    pass
            with pytest.raises(Disallowed):
                gate.try_turn(closed)

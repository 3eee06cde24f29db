"""What a gate says about a URL: by the file of its origin, by the policy of its host, in the dialect of the gate."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise, product
from typing import Any, Final

import pytest

from politesse import ConfigurationError, Dialect, Disallowed, Gatekeeper, HostPolicy, InvalidURL, Reason
from politesse.events import Decided, Event, RobotsFetched
from politesse.origin import MAX_URL_LENGTH
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.testing import Answer, ScriptedFetcher
from tests.core.gate.gates import PAGE, ROBOTS_TXT, SITE, Forgetful, ScriptedGate, lasting, moved
from tests.support.events import events_of
from tests.support.scripted import UA
from tests.support.tasks import settle

FILE: Final = """\
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
async def gate() -> AsyncIterator[ScriptedGate]:
    async with ScriptedGate({SITE: FILE}) as gate:
        yield gate


async def test_verdict_names_the_deciding_line_its_source_and_the_age_of_the_copy(gate: ScriptedGate) -> None:
    verdict = await gate.check(f"{SITE}/private/x")
    assert not verdict
    assert (verdict.allowed, verdict.reason, verdict.not_before) == (False, Reason.DISALLOW_RULE, None)
    assert verdict.rule is not None
    assert (verdict.rule.line, str(verdict.rule)) == (5, "Disallow: /private")
    assert verdict.source is not None
    assert (verdict.source.status, verdict.source.final_url) == (200, ROBOTS_TXT)
    assert (verdict.source.fresh_until_wall, verdict.age_s) == (gate.clock.wall() + 86_400, 0)
    gate.clock.advance(500)
    known = gate.known(f"{SITE}/")
    assert known.age_s == 500
    assert "500 s old" in known.explain()


REASONS: Final = {
    "/": Reason.NO_RULE,
    "/private": Reason.DISALLOW_RULE,
    "/private/open/x": Reason.ALLOW_RULE,
    "/a.pdf": Reason.DISALLOW_RULE,
    "/a.pdf?download": Reason.NO_RULE,
    "/%70rivate": Reason.DISALLOW_RULE,
    "/open/../private": Reason.DISALLOW_RULE,
    "/open/%2e%2e/private": Reason.DISALLOW_RULE,
    "/priv#ate": Reason.NO_RULE,
    "/private#x": Reason.DISALLOW_RULE,
    "": Reason.NO_RULE,
    "?x": Reason.NO_RULE,
    "/robots.txt": Reason.ROBOTS_TXT,
    "/robots.txt?x": Reason.NO_RULE,
}


async def test_peek_and_check_say_the_same(gate: ScriptedGate) -> None:
    assert {path: (await gate.check(SITE + path)).reason for path in REASONS} == REASONS
    assert {path: gate.known(SITE + path).reason for path in REASONS} == REASONS
    denied = {path for path, reason in REASONS.items() if reason is Reason.DISALLOW_RULE}
    assert {path for path in REASONS if not await gate.check(SITE + path)} == denied
    assert {path for path in REASONS if not gate.known(SITE + path)} == denied


@pytest.mark.clause("RFC 9309 2.3")
async def test_other_spellings_of_an_origin_share_its_copy_and_other_origins_do_not(gate: ScriptedGate) -> None:
    await gate.check(f"{SITE}/")
    same = ["HTTPS://example.com", f"{SITE}:443", "https://EXAMPLE.com", "https://user:pw@example.com", f"{SITE}:"]
    assert {site: gate.known(f"{site}/private").reason for site in same} == dict.fromkeys(same, Reason.DISALLOW_RULE)
    assert gate.asked == [ROBOTS_TXT]
    for other in ("http://example.com", "https://www.example.com", f"{SITE}:444", f"{SITE}."):
        gate.clock.advance(60.0)  # some are of the same host
        assert gate.peek(f"{other}/private") is None
        assert (await gate.check(f"{other}/private")).reason is Reason.UNAVAILABLE
        assert gate.fetcher.count(other) == 1


async def test_escaped_host_is_judged_by_the_file_of_the_decoded_host() -> None:
    async with ScriptedGate({"http://www.xn--mnich-kva.com": "User-agent: *\nDisallow: /x\n"}) as gate:
        for host in ("www.m%C3%BCnich.com", "WWW.m%c3%bcnich%2Ecom", "www.münich.com", "www.xn--mnich-kva.com"):
            assert not await gate.check(f"http://{host}/x")
            assert await gate.check(f"http://{host}/y")
            assert not gate.known(f"http://{host}/x")
        for host in ("www.m%C3%BCnich.com%2Fx", "www.m%25C3%25BCnich.com", "www.m%FCnich.com", "u%40xn--mnich-kva.com"):
            with pytest.raises(InvalidURL):
                await gate.check(f"http://{host}/y")
        assert gate.asked == ["http://www.xn--mnich-kva.com/robots.txt"]


async def test_host_that_only_begins_as_a_known_one_is_not_judged_by_its_file() -> None:
    closed = "https://a.examples"
    async with ScriptedGate({"https://a.example": "", closed: "User-agent: *\nDisallow: /\n"}, jumps=True) as gate:
        assert await gate.check("https://a.example/")
        for known in (False, True):  # without a third slash, the URL less its last letter is the known origin
            assert (gate.peek(closed) is not None) is known
            with pytest.raises(Disallowed):
                async with gate.turn(closed):
                    pass
            with pytest.raises(Disallowed):
                gate.try_turn(closed)


async def test_peek_of_an_unknown_origin_and_the_verdict_on_robots_txt_fetch_nothing(gate: ScriptedGate) -> None:
    assert gate.peek(f"{SITE}/x") is None
    assert (await gate.check(ROBOTS_TXT)).reason is Reason.ROBOTS_TXT
    await settle()
    assert gate.asked == []
    answers: list[Answer] = [503, 200, FetchFault(FaultKind.DNS, "no such host", SITE)]
    for answer in answers:
        async with ScriptedGate({SITE: answer}) as asked:
            await asked.check(PAGE)
            assert await asked.check(ROBOTS_TXT)  # whatever its outcome


async def test_invalid_url_raises_an_error_that_names_the_whole_url() -> None:
    urls = ["", "/x", "example.com/x", "ftp://example.com/", "https://", "https://h:99999/", "x\0y"]
    messages: dict[str, str | None] = dict.fromkeys([*urls, f"{SITE}/a\udce9"]) | {
        f"{SITE}/pri\nvate": "control character",
        f"{SITE}/{'a' * MAX_URL_LENGTH}": "are more than servers take",
    }
    files: list[Answer] = [FILE, "User-agent: *\nDisallow: /" + "*a" * 100_000 + "b\n", "", 404, 503]
    for robots, known in product(files, (False, True)):
        async with ScriptedGate({SITE: robots}) as gate:
            if known:
                await gate.check(f"{SITE}/")
            for url, message in messages.items():
                with pytest.raises(InvalidURL, match=message) as caught:
                    gate.peek(url)
                assert caught.value.url == url
                with pytest.raises(InvalidURL, match=message):
                    await gate.check(url)


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_unreachable_denies_with_the_fault_and_the_time_of_the_next_fetch_in_safe_words() -> None:
    async with ScriptedGate({SITE: FetchFault(FaultKind.CONNECT, "refused", ROBOTS_TXT)}) as gate:
        verdict = await gate.check(f"{SITE}/x")
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert verdict.not_before is not None
        assert 60 <= verdict.not_before - gate.clock.wall() <= 66
        assert "refused" in verdict.explain()
    async with ScriptedGate({SITE: "User-agent: *\nDisallow: /\u202e\u009b2J"}) as gate:
        told = (await gate.check(f"{SITE}/\u202e\u009b2J")).explain()
    assert "Disallow: /\\\\u202e\\\\x9b2J" in told  # what could steer a terminal is escaped
    assert told.replace("\n", "").isprintable()


async def test_agents_share_the_copy_and_judge_by_their_own_groups(gate: ScriptedGate) -> None:
    images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
    other = gate.agent(tokens="ExampleBot-Video", user_agent="ExampleBot-Video/1.0")
    assert not await other.check(f"{SITE}/anything")
    for _ in range(2):  # agents that take turns at an origin
        for view, agent, allowed in ((images, "examplebot-image,examplebot", False), (gate, "examplebot", True)):
            for verdict in (await view.check(f"{SITE}/images/x"), view.peek(f"{SITE}/images/x")):
                assert verdict is not None
                assert (verdict.agent, verdict.allowed) == (agent, allowed)
    assert await images.check(f"{SITE}/private")
    assert gate.asked == [ROBOTS_TXT]


async def test_robots_txt_of_a_denied_host_is_not_fetched(gate: ScriptedGate) -> None:
    gate.set_policy("Example.com", HostPolicy(deny=True, reason="asked us to stay away"))
    gate.set_policy("[::1]", HostPolicy(deny=True, reason="asked us to stay away"))
    for url in (f"{SITE}/open", "http://example.com:8080/x", f"{SITE}./x", "http://[::1]/"):
        verdict = await gate.check(url)
        assert verdict.reason is Reason.POLICY_DENY
        assert "asked us to stay away" in str(verdict)
    assert gate.asked == []


async def test_exempt_host_is_allowed_with_its_reason_whatever_the_policies_of_others(gate: ScriptedGate) -> None:
    gate.set_policy("partner.example", HostPolicy(deny=True))
    assert not await gate.check(f"{SITE}/private")
    assert await gate.check(f"{SITE}/x")
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="our own server"))
    verdict = await gate.check(f"{SITE}/private")
    assert (verdict.allowed, verdict.reason) == (True, Reason.POLICY_EXEMPT)
    assert "our own server" in verdict.explain()
    gate.set_policy("example.com", None)
    assert not await gate.check(f"{SITE}/private")


def test_invalid_options_hosts_and_policies_are_refused() -> None:
    for host in ("", SITE, "a.example/path", "a.example?x", "a b", "u@a.example", "a.example#x", "a.example:80", "::1"):
        with pytest.raises(InvalidURL):
            ScriptedGate().set_policy(host, HostPolicy(deny=True))
    wrong: list[dict[str, Any]] = [{"deny": True, "exempt": True, "reason": "x"}, {"exempt": True}]
    for policy in (*wrong, {"exempt": True, "reason": " "}):
        with pytest.raises(ConfigurationError):
            HostPolicy(**policy)
    options: list[dict[str, Any]] = [{"mode": "watch"}, {"fetcher": ScriptedFetcher(), "session": object()}]
    for option in options:
        with pytest.raises(ConfigurationError):
            Gatekeeper(UA, **option)


async def test_report_mode_allows_and_reports_denials() -> None:
    async with ScriptedGate({SITE: FILE, "https://down.example": 503}, mode="report") as gate:
        for url, reason in ((f"{SITE}/private", Reason.DISALLOW_RULE), ("https://down.example/", Reason.UNREACHABLE)):
            for verdict in (await gate.check(url), gate.known(url)):
                assert (verdict.allowed, verdict.reason, verdict.denied_by_reason) == (True, reason, True)
                assert "only reports" in verdict.explain()
        assert gate.statistics().denied == {Reason.DISALLOW_RULE: 2, Reason.UNREACHABLE: 2}


async def test_batch_keeps_its_order_and_fetches_each_robots_txt_once(gate: ScriptedGate) -> None:
    other = "https://b.example"
    batch = {
        f"{SITE}/private": Reason.DISALLOW_RULE,
        f"{other}/": Reason.UNAVAILABLE,
        "no url": Reason.INVALID_URL,
        f"{SITE}/x": Reason.NO_RULE,
        f"{other}/2": Reason.UNAVAILABLE,
    }
    gate.fetcher.gate.clear()
    asking = asyncio.ensure_future(gate.check_batch([*batch, f"{SITE}/private"]))
    await settle()
    assert gate.asked == [ROBOTS_TXT, f"{other}/robots.txt"]  # concurrently
    gate.fetcher.gate.set()
    verdicts = await asking
    assert [(verdict.url, verdict.reason) for verdict in verdicts[:-1]] == list(batch.items())
    assert verdicts[-1].reason is Reason.DISALLOW_RULE
    assert not verdicts[2]
    assert len(gate.asked) == 2


async def test_events_report_fetches_and_decisions(gate: ScriptedGate) -> None:
    events: list[Event] = []
    end = gate.subscribe(events.append)
    await gate.check(f"{SITE}/private")
    gate.peek(f"{SITE}/x")
    fetched, first, second = events
    assert isinstance(fetched, RobotsFetched)
    assert (str(fetched.origin), fetched.status, fetched.fault) == (SITE, 200, "")
    assert fetched.source is not None
    assert isinstance(first, Decided)
    assert isinstance(second, Decided)
    assert (first.verdict.allowed, second.verdict.allowed) == (False, True)
    assert fetched.source == first.verdict.source
    end()
    gate.peek(f"{SITE}/x")
    assert len(events) == 3


async def test_event_says_whether_the_file_was_cut() -> None:
    for truncated in (False, True):
        answer = FetchResponse(200, ROBOTS_TXT, body=b"User-agent: *\nDisallow: /x\n", truncated=truncated)
        async with ScriptedGate({SITE: answer}) as gate:
            fetched = events_of(gate, RobotsFetched)
            await gate.check(PAGE)
        assert [event.truncated for event in fetched] == [truncated]


async def test_statistics_count_every_verdict_once(gate: ScriptedGate) -> None:
    other = gate.agent(tokens="Other", user_agent="Other/1.0")
    await gate.check(f"{SITE}/private")
    await gate.check(f"{SITE}/x")
    gate.peek(f"{SITE}/x")
    await other.check(f"{SITE}/x")
    await gate.check_batch(["nothing"])
    statistics = gate.statistics()
    assert (statistics.allowed, statistics.decisions) == (2, 5)
    assert statistics.denied == {Reason.DISALLOW_RULE: 2, Reason.INVALID_URL: 1}
    assert (statistics.fetches, statistics.in_flight, statistics.origins) == (1, 0, 1)
    assert statistics.entries_bytes > 0
    assert repr(await gate.check(f"{SITE}/x")) == "<Verdict allowed: https://example.com/x (no rule matches)>"


OLD: Final = {Dialect.KOSTER_1994, Dialect.KOSTER_1996}


async def test_dialect_governs_what_a_status_means() -> None:
    refused = (Dialect.RFC9309, Dialect.KOSTER_1994, Dialect.GOOGLE)
    told = {}
    for dialect, status in product(refused, (403, 429)):
        async with ScriptedGate({SITE: status}, dialect=dialect) as gate:
            verdict = await gate.check(PAGE)
            assert verdict.allowed is (verdict.reason is Reason.UNAVAILABLE)
            told[dialect, status] = verdict.reason
    assert [told[dialect, 403] for dialect in refused] == [Reason.UNAVAILABLE, Reason.FORBIDDEN, Reason.UNAVAILABLE]
    deferred = Reason.TOO_MANY_REQUESTS
    assert [told[dialect, 429] for dialect in refused] == [deferred, deferred, Reason.UNREACHABLE]


async def test_dialect_governs_how_many_redirects_are_followed() -> None:
    urls = [SITE, *(f"{SITE}/{number}" for number in range(1, 30))]
    requests = {}
    for dialect in Dialect:
        answers = {url: moved(url, to) for url, to in pairwise(urls)}
        async with ScriptedGate(answers, jumps=True, dialect=dialect) as gate:
            await gate.check(PAGE)
            requests[dialect] = len(gate.asked)
    assert requests == {dialect: 1 + (20 if dialect in OLD else 5) for dialect in Dialect}


async def test_rules_before_any_agent_bind_every_agent_in_perl_and_a_rule_that_is_a_url_its_own_site() -> None:
    for dialect, allowed in ((Dialect.PERL, False), (Dialect.KOSTER_1994, True), (Dialect.RFC9309, True)):
        async with ScriptedGate({SITE: "Disallow: /"}, dialect=dialect) as gate:
            assert (await gate.check(PAGE)).allowed is allowed
    body = "User-agent: *\nDisallow: http://one.example/\nDisallow: http://two.example/a\n"
    sites = ("http://one.example", "http://two.example", "http://three.example")
    async with ScriptedGate(dict.fromkeys(sites, body), dialect=Dialect.PERL) as gate:
        verdicts = await gate.check_batch([f"{site}{path}" for site in sites for path in ("/a", "/b")])
        assert [verdict.allowed for verdict in verdicts] == [False, False, False, True, True, True]


async def test_google_closes_a_site_although_the_store_lost_the_copy_that_the_gate_holds() -> None:
    for dialect, allowed in ((Dialect.RFC9309, True), (Dialect.GOOGLE, False)):
        async with ScriptedGate({SITE: [lasting(6000), 503]}, dialect=dialect, store=Forgetful()) as gate:
            assert await gate.check(PAGE)
            gate.clock.advance(5_700)  # 95 % of its life: it is asked for again behind
            assert await gate.check(PAGE)
            await settle()
            assert (await gate.check(PAGE)).allowed is allowed


async def test_url_that_no_allow_matches_is_counted_and_explained() -> None:
    body = "User-agent: ExampleBot\nRobot-version: 2.0.0\nAllow: */index.html\n"
    async with ScriptedGate({SITE: body}, dialect=Dialect.CONNER_2) as gate:
        assert await gate.check(f"{SITE}/a/index.html")
        verdict = await gate.check(f"{SITE}/a")
        assert verdict.reason is Reason.NOT_ALLOWED
        assert gate.peek(f"{SITE}/%61") is not None  # by the slow road, too
        assert gate.statistics().denied == {Reason.NOT_ALLOWED: 2}
        assert "only what an Allow rule matches is allowed" in verdict.explain()
        assert "line 3, 'Allow: */index.html'" in verdict.explain()

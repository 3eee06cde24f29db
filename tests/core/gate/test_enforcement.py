"""A gate that enforces usage preferences denies what a site does not want its content used for, and says why."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from politesse import (
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    HostPolicy,
    NotYet,
    PacingOptions,
    PoliteQueue,
    QueueClosed,
    Reason,
    Verdict,
)
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.usage import Preference, Purpose, Usage
from politesse.usage.model import NOTHING_STATED
from politesse.verdict import WITHOUT_RULE

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
TDMREP = f"{SITE}/.well-known/tdmrep.json"
PAGE = f"{SITE}/page"
RESERVED = '[{"location": "/page", "tdm-reservation": 1, "tdm-policy": "https://example.com/p"}]'
SIGNALS = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nDisallow: /private\n"


def _gate(answers: Mapping[str, Answer | list[Answer]], *purposes: str, **options: Any) -> Gatekeeper:
    options.setdefault("clock", ManualClock(autojump=True))
    return Gatekeeper(UA, fetcher=ScriptedFetcher(answers), enforce_usage=set(purposes), **options)


async def test_by_default_a_preference_is_only_reported() -> None:
    async with _gate({SITE: SIGNALS, TDMREP: RESERVED}) as gate:
        verdict = await gate.check(PAGE)
        assert verdict.reason is Reason.NO_RULE
        assert verdict.usage is not None
        assert verdict.usage.preference(Purpose.AI_TRAIN) is Preference.DISALLOWED
        assert verdict.usage.preference(Purpose.TDM) is Preference.UNSTATED


async def test_a_purpose_that_robots_txt_disallows_is_denied_with_the_line_that_says_so() -> None:
    async with _gate({SITE: SIGNALS}, "ai-train") as gate:
        verdict = await gate.check(PAGE)
        assert not verdict
        assert verdict.reason is Reason.USAGE_DISALLOWED
        assert "ai-train, by robots.txt line 2: Content-Signal: search=yes, ai-train=no" in verdict.explain()
        assert verdict.usage is not None
        assert verdict.usage.preference(Purpose.AI_TRAIN) is Preference.DISALLOWED
        assert gate.peek(PAGE) is not None
        assert gate.statistics().denied == {Reason.USAGE_DISALLOWED: 2}


async def test_a_purpose_that_is_not_enforced_denies_nothing() -> None:
    async with _gate({SITE: SIGNALS}, "search", "ai-input") as gate:
        assert await gate.check(PAGE)


async def test_a_rule_that_disallows_is_the_reason_before_any_preference() -> None:
    async with _gate({SITE: SIGNALS}, "ai-train") as gate:
        assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE


async def test_robots_txt_itself_may_be_requested_whatever_it_says() -> None:
    async with _gate({SITE: SIGNALS}, "ai-train", "tdm") as gate:
        assert (await gate.check(f"{SITE}/robots.txt")).reason is Reason.ROBOTS_TXT


async def test_report_mode_allows_everything_and_reports_the_reason() -> None:
    async with _gate({SITE: SIGNALS}, "ai-train", mode="report") as gate:
        verdict = await gate.check(PAGE)
        assert verdict
        assert verdict.reason is Reason.USAGE_DISALLOWED


async def test_a_reservation_in_tdmrep_json_denies_the_paths_that_it_covers() -> None:
    async with _gate({SITE: "", TDMREP: RESERVED}, "tdm") as gate:
        verdict = await gate.check(PAGE)
        assert verdict.reason is Reason.USAGE_DISALLOWED
        assert "tdm, by tdmrep.json entry 1" in str(verdict)
        assert (await gate.check(f"{SITE}/other")).reason is Reason.NO_RULE


async def test_tdmrep_json_is_fetched_once_in_its_turn_and_only_for_tdm() -> None:
    clock = ManualClock(autojump=True)
    asked: list[tuple[str, float]] = []

    class Fetcher(ScriptedFetcher):
        async def fetch(self, request: Any, /) -> Any:
            asked.append((request.url, clock.monotonic()))
            return await super().fetch(request)

    robots = "User-agent: *\nCrawl-delay: 7\n"
    for purposes, files in ((set[str](), 0), ({"ai-train"}, 0), ({"tdm"}, 1)):
        asked.clear()
        fetcher = Fetcher({SITE: robots, TDMREP: RESERVED})
        async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage=purposes) as gate:
            await asyncio.gather(*(gate.check(f"{SITE}/{n}") for n in range(5)))
            assert [url for url, _ in asked] == [f"{SITE}/robots.txt", TDMREP][: 1 + files]
    assert asked[1][1] - asked[0][1] >= 7.0


@pytest.mark.parametrize(
    "answer",
    [
        *(404, 410, 403, "[]", "[{}]"),
        # A web page in its place:
        '<!doctype html><a href="/">home</a>',
        FetchResponse(200, TDMREP, {"content-type": "text/html"}, b"Sorry: there is no such page"),
        FetchResponse(200, TDMREP, {}, "\ufeff <html>".encode()),
        FetchResponse(200, TDMREP, {"content-type": "application/json"}, "<html>".encode("utf-16")),
    ],
)
async def test_a_site_without_reservations_reserves_nothing(answer: Answer) -> None:
    async with _gate({SITE: "", TDMREP: answer}, "tdm") as gate:
        assert (await gate.check(PAGE)).reason is Reason.NO_RULE


@pytest.mark.parametrize(
    "answer",
    [500, 503, 429, FetchFault(FaultKind.TIMEOUT, "too late", TDMREP), RuntimeError("broken")],
    ids=["500", "503", "429", "timeout", "fetcher that raises"],
)
async def test_an_unfetchable_tdmrep_json_closes_the_gate_until_it_is_fetched_again(answer: Answer) -> None:
    clock = ManualClock(autojump=True)
    async with _gate({SITE: "", TDMREP: [answer, "[]"]}, "tdm", clock=clock) as gate:
        verdict = await gate.check(PAGE)
        assert verdict.reason is Reason.USAGE_UNKNOWN
        assert not verdict
        assert verdict.not_before is not None
        assert verdict.not_before > clock.wall()
        assert "tdmrep.json could not be read" in verdict.explain()
        clock.advance(verdict.not_before - clock.wall() + 1)
        assert await gate.check(PAGE)


@pytest.mark.parametrize("body", ["12", "{}", "[", '"x"', "[" * 100_000, b"\x00\xff"])
async def test_an_unparsable_tdmrep_json_closes_the_gate(body: Answer) -> None:
    async with _gate({SITE: "", TDMREP: body}, "tdm") as gate:
        verdict = await gate.check(PAGE)
        assert verdict.reason is Reason.USAGE_UNKNOWN
        assert gate.peek(PAGE) is not None


async def test_a_tdmrep_json_of_the_media_type_of_web_pages_is_read() -> None:
    answer = FetchResponse(200, TDMREP, {"content-type": "text/html"}, RESERVED.encode())
    async with _gate({SITE: "", TDMREP: answer}, "tdm") as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED


@pytest.mark.parametrize("second", ["[", "<html>please log in</html>", "12"])
async def test_an_unparsable_tdmrep_json_keeps_the_previous_reservations(second: str) -> None:
    clock = ManualClock(autojump=True)
    async with _gate({SITE: "", TDMREP: [RESERVED, second, "[]"]}, "tdm", clock=clock) as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
        clock.advance(86_400)
        assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
        clock.advance(86_400)
        assert await gate.check(PAGE), "what can be read takes it back"


async def test_a_tdmrep_json_is_fetched_again_after_a_day() -> None:
    clock = ManualClock(autojump=True)
    fetcher = ScriptedFetcher({SITE: "", TDMREP: ["[]", RESERVED]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage={"tdm"}) as gate:
        assert await gate.check(PAGE)
        clock.advance(70_000)
        assert await gate.check(PAGE)
        assert fetcher.count(TDMREP) == 1
        clock.advance(16_500)
        assert not await gate.check(PAGE)
        assert fetcher.count(TDMREP) == 2


async def test_a_tdmrep_json_that_robots_txt_disallows_is_not_fetched_and_reserves_nothing() -> None:
    fetcher = ScriptedFetcher({SITE: "User-agent: *\nDisallow: /.well-known/\n", TDMREP: RESERVED})
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True), enforce_usage={"tdm"}) as gate:
        assert await gate.check(PAGE)
        assert gate.peek(PAGE)
        assert fetcher.count(TDMREP) == 0


async def test_try_turn_starts_the_fetch_of_both_files_and_then_grants_turns() -> None:
    clock = ManualClock(autojump=True)
    async with _gate({SITE: "", TDMREP: RESERVED}, "tdm", clock=clock) as gate:
        turn = gate.try_turn(f"{SITE}/free")
        async with asyncio.timeout(10):
            while isinstance(turn, NotYet):
                await clock.sleep(0.1)
                turn = gate.try_turn(f"{SITE}/free")
        turn.give_back()
        with pytest.raises(Disallowed):
            gate.try_turn(PAGE)


async def test_a_queue_hands_out_usable_urls_and_refuses_the_rest() -> None:
    refused: list[object] = []
    async with _gate({SITE: SIGNALS, "https://free.example": "", TDMREP: RESERVED}, "ai-train", "tdm") as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda item, verdict: refused.append(item))
        for url in (PAGE, "https://free.example/a", "https://free.example/b"):
            await queue.put(url)
        queue.close()
        got = []
        for _ in range(2):
            async with queue.turn() as turn:
                got.append(turn.url)
        await queue.join()
    assert sorted(got) == ["https://free.example/a", "https://free.example/b"]
    assert refused == [PAGE]


async def test_a_queue_waits_for_a_tdmrep_json_that_fails_once() -> None:
    clock = ManualClock(autojump=True)
    async with _gate({SITE: "", TDMREP: [503, "[]"]}, "tdm", clock=clock) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        await queue.put(PAGE)
        async with asyncio.timeout(20), queue.turn() as turn:
            assert turn.url == PAGE


def _redirect(url: str, target: str) -> FetchFault:
    return FetchFault(FaultKind.REDIRECT_LIMIT, "more than 0 redirects", url, 302, location=target)


async def test_a_tdmrep_json_that_redirects_into_its_own_site_waits_for_nothing_but_its_turn() -> None:
    home = f"{SITE}/"
    async with _gate({SITE: "", TDMREP: _redirect(TDMREP, home), home: "<!doctype html>"}, "tdm") as gate:
        async with asyncio.timeout(10):
            assert (await gate.check(PAGE)).reason is Reason.NO_RULE


async def test_two_sites_whose_tdmrep_json_redirect_into_each_other_do_not_wait_for_each_other() -> None:
    other = "https://other.example"
    other_tdmrep = f"{other}/.well-known/tdmrep.json"
    answers: dict[str, Answer | list[Answer]] = {
        TDMREP: _redirect(TDMREP, f"{other}/a"),
        other_tdmrep: _redirect(other_tdmrep, f"{SITE}/b"),
        f"{other}/a": RESERVED,
        f"{SITE}/b": "[]",
    }
    async with _gate(answers, "tdm") as gate, asyncio.timeout(10):
        verdicts = await gate.check_batch([PAGE, f"{other}/page"])
    assert [verdict.reason for verdict in verdicts] == [Reason.USAGE_DISALLOWED, Reason.UNAVAILABLE]


async def test_a_redirect_of_data_txt_to_a_reserved_path_is_not_followed() -> None:
    data_txt = f"{SITE}/data.txt"
    fetcher = ScriptedFetcher({SITE: "", TDMREP: RESERVED, data_txt: _redirect(data_txt, PAGE), PAGE: "Title: data\n"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True), enforce_usage={"tdm"}) as gate:
        answer = await gate.datatxt(SITE)
    assert "does not want its content used for tdm" in answer.file.fault
    assert fetcher.count(PAGE) == 0


@pytest.mark.filterwarnings("ignore:none of the product tokens")
async def test_an_agent_has_turns_where_only_the_gatekeeper_may_not_fetch_tdmrep_json() -> None:
    robots = "User-agent: ExampleBot\nDisallow: /\n\nUser-agent: ExampleBot-Image\nAllow: /\n"
    async with _gate({SITE: robots, TDMREP: RESERVED}, "tdm") as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate.agent(tokens="ExampleBot-Image"))
        await queue.put(PAGE)
        async with asyncio.timeout(10), queue.turn() as turn:
            assert turn.url == PAGE


async def test_try_turn_reports_a_site_that_is_too_slow_although_its_tdmrep_json_is_never_fetched() -> None:
    pacing = PacingOptions(max_crawl_delay_s=100.0, on_long_crawl_delay="skip")
    async with _gate({SITE: "User-agent: *\nCrawl-delay: 9000\n"}, "tdm", pacing=pacing) as gate:
        refused: list[Reason] = []
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda _, verdict: refused.append(verdict.reason))
        await queue.put(PAGE)
        queue.close()
        with pytest.raises(QueueClosed):
            async with asyncio.timeout(10), queue.turn():
                pass
        assert refused == [Reason.TOO_SLOW]


async def test_try_turn_alone_has_a_large_tdmrep_json_fetched_once_and_read() -> None:
    clock = ManualClock(autojump=True)
    fetcher = ScriptedFetcher({SITE: "", TDMREP: "[" + " " * 70_000 + "]"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage={"tdm"}) as gate:
        async with asyncio.timeout(10):
            while isinstance(turn := gate.try_turn(PAGE), NotYet):
                await asyncio.sleep(0.001)
        turn.give_back()
    assert fetcher.count(TDMREP) == 1


async def test_a_tdmrep_json_larger_than_the_cache_closes_its_own_site_only() -> None:
    body = b'["' + b"x" * (40 * 1024 * 1024) + b'"]'
    async with _gate({SITE: "", TDMREP: body}, "tdm") as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_UNKNOWN
        assert gate.peek(PAGE) is not None, "it is not read again for each question"
        assert await gate.check("https://free.example/")


async def test_a_tdmrep_json_that_expires_within_the_crawl_delay_does_not_block_the_site() -> None:
    clock = ManualClock(autojump=True)
    fetcher = ScriptedFetcher(
        {SITE: "User-agent: *\nCrawl-delay: 120\n", TDMREP: FetchResponse(404, TDMREP, {"cache-control": "no-cache"})}
    )
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage={"tdm"}) as gate, asyncio.timeout(10):
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put(PAGE)
        async with queue.turn():
            assert clock.monotonic() == 240, "one interval for tdmrep.json, one for the page"
        assert fetcher.count(TDMREP) == 1
        clock.advance(300)
        await gate.check(PAGE)
        assert fetcher.count(TDMREP) == 2


async def test_tdmrep_json_that_changes_during_the_wait_for_a_turn_denies() -> None:
    clock = ManualClock(autojump=True)
    short = FetchResponse(200, TDMREP, {"cache-control": "max-age=400"}, b"[]")
    fetcher = ScriptedFetcher({SITE: "User-agent: *\nCrawl-delay: 300\n", TDMREP: [short, RESERVED]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage={"tdm"}) as gate, asyncio.timeout(10):
        async with gate.turn(PAGE):
            pass
        await clock.sleep(110)
        renewal = asyncio.create_task(gate.usage(f"{SITE}/other"))
        await clock.sleep(1)
        with pytest.raises(Disallowed, match="tdm"):
            await gate.take_turn(PAGE)
        assert fetcher.count(TDMREP) == 2
        await renewal


async def test_usage_fetches_and_reports_both_files() -> None:
    async with _gate({SITE: SIGNALS, TDMREP: RESERVED}) as gate:
        usage = await gate.usage(PAGE)
        assert usage is not None
        assert usage.preference(Purpose.AI_TRAIN) is Preference.DISALLOWED
        assert usage.preference(Purpose.SEARCH) is Preference.ALLOWED
        assert usage.preference(Purpose.TDM) is Preference.DISALLOWED
        assert usage.preference(Purpose.AI_INPUT) is Preference.UNSTATED
        assert usage.deciding(Purpose.TDM)[0].policy == "https://example.com/p"
        assert await gate.usage(f"{SITE}/private") is None


async def test_agents_enforce_the_purposes_of_their_gatekeeper() -> None:
    async with _gate({SITE: SIGNALS}, "ai-train") as gate:
        assert (
            await gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0").check(PAGE)
        ).reason is Reason.USAGE_DISALLOWED


async def test_a_truncated_tdmrep_json_is_not_read() -> None:
    cut = FetchResponse(200, TDMREP, body=b"[]", truncated=True)
    async with _gate({SITE: "", TDMREP: cut}, "tdm") as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_UNKNOWN


@pytest.mark.parametrize("given", [{"ai_train"}, {"training"}, "ai-train", {"ai-train", ""}, 3, True])
def test_an_unknown_purpose_is_refused_by_name(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="enforce_usage"):
        Gatekeeper(UA, enforce_usage=given)


EXTENDED = """User-agent: ExampleBot
Allow: /
User-agent: ExampleBot-Extended
Disallow: /art
Allow: /art/free
"""


@pytest.mark.parametrize(
    ("target", "preference"),
    [("/art/x", Preference.DISALLOWED), ("/art/free", Preference.ALLOWED), ("/news", Preference.UNSTATED)],
)
async def test_the_groups_of_a_policy_token_speak_about_its_purpose(target: str, preference: Preference) -> None:
    async with _gate({SITE: EXTENDED}, policy_tokens={"ai-train": "ExampleBot-Extended"}) as gate:
        for verdict in (await gate.check(SITE + target), gate.peek(SITE + target)):
            assert verdict
            assert verdict.usage is not None
            assert verdict.usage.preference(Purpose.AI_TRAIN) is preference
            assert verdict.usage.preference(Purpose.SEARCH) is Preference.UNSTATED


async def test_a_policy_token_that_disallows_is_enforced_with_its_line() -> None:
    async with _gate({SITE: EXTENDED}, "ai-train", policy_tokens={"ai-train": "ExampleBot-Extended"}) as gate:
        verdict = await gate.check(f"{SITE}/art/x")
        assert verdict.reason is Reason.USAGE_DISALLOWED
        assert "ai-train, by robots.txt line 4: Disallow: /art" in str(verdict)
        assert await gate.check(f"{SITE}/art/free")


async def test_a_policy_token_without_a_group_falls_under_the_star_group() -> None:
    robots = "User-agent: ExampleBot\nAllow: /\nUser-agent: *\nDisallow: /\n"
    async with _gate({SITE: robots}, "tdm", "ai-train", policy_tokens={"ai-train": "Extended"}) as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED


async def test_without_a_robots_txt_a_policy_token_says_nothing() -> None:
    async with _gate({SITE: 404}, "ai-train", policy_tokens={"ai-train": "Extended"}) as gate:
        assert await gate.check(PAGE)


async def test_robots_txt_is_fetched_once_for_all_tokens_and_a_queue_hands_out() -> None:
    fetcher = ScriptedFetcher({SITE: EXTENDED})
    tokens = {"ai-train": "ExampleBot-Extended", "search": "ExampleBot-Search"}
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True), policy_tokens=tokens) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for n in range(3):
            await queue.put(f"{SITE}/{n}")
        async with asyncio.timeout(20):
            for _ in range(3):
                async with queue.turn():
                    pass
        assert fetcher.count(SITE) == 1


@pytest.mark.parametrize("given", [{"training": "X"}, {"ai-train": "a token"}, {"ai-train": ""}])
def test_an_invalid_policy_token_is_refused_by_name(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"policy_tokens|token="):
        Gatekeeper(UA, policy_tokens=given)


async def test_within_a_turn_a_deadlock_is_reported_and_the_file_fetched_in_the_background() -> None:
    clock = ManualClock(autojump=True)
    other = "http://example.com:8080"
    answers = {SITE: "", TDMREP: "[]", other: "", f"{other}/.well-known/tdmrep.json": "[]"}
    async with _gate(answers, "tdm", clock=clock) as gate, asyncio.timeout(20):
        async with gate.turn(PAGE):
            verdict = await gate.check(f"{other}/page")  # the same host, which has no second turn meanwhile
            assert verdict.reason is Reason.USAGE_UNKNOWN
            assert "within a turn of the same host" in str(verdict)
            assert await gate.check(f"{SITE}/known")
        assert await gate.check(f"{other}/page")


async def test_within_a_turn_of_a_queue_a_deadlock_is_reported_too() -> None:
    clock = ManualClock(autojump=True)
    async with _gate({SITE: "", TDMREP: "[]"}, "tdm", clock=clock) as gate, asyncio.timeout(20):
        queue: PoliteQueue[str] = PoliteQueue(gate)
        await queue.put(PAGE)
        async with queue.turn():
            assert (await gate.check("http://example.com:8080/")).reason is Reason.USAGE_UNKNOWN


async def test_a_task_started_within_a_turn_may_wait_after_the_turn() -> None:
    clock = ManualClock(autojump=True)
    other = "http://example.com:8080"
    async with _gate({SITE: "", TDMREP: "[]"}, "tdm", clock=clock) as gate, asyncio.timeout(20):
        ended = asyncio.Event()

        async def later() -> Reason:
            await ended.wait()
            return (await gate.check(f"{other}/")).reason

        async with gate.turn(PAGE):
            task = asyncio.create_task(later())
        ended.set()
        assert await task is Reason.UNAVAILABLE


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

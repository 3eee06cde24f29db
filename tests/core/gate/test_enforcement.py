"""A gate that enforces usage preferences denies what a site does not want its content used for, and says why."""

import asyncio
from typing import Any, Final

import pytest

from politesse import ConfigurationError, Disallowed, Gatekeeper, HostPolicy, NotYet, PacingOptions, Reason, Verdict
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import Answer
from politesse.usage import Preference, Purpose, Usage
from politesse.usage.model import NOTHING_STATED
from politesse.verdict import WITHOUT_RULE
from tests.core.gate.gates import PAGE, SITE, Answers, ScriptedGate, found, moved
from tests.support.scripted import UA

TDMREP: Final = f"{SITE}/.well-known/tdmrep.json"
OTHER: Final = "http://example.com:8080"
RESERVED: Final = '[{"location": "/page", "tdm-reservation": 1, "tdm-policy": "https://example.com/p"}]'
SIGNALS: Final = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nDisallow: /private\n"
EXTENDED: Final = """User-agent: ExampleBot
Allow: /
User-agent: ExampleBot-Extended
Disallow: /art
Allow: /art/free
"""
TOKENS: Final = {"ai-train": "ExampleBot-Extended"}


def gate_of(answers: Answers, *purposes: str, **options: Any) -> ScriptedGate:
    return ScriptedGate(answers, jumps=True, enforce_usage=set(purposes), **options)


def tdm_gate(*answers: Answer, robots: Answer = "", **options: Any) -> ScriptedGate:
    """Return a gate that enforces ``tdm`` at a site with these successive answers for tdmrep.json."""
    return gate_of({SITE: robots, TDMREP: answers}, "tdm", **options)


def preference(verdict: Verdict | None, purpose: Purpose = Purpose.AI_TRAIN) -> Preference:
    assert verdict is not None
    assert isinstance(verdict.usage, Usage)
    return verdict.usage.preference(purpose)


async def queued(gate: ScriptedGate, *urls: str) -> PoliteQueue[str]:
    queue: PoliteQueue[str] = PoliteQueue(gate)
    for url in urls:
        await queue.put(url)
    return queue


async def test_purpose_that_robots_txt_disallows_is_denied_with_the_line_that_says_so() -> None:
    async with gate_of({SITE: SIGNALS}, "ai-train") as gate:
        other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")  # agents enforce the purposes of the gate
        for verdict in (await gate.check(PAGE), gate.known(PAGE), await other.check(PAGE)):
            assert (verdict.allowed, verdict.reason) == (False, Reason.USAGE_DISALLOWED)
            assert "ai-train, by robots.txt line 2: Content-Signal: search=yes, ai-train=no" in verdict.explain()
            assert preference(verdict) is Preference.DISALLOWED
        assert gate.statistics().denied == {Reason.USAGE_DISALLOWED: 3}
        assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
        assert (await gate.check(f"{SITE}/robots.txt")).reason is Reason.ROBOTS_TXT


async def test_preference_is_only_reported_by_default_for_other_purposes_and_in_report_mode() -> None:
    rows: list[tuple[dict[str, Any], Reason]] = [
        ({}, Reason.NO_RULE),
        ({"enforce_usage": {"search", "ai-input"}}, Reason.NO_RULE),
        ({"enforce_usage": {"ai-train"}, "mode": "report"}, Reason.USAGE_DISALLOWED),
    ]
    for options, reason in rows:
        async with ScriptedGate({SITE: SIGNALS, TDMREP: RESERVED}, **options) as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.reason, preference(verdict)) == (True, reason, Preference.DISALLOWED)
            assert preference(verdict, Purpose.TDM) is Preference.UNSTATED


async def test_reservation_in_tdmrep_json_denies_the_paths_that_it_covers() -> None:
    web_page = found(RESERVED, TDMREP, content_type="text/html")  # its media type alone says nothing
    for answer in (RESERVED, web_page):
        async with tdm_gate(answer) as gate:
            verdict = await gate.check(PAGE)
            assert verdict.reason is Reason.USAGE_DISALLOWED
            assert "tdm, by tdmrep.json entry 1" in str(verdict)
            assert (await gate.check(f"{SITE}/other")).reason is Reason.NO_RULE


async def test_tdmrep_json_is_fetched_once_in_its_turn_and_only_for_tdm() -> None:
    for purposes, files in (((), 0), (("ai-train",), 0), (("tdm",), 1)):
        async with gate_of({SITE: "User-agent: *\nCrawl-delay: 7\n", TDMREP: RESERVED}, *purposes) as gate:
            await asyncio.gather(*(gate.check(f"{SITE}/{n}") for n in range(5)))
            assert gate.asked == [f"{SITE}/robots.txt", TDMREP][: 1 + files]
            assert gate.clock.monotonic() == 7.0 * files


async def test_site_without_reservations_reserves_nothing() -> None:
    answers: list[Answer] = [
        *(404, 410, 403, "[]", "[{}]"),
        # A web page in its place:
        '<!doctype html><a href="/">home</a>',
        found("Sorry: there is no such page", TDMREP, content_type="text/html"),
        "\ufeff <html>",
        FetchResponse(200, TDMREP, {"content-type": "application/json"}, "<html>".encode("utf-16")),
    ]
    reasons = []
    for answer in answers:
        async with tdm_gate(answer) as gate:
            reasons.append((await gate.check(PAGE)).reason)
    assert reasons == [Reason.NO_RULE] * len(answers)
    async with tdm_gate(RESERVED, robots="User-agent: *\nDisallow: /.well-known/\n") as gate:
        assert await gate.check(PAGE)
        assert gate.known(PAGE)
        assert gate.fetcher.count(TDMREP) == 0


async def test_unfetchable_tdmrep_json_closes_the_gate_until_it_is_fetched_again() -> None:
    fault = FetchFault(FaultKind.TIMEOUT, "too late", TDMREP)
    answers: list[Answer] = [500, 503, 429, fault, RuntimeError("broken")]
    for answer in answers:
        async with tdm_gate(answer, "[]") as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.reason) == (False, Reason.USAGE_UNKNOWN)
            assert verdict.not_before is not None
            assert verdict.not_before > gate.clock.wall()
            assert "tdmrep.json could not be read" in verdict.explain()
            gate.clock.advance(verdict.not_before - gate.clock.wall() + 1)
            assert await gate.check(PAGE)


async def test_tdmrep_json_that_cannot_be_read_closes_the_gate() -> None:
    bodies: list[Answer] = ["12", "{}", "[", '"x"', "[" * 100_000, b"\x00\xff"]
    reasons = []
    for answer in (*bodies, FetchResponse(200, TDMREP, body=b"[]", truncated=True)):
        async with tdm_gate(answer) as gate:
            reasons += [(await gate.check(PAGE)).reason, gate.known(PAGE).reason]
    assert reasons == [Reason.USAGE_UNKNOWN] * 14


async def test_tdmrep_json_that_cannot_be_read_keeps_the_previous_reservations() -> None:
    for second in ("[", "<html>please log in</html>", "12"):
        async with tdm_gate(RESERVED, second, "[]") as gate:
            assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
            gate.clock.advance(86_400)
            assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
            gate.clock.advance(86_400)
            assert await gate.check(PAGE), "what can be read takes it back"


async def test_tdmrep_json_is_fetched_again_after_a_day() -> None:
    async with tdm_gate("[]", RESERVED) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(70_000)
        assert await gate.check(PAGE)
        assert gate.fetcher.count(TDMREP) == 1
        gate.clock.advance(16_500)
        assert not await gate.check(PAGE)
        assert gate.fetcher.count(TDMREP) == 2


async def test_try_turn_and_a_queue_start_the_fetch_of_both_files_and_then_grant_turns() -> None:
    async with tdm_gate(503, "[]") as gate, asyncio.timeout(20), (await queued(gate, PAGE)).turn() as waited:
        assert waited.url == PAGE
    async with tdm_gate(RESERVED) as gate, asyncio.timeout(10):
        while isinstance(turn := gate.try_turn(f"{SITE}/free"), NotYet):
            await gate.clock.sleep(0.1)
        turn.give_back()
        with pytest.raises(Disallowed):
            gate.try_turn(PAGE)
    async with tdm_gate("[" + " " * 70_000 + "]") as gate, asyncio.timeout(10):  # which is read in a thread
        while isinstance(turn := gate.try_turn(PAGE), NotYet):
            await asyncio.sleep(0.001)
        turn.give_back()
        assert gate.fetcher.count(TDMREP) == 1


async def test_queue_hands_out_usable_urls_and_refuses_the_rest() -> None:
    refused: list[str] = []
    free = ["https://free.example/a", "https://free.example/b"]
    async with gate_of({SITE: SIGNALS, TDMREP: RESERVED}, "ai-train", "tdm") as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda url, _: refused.append(url))
        for url in (PAGE, *free):
            await queue.put(url)
        queue.close()
        got = []
        for _ in range(2):
            async with queue.turn() as turn:
                got.append(turn.url)
        await queue.join()
    assert (sorted(got), refused) == (free, [PAGE])


async def test_sites_whose_tdmrep_json_redirect_into_each_other_or_themselves_do_not_wait_for_each_other() -> None:
    other = "https://other.example"
    other_tdmrep = f"{other}/.well-known/tdmrep.json"
    answers: dict[str, Answer] = {TDMREP: moved(TDMREP, f"{other}/a"), other_tdmrep: moved(other_tdmrep, f"{SITE}/b")}
    async with gate_of(answers | {f"{other}/a": RESERVED, f"{SITE}/b": "[]"}, "tdm") as gate, asyncio.timeout(10):
        verdicts = await gate.check_batch([PAGE, f"{other}/page"])
    own: Answers = {SITE: "", TDMREP: moved(TDMREP, f"{SITE}/"), f"{SITE}/": "<!doctype html>"}
    async with gate_of(own, "tdm") as gate, asyncio.timeout(10):
        assert (await gate.check(PAGE)).reason is Reason.NO_RULE
    assert [verdict.reason for verdict in verdicts] == [Reason.USAGE_DISALLOWED, Reason.UNAVAILABLE]


async def test_redirect_of_data_txt_to_a_reserved_path_is_not_followed() -> None:
    data_txt = f"{SITE}/data.txt"
    answers: Answers = {SITE: "", TDMREP: RESERVED, data_txt: moved(data_txt, PAGE), PAGE: "Title: data\n"}
    async with gate_of(answers, "tdm") as gate:
        answer = await gate.datatxt(SITE)
        assert "does not want its content used for tdm" in answer.file.fault
        assert gate.fetcher.count(PAGE) == 0


@pytest.mark.filterwarnings("ignore:none of the product tokens")
async def test_agent_has_turns_where_only_the_gatekeeper_may_not_fetch_tdmrep_json() -> None:
    robots = "User-agent: ExampleBot\nDisallow: /\n\nUser-agent: ExampleBot-Image\nAllow: /\n"
    async with tdm_gate(RESERVED, robots=robots) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate.agent(tokens="ExampleBot-Image"))
        await queue.put(PAGE)
        async with asyncio.timeout(10), queue.turn() as turn:
            assert turn.url == PAGE


async def test_try_turn_reports_a_site_that_is_too_slow_although_its_tdmrep_json_is_never_fetched() -> None:
    pacing = PacingOptions(max_crawl_delay_s=100.0, on_long_crawl_delay="skip")
    refused: list[Reason] = []
    async with gate_of({SITE: "User-agent: *\nCrawl-delay: 9000\n"}, "tdm", pacing=pacing) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda _, verdict: refused.append(verdict.reason))
        await queue.put(PAGE)
        queue.close()
        with pytest.raises(QueueClosed):
            async with asyncio.timeout(10), queue.turn():
                pass
    assert refused == [Reason.TOO_SLOW]


async def test_tdmrep_json_larger_than_the_cache_closes_its_own_site_only() -> None:
    async with tdm_gate(b'["' + b"x" * (40 * 1024 * 1024) + b'"]') as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_UNKNOWN
        assert gate.peek(PAGE) is not None, "it is not read again for each question"
        assert await gate.check("https://free.example/")


async def test_tdmrep_json_that_expires_within_the_crawl_delay_does_not_block_the_site() -> None:
    expired = FetchResponse(404, TDMREP, {"cache-control": "no-cache"})
    async with tdm_gate(expired, robots="User-agent: *\nCrawl-delay: 120\n") as gate, asyncio.timeout(10):
        async with (await queued(gate, PAGE)).turn():
            assert gate.clock.monotonic() == 240, "one interval for tdmrep.json, one for the page"
        assert gate.fetcher.count(TDMREP) == 1
        gate.clock.advance(300)
        await gate.check(PAGE)
        assert gate.fetcher.count(TDMREP) == 2


async def test_tdmrep_json_that_changes_during_the_wait_for_a_turn_denies() -> None:
    short = found("[]", TDMREP, cache_control="max-age=400")
    async with tdm_gate(short, RESERVED, robots="User-agent: *\nCrawl-delay: 300\n") as gate, asyncio.timeout(10):
        async with gate.turn(PAGE):
            pass
        await gate.clock.sleep(110)
        renewal = asyncio.create_task(gate.usage(f"{SITE}/other"))
        await gate.clock.sleep(1)
        with pytest.raises(Disallowed, match="tdm"):
            await gate.take_turn(PAGE)
        assert gate.fetcher.count(TDMREP) == 2
        await renewal


async def test_usage_fetches_and_reports_both_files() -> None:
    stated = {
        Purpose.AI_TRAIN: Preference.DISALLOWED,
        Purpose.SEARCH: Preference.ALLOWED,
        Purpose.TDM: Preference.DISALLOWED,
        Purpose.AI_INPUT: Preference.UNSTATED,
    }
    async with gate_of({SITE: SIGNALS, TDMREP: RESERVED}) as gate:
        usage = await gate.usage(PAGE)
        assert usage is not None
        assert {purpose: usage.preference(purpose) for purpose in stated} == stated
        assert usage.deciding(Purpose.TDM)[0].policy == "https://example.com/p"
        assert await gate.usage(f"{SITE}/private") is None


def test_unknown_purposes_and_invalid_tokens_are_refused_by_name() -> None:
    purposes: list[Any] = [{"ai_train"}, {"training"}, "ai-train", {"ai-train", ""}, 3, True]
    for given in purposes:
        with pytest.raises(ConfigurationError, match="enforce_usage"):
            Gatekeeper(UA, enforce_usage=given)
    for tokens in ({"training": "X"}, {"ai-train": "a token"}, {"ai-train": ""}):
        with pytest.raises(ConfigurationError, match=r"policy_tokens|token="):
            Gatekeeper(UA, policy_tokens=tokens)


async def test_groups_of_a_policy_token_speak_about_its_purpose() -> None:
    stated = {"/art/x": Preference.DISALLOWED, "/art/free": Preference.ALLOWED, "/news": Preference.UNSTATED}
    async with gate_of({SITE: EXTENDED}, policy_tokens=TOKENS) as gate:
        checked = {path: await gate.check(SITE + path) for path in stated}
        for verdicts in (checked, {path: gate.known(SITE + path) for path in stated}):
            assert all(verdicts.values())
            assert {path: preference(verdict) for path, verdict in verdicts.items()} == stated
            assert {preference(verdict, Purpose.SEARCH) for verdict in verdicts.values()} == {Preference.UNSTATED}


async def test_policy_token_that_disallows_is_enforced_with_its_line() -> None:
    async with gate_of({SITE: EXTENDED}, "ai-train", policy_tokens=TOKENS) as gate:
        verdict = await gate.check(f"{SITE}/art/x")
        assert verdict.reason is Reason.USAGE_DISALLOWED
        assert "ai-train, by robots.txt line 4: Disallow: /art" in str(verdict)
        assert await gate.check(f"{SITE}/art/free")
    star = "User-agent: ExampleBot\nAllow: /\nUser-agent: *\nDisallow: /\n"  # its group for the token
    for answer, reason in ((star, Reason.USAGE_DISALLOWED), (404, Reason.UNAVAILABLE)):
        async with gate_of({SITE: answer}, "tdm", "ai-train", policy_tokens=TOKENS) as gate:
            assert (await gate.check(PAGE)).reason is reason


async def test_robots_txt_is_fetched_once_for_all_tokens_and_a_queue_hands_out() -> None:
    async with gate_of({SITE: EXTENDED}, policy_tokens=TOKENS | {"search": "ExampleBot-Search"}) as gate:
        queue = await queued(gate, *(f"{SITE}/{n}" for n in range(3)))
        async with asyncio.timeout(20):
            for _ in range(3):
                async with queue.turn():
                    pass
        assert gate.fetcher.count(SITE) == 1


async def test_within_a_turn_a_deadlock_is_reported_and_the_file_fetched_in_the_background() -> None:
    answers = {SITE: "", TDMREP: "[]", OTHER: "", f"{OTHER}/.well-known/tdmrep.json": "[]"}
    async with gate_of(answers, "tdm") as gate, asyncio.timeout(20):
        for turn in (gate.turn(PAGE), (await queued(gate, PAGE)).turn()):
            async with turn:
                verdict = await gate.check(f"{OTHER}/page")  # the same host, which has no second turn meanwhile
                assert verdict.reason is Reason.USAGE_UNKNOWN
                assert "within a turn of the same host" in str(verdict)
                assert await gate.check(f"{SITE}/known")
            assert await gate.check(f"{OTHER}/page")
            await gate.forget(OTHER)


async def test_task_started_within_a_turn_may_wait_after_the_turn() -> None:
    async with tdm_gate("[]") as gate, asyncio.timeout(20):
        ended = asyncio.Event()

        async def later() -> Reason:
            await ended.wait()
            return (await gate.check(f"{OTHER}/")).reason

        async with gate.turn(PAGE):
            task = asyncio.create_task(later())
        ended.set()
        assert await task is Reason.UNAVAILABLE


SILENT: Final = "https://silent.example"
FILE: Final = "User-agent: *\nDisallow: /private\nContent-Usage: train-ai=n\nContent-Usage: /open train-ai=y\n"
FILES: Final[Answers] = {SITE: FILE, SILENT: "User-agent: *\nDisallow: /private\n"}


async def test_preference_stands_beside_the_verdict_for_check_and_peek_in_any_spelling() -> None:
    async with ScriptedGate(FILES) as gate:
        verdict = await gate.check(PAGE)
        assert (verdict.allowed, verdict.reason, preference(verdict)) == (True, Reason.NO_RULE, Preference.DISALLOWED)
        assert preference(await gate.check(f"{SITE}/open/page")) is Preference.ALLOWED
        for url in (f"{SITE}/open", "HTTPS://EXAMPLE.com/open", f"{SITE}/%6Fpen", f"{SITE}/x/../open"):
            assert preference(gate.peek(url)) is Preference.ALLOWED, url
        verdict = gate.known(PAGE)
        await gate.forget(SITE)
        assert preference(verdict) is Preference.DISALLOWED  # it outlives the entry that it came from


async def test_preference_is_unstated_where_the_file_has_none_and_missing_where_a_page_is_denied() -> None:
    async with ScriptedGate(FILES) as gate, ScriptedGate(FILES, mode="report") as reporting:
        gate.set_policy("exempt.example", HostPolicy(exempt=True, reason="our own"))
        for url in (f"{SILENT}/page", "https://exempt.example/page", "https://none.example/page"):
            assert (await gate.check(url)).usage is NOTHING_STATED
        assert [verdict.usage for verdict in await gate.check_batch(["mailto:us", "https://"])] == [None, None]
        for asked, allowed in ((gate, False), (reporting, True)):
            verdict = await asked.check(f"{SITE}/private")
            assert (verdict.allowed, verdict.usage) == (allowed, None)


def test_usage_is_built_on_first_access() -> None:
    asked: list[str] = []

    class Said:
        def usage(self, url: str) -> Usage:
            asked.append(url)
            return NOTHING_STATED

    verdict = Verdict("/a", "x", allowed=True, match=WITHOUT_RULE[Reason.NO_RULE], site_usage=Said())
    assert bool(verdict)
    assert str(verdict)
    assert verdict.explain()
    assert asked == []
    assert verdict.usage is NOTHING_STATED
    assert asked == ["/a"]

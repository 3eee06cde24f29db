"""Arguments of the wrong type or range: public callables refuse them by a short error that names the argument.

To cover a new method, add a line to one of the tables: the argument, the call, and which values of BAD it takes.
"""

import inspect
import operator
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

import httpx
import pytest

from politesse import (
    CacheOptions,
    ConfigurationError,
    FetchOptions,
    Gatekeeper,
    HostPolicy,
    Origin,
    PacingOptions,
    PoliteQueue,
    PoliteSession,
    Reason,
    RobotsTxt,
)
from politesse.fetch import AiohttpFetcher
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from politesse.integrations.requests import PoliteAdapter
from politesse.options import Limit
from politesse.page import PageDirectives, TdmRep, followable_links, response_usage, tdmrep_usage
from politesse.robotrules import RobotRules
from politesse.robots.explain import explain
from politesse.stores import MemoryStore, SharedMemoryStore
from politesse.sync import Gate
from politesse.testing import ScriptedFetcher
from tests.support.scripted import UA

BAD: Final[dict[str, object]] = {
    "None": None,
    "bytes": b"http://a/",
    "int": 5,
    "float": 1.5,
    "object": object(),
    "list": ["http://a/"],
    "bool": True,
    "str": "5",
    "nan": float("nan"),
    "negative": -1,
}
A: Final = "https://a.test/"
DAY_S: Final = 86_400.0
ROBOTS: Final = RobotsTxt.parse("User-agent: *\nClean-param: sid")
RULES: Final = ROBOTS.rules_for("examplebot")
WEB: Final = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200)))

Call = Callable[[Gatekeeper, Any], object]


async def _enter(context: Any) -> None:
    async with context:
        pass


async def _drain(source: Any) -> None:
    async for _ in source:
        pass


async def _handle(_page: object, _response: object) -> None:
    pass


def _crawl(gate: Gatekeeper, web: Any = WEB, handle: Any = _handle) -> Any:
    return PoliteQueue[None](gate).crawl(web, handle)


URLS: Final[dict[str, tuple[str, Call, str]]] = {  # of which each str is of the right type
    "check": ("url", lambda gate, bad: gate.check(bad), ""),
    "peek": ("url", lambda gate, bad: gate.peek(bad), ""),
    "turn": ("url", lambda gate, bad: _enter(gate.turn(bad)), ""),
    "turn, exempt": ("url", lambda gate, bad: _enter(gate.turn(bad, exempt="by agreement")), ""),
    "take_turn": ("url", lambda gate, bad: gate.take_turn(bad), ""),
    "try_turn": ("url", lambda gate, bad: gate.try_turn(bad), ""),
    "usage": ("url", lambda gate, bad: gate.usage(bad), ""),
    "datatxt": ("origin", lambda gate, bad: gate.datatxt(bad), ""),
    "sitemaps": ("origin", lambda gate, bad: gate.sitemaps(bad), ""),
    "forget": ("origin", lambda gate, bad: gate.forget(bad), ""),
    "put": ("url", lambda gate, bad: PoliteQueue[None](gate).put(bad), ""),
    "put_nowait": ("url", lambda gate, bad: PoliteQueue[None](gate).put_nowait(bad), ""),
    "Origin.of": ("url", lambda _, bad: Origin.of(bad), ""),
    "Origin.given": ("origin", lambda _, bad: Origin.given(bad), ""),
    "RuleSet.allowed": ("url", lambda _, bad: RULES.allowed(bad), ""),
    "RuleSet.match": ("url", lambda _, bad: RULES.match(bad), ""),
    "RuleSet.usage": ("url", lambda _, bad: RULES.usage(bad), ""),
    "explain": ("url", lambda _, bad: explain(ROBOTS, bad, "examplebot"), ""),
    "CleanParams.canonical": ("url", lambda _, bad: ROBOTS.clean_params.canonical(bad), ""),
    "followable_links": ("base_url", lambda _, bad: followable_links(b"", bad), ""),
    "response_usage": ("url", lambda _, bad: response_usage({}, PageDirectives.from_response({}, None), bad), ""),
    "tdmrep_usage": ("target", lambda _, bad: tdmrep_usage(TdmRep(), bad), ""),
    "RobotRules.parse": ("url", lambda _, bad: RobotRules("examplebot").parse(bad, b""), ""),
    "RobotRules.allowed": ("url", lambda _, bad: RobotRules("examplebot").allowed(bad), ""),
    "RobotRules.visit": ("site", lambda _, bad: RobotRules("examplebot").visit(bad), ""),
}
OTHERS: Final[dict[str, tuple[str, Call, str]]] = {
    "check_batch": ("urls", lambda gate, bad: gate.check_batch(bad), "list"),
    "try_turns": ("urls", lambda gate, bad: gate.try_turns(bad), "list"),
    "filter": ("source", lambda gate, bad: _drain(gate.filter(bad)), "list"),
    "turn": ("max_wait_s", lambda gate, bad: _enter(gate.turn(A, max_wait_s=bad)), "None int float"),
    "take_turn": ("max_wait_s", lambda gate, bad: gate.take_turn(A, max_wait_s=bad), "None int float"),
    "turn, exempt": ("exempt", lambda gate, bad: _enter(gate.turn(A, exempt=bad)), "None str"),
    "filter, key": ("key", lambda gate, bad: _drain(gate.filter([A], key=bad)), "None"),
    "filter, max_pending": ("max_pending", lambda gate, bad: _drain(gate.filter([A], max_pending=bad)), "int"),
    "set_policy, host": ("host", lambda gate, bad: gate.set_policy(bad, HostPolicy()), "str"),
    "set_policy, policy": ("policy", lambda gate, bad: gate.set_policy("a.test", bad), "None"),
    "agent, tokens": ("tokens", lambda gate, bad: gate.agent(tokens=bad), "list str"),
    "agent, user_agent": ("user_agent", lambda gate, bad: gate.agent(tokens="a", user_agent=bad), "None str"),
    "subscribe": ("subscriber", lambda gate, bad: gate.subscribe(bad), ""),
    "RobotsTxt.parse, body": ("body", lambda _, bad: RobotsTxt.parse(bad), "bytes str"),
    "RobotsTxt.parse, dialect": ("dialect", lambda _, bad: RobotsTxt.parse("", bad), ""),
    "RobotsTxt.rules_for": ("agent", lambda _, bad: ROBOTS.rules_for(bad), "list str"),
    "RobotsTxt.groups_for": ("agent", lambda _, bad: ROBOTS.groups_for(bad), "list str"),
    "RobotRules": ("name", lambda _, bad: RobotRules(bad), "str"),
    "AiohttpFetcher": ("user_agent", lambda _, bad: AiohttpFetcher(bad), "str"),
    "AiohttpFetcher, options": ("options", lambda _, bad: AiohttpFetcher(UA, bad), "None"),
    "Gatekeeper": ("user_agent", lambda _, bad: Gatekeeper(bad), "str"),
    "Gatekeeper, policies": ("policies", lambda _, bad: Gatekeeper(UA, policies=bad), "None"),
    "crawl, web": ("web", _crawl, ""),
    "crawl, handle": ("handle", lambda gate, bad: _crawl(gate, handle=bad), ""),
    "put, priority": ("priority", lambda gate, bad: PoliteQueue(gate).put(A, priority=bad), "int float bool negative"),
    "PoliteQueue, gate": ("gate", lambda _, bad: PoliteQueue[None](bad), ""),
    "PoliteSession, gate": ("PoliteSession(", lambda _, bad: PoliteSession(bad), "str"),
    "RobotsMiddleware, gate": ("RobotsMiddleware(", lambda _, bad: RobotsMiddleware(bad), ""),
    "RobotsMiddleware, pace": ("pace", lambda gate, bad: RobotsMiddleware(gate, pace=bad), "bool"),
    "RobotsMiddleware": (
        "max_wait_s",
        lambda gate, bad: RobotsMiddleware(gate, pace=True, max_wait_s=bad),
        "None int float",
    ),
    "Gate": ("gatekeeper", lambda _, bad: Gate(bad), ""),
    "PoliteAdapter, gate": ("PoliteAdapter(", lambda _, bad: PoliteAdapter(bad), ""),
    "PoliteTransport, gate": ("PoliteTransport(", lambda _, bad: PoliteTransport(bad), ""),
}

# The values of options that have the right type and are out of range.
OUT_OF_RANGE: Final[dict[type, dict[str, list[object]]]] = {
    CacheOptions: {
        "min_lifetime_s": [DAY_S + 1],
        "refresh_after": [-0.1, 1.1],
        "on_forbidden": ["deny"],
        "on_too_many_requests": ["disallow"],
        "stale_if_unreachable_s": [DAY_S - 1, 30 * DAY_S + 1],
        "retry_min_s": [0.0, 3601.0],
        "retry_max_s": [DAY_S + 1, inf],
        "max_entries_bytes": [0],
        "max_site_files_bytes": [0],
        "max_concurrent_fetches": [0],
        "store_timeout_s": [0, 3_601, inf],
    },
    FetchOptions: {
        "connect_timeout_s": [0.0, inf],
        "max_body_bytes": [511_999],
        "from_address": ["", "bot@example.com\r\nX-Injected: yes"],
        "proxy": ["socks5://127.0.0.1:1080", "127.0.0.1:3128", "http://[::1"],
        "private_addresses": ["refuse"],
    },
    PacingOptions: {
        "min_delay_s": [inf],
        "max_concurrent": [0],
        "max_crawl_delay_s": [0.0],
        "on_long_crawl_delay": ["ignore"],
        "adaptive_factor": [inf],
        "adaptive_max_s": [inf],
        "backoff_min_s": [0.0],
        "backoff_max_s": [1e6],
        "refused_min_s": [0.0, DAY_S + 1],
        "refused_after": [0],
    },
    Limit: {"max_concurrent": [0]},
}

TAKEN: Final = {"float": "int float", "int": "int", "str": "str", "bool": "bool", "None": "None"}
"""What an argument takes of BAD, by the parts of its annotation; it takes nothing else."""

UNUSUAL: Final = {
    "refresh_after": "",  # all numbers of BAD are out of its range
    "max_body_bytes": "",
    "max_bytes": "int float",
    "stale_if_unreachable_s": "None",
    "exempt": "",  # without a reason
    "fleet": "None",  # "5" is no URL
    "max_refusals": "None int",
    "journal": " ".join(BAD),  # the error names it "path"
}


# What is made or called with the options of its signature; before them, it gets these arguments.
OPTIONS: Final[dict[Callable[..., object], Callable[[Gatekeeper], list[object]]]] = {
    **dict.fromkeys((CacheOptions, FetchOptions, PacingOptions, Limit, HostPolicy), lambda _: []),
    **dict.fromkeys((MemoryStore, SharedMemoryStore), lambda _: []),
    **dict.fromkeys((PoliteQueue, PoliteTransport), lambda gate: [gate]),
    **dict.fromkeys((Gatekeeper, PoliteSession), lambda _: [UA]),
    PoliteQueue.crawl: lambda gate: [PoliteQueue[None](gate), WEB, _handle],
}


def _all_cases() -> dict[str, tuple[str, Call, str]]:
    cases = {f"{name}({argument})": (argument, call, takes) for name, (argument, call, takes) in OTHERS.items()}
    for made in OPTIONS:
        for name, parameter in inspect.signature(made).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                takes = " ".join(TAKEN.get(part, "") for part in parameter.annotation.split(" | "))
                cases[f"{made.__name__}({name})"] = (name, partial(_call, made, name), UNUSUAL.get(name, takes))
    return cases


def _call(made: Callable[..., object], name: str, gate: Gatekeeper, bad: object) -> object:
    return made(*OPTIONS[made](gate), **{name: bad})


async def _error(gate: Gatekeeper, call: Call, value: object) -> Exception | None:
    try:
        result = call(gate, value)
        if inspect.isawaitable(result):
            await result
    except (TypeError, ValueError) as error:  # a ConfigurationError is a ValueError
        return error
    return None


def _is_refusal(error: Exception | None, argument: str, kind: str) -> bool:
    message = str(error)
    is_our_own = type(error) in {TypeError, ValueError} or isinstance(error, ConfigurationError)
    # Of an option, a TypeError is a ConfigurationError, too.
    is_of_its_type = isinstance(error, TypeError) or kind not in {"None", "bytes", "object"}
    return is_our_own and is_of_its_type and argument in message and ": " in message and len(message) < 300


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher()


async def test_wrong_argument_is_refused_by_its_name(gate: Gatekeeper) -> None:
    wrong = []
    for name, (argument, call, takes) in _all_cases().items():
        for kind, bad in BAD.items():
            if kind not in takes.split() and not _is_refusal(error := await _error(gate, call, bad), argument, kind):
                wrong.append((name, kind, error))
    assert wrong == []


async def test_what_is_no_url_is_a_type_error_that_says_what_to_give(gate: Gatekeeper) -> None:
    wrong = []
    for name, (argument, call, _) in URLS.items():
        for kind, bad in BAD.items():
            error = await _error(gate, call, bad)
            told = str(error).startswith(f"{argument}={bad!r:.100}: give a str or yarl.URL")
            if kind != "str" and not (told and isinstance(error, TypeError) and _is_refusal(error, argument, kind)):
                wrong.append((name, kind, error))
    assert wrong == []
    given: Any = httpx.URL(A)
    with pytest.raises(TypeError, match=r"url=URL\('https://a.test/'\): give a str or yarl.URL, not httpx.URL$"):
        await gate.check(given)


def test_option_out_of_range_is_refused_by_its_name() -> None:
    wrong = []
    for options, table in OUT_OF_RANGE.items():
        for name, values in table.items():
            for value in values:
                try:
                    options(**{name: value})
                    message = "taken"
                except ConfigurationError as error:
                    message = str(error)
                # A proxy may have a password.
                if name not in message or (name != "proxy" and repr(value) not in message):
                    wrong.append((options, name, value, message))
    assert wrong == []
    with pytest.raises(ConfigurationError, match=r"backoff_min_s.*100\.0"):
        PacingOptions(backoff_min_s=100.0, backoff_max_s=10.0)


def test_option_of_the_wrong_type_is_a_type_error_and_a_configuration_error() -> None:
    wrong: tuple[Any, ...] = (None, b"10", "10", True, [10])
    for bad in wrong:
        for make in (PacingOptions, Limit):
            with pytest.raises(ConfigurationError, match="min_delay_s=") as raised:
                make(min_delay_s=bad)
            assert isinstance(raised.value, TypeError)


async def test_bad_items_of_a_batch_or_a_filter_cost_the_others_nothing(gate: Gatekeeper) -> None:
    given: list[Any] = [A, None, b"x", 5, ["http://a/"], f"{A}b"]
    verdicts = await gate.check_batch(given)
    reasons = [Reason.UNAVAILABLE, *[Reason.INVALID_URL] * 4, Reason.UNAVAILABLE]
    assert [verdict.reason for verdict in verdicts] == reasons
    assert [verdict.url for verdict in verdicts[:4]] == [A, "None", "b'x'", "5"]
    notes = [f"is of type {kind}; give a str or yarl.URL" for kind in ("NoneType", "bytes", "int", "list")]
    assert [verdict.note for verdict in verdicts[1:5]] == notes
    found = {id(item): verdict async for item, verdict in gate.filter(given)}
    assert [found[id(item)].reason for item in given] == reasons


async def test_item_whose_key_is_none_comes_with_invalid_url(gate: Gatekeeper) -> None:
    links: list[dict[str, str]] = [{"href": A}, {}, {"href": f"{A}b"}]
    key: Any = operator.methodcaller("get", "href")
    found = [(item, verdict) async for item, verdict in gate.filter(links, key=key)]
    assert len(found) == 3
    note = "is of type NoneType; give a str or yarl.URL"
    assert [(item, verdict.note) for item, verdict in found if not verdict] == [({}, note)]


async def test_key_that_raises_ends_the_filter_after_the_items_before(gate: Gatekeeper) -> None:
    links = [{"href": A}, {"href": f"{A}b"}, {}, {"href": f"{A}c"}]
    found = []

    async def read() -> None:
        async for item, _ in gate.filter(links, key=lambda link: link["href"]):
            found.append(item["href"])

    with pytest.raises(KeyError, match="href"):
        await read()
    assert found == [A, f"{A}b"]


async def test_error_of_another_part_is_not_taken_for_a_bad_item(
    gate: Gatekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("of a part")

    monkeypatch.setattr(gate.state.cache, "valid", fail)
    with pytest.raises(TypeError, match="of a part"):
        await gate.check_batch([A])

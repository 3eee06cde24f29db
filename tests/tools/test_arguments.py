"""Arguments of the wrong type: each public callable refuses them by one short error that names the argument.

To cover a new method, add a line to one of the tables: the argument, the call, and what it does take of BAD.
"""

import inspect
import operator
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Final, NamedTuple

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
from politesse.options import Limit
from politesse.page import PageDirectives, TdmRep, followable_links, response_usage, tdmrep_usage
from politesse.robotrules import RobotRules
from politesse.robots.explain import explain
from politesse.stores import MemoryStore, SharedMemoryStore
from politesse.sync import Gate, PoliteAdapter
from politesse.testing import ScriptedFetcher
from tests.core.queue.simulated import SimulatedWeb
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
TEXT: Final = ("str",)
FLAG: Final = ("bool",)
NUMBER: Final = ("int", "float")
WHOLE: Final = ("int",)
COMPARABLE: Final = ("int", "float", "bool", "negative")
A: Final = "https://a.test/"
DAY_S: Final = 86_400.0
ROBOTS: Final = RobotsTxt.parse("User-agent: *\nClean-param: sid")
RULES: Final = ROBOTS.rules_for("examplebot")


class Case(NamedTuple):
    """A call with one argument in question.

    Attributes:
        argument: its name.
        call: calls with a value of BAD; its result may be awaitable.
        takes: the names of the values that are valid.
    """

    argument: str
    call: Callable[[Gatekeeper, Any], object]
    takes: tuple[str, ...] = ()


async def _enter(context: Any) -> None:
    async with context:
        pass


async def _drain(source: Any) -> None:
    async for _ in source:
        pass


async def _handle(_page: object, _response: object) -> None:
    pass


def _crawl(gate: Gatekeeper, **options: Any) -> Any:
    return PoliteQueue[None](gate).crawl(SimulatedWeb(), _handle, **options)


URLS: Final = {
    "check": Case("url", lambda gate, bad: gate.check(bad)),
    "peek": Case("url", lambda gate, bad: gate.peek(bad)),
    "turn": Case("url", lambda gate, bad: _enter(gate.turn(bad))),
    "turn, exempt": Case("url", lambda gate, bad: _enter(gate.turn(bad, exempt="by agreement"))),
    "take_turn": Case("url", lambda gate, bad: gate.take_turn(bad)),
    "try_turn": Case("url", lambda gate, bad: gate.try_turn(bad)),
    "usage": Case("url", lambda gate, bad: gate.usage(bad)),
    "check_batch": Case("urls", lambda gate, bad: gate.check_batch(bad), ("list",)),
    "try_turns": Case("urls", lambda gate, bad: gate.try_turns(bad), ("list",)),
    "filter": Case("source", lambda gate, bad: _drain(gate.filter(bad)), ("list",)),
    "datatxt": Case("origin", lambda gate, bad: gate.datatxt(bad)),
    "sitemaps": Case("origin", lambda gate, bad: gate.sitemaps(bad)),
    "forget": Case("origin", lambda gate, bad: gate.forget(bad)),
    "put": Case("url", lambda gate, bad: PoliteQueue[None](gate).put(bad)),
    "put_nowait": Case("url", lambda gate, bad: PoliteQueue[None](gate).put_nowait(bad)),
    "Origin.of": Case("url", lambda _, bad: Origin.of(bad)),
    "Origin.given": Case("origin", lambda _, bad: Origin.given(bad)),
    "RuleSet.allowed": Case("url", lambda _, bad: RULES.allowed(bad)),
    "RuleSet.match": Case("url", lambda _, bad: RULES.match(bad)),
    "RuleSet.usage": Case("url", lambda _, bad: RULES.usage(bad)),
    "explain": Case("url", lambda _, bad: explain(ROBOTS, bad, "examplebot")),
    "CleanParams.canonical": Case("url", lambda _, bad: ROBOTS.clean_params.canonical(bad), TEXT),
    "followable_links": Case("base_url", lambda _, bad: followable_links(b"", bad)),
    "response_usage": Case("url", lambda _, bad: response_usage({}, PageDirectives.from_response({}, None), bad), TEXT),
    "tdmrep_usage": Case("target", lambda _, bad: tdmrep_usage(TdmRep(), bad)),
    "RobotRules.parse": Case("url", lambda _, bad: RobotRules("examplebot").parse(bad, b"")),
    "RobotRules.allowed": Case("url", lambda _, bad: RobotRules("examplebot").allowed(bad), TEXT),
    "RobotRules.visit": Case("site", lambda _, bad: RobotRules("examplebot").visit(bad), TEXT),
}

OTHERS: Final = {
    "turn": Case("max_wait_s", lambda gate, bad: _enter(gate.turn(A, max_wait_s=bad)), ("None", *NUMBER)),
    "take_turn": Case("max_wait_s", lambda gate, bad: gate.take_turn(A, max_wait_s=bad), ("None", *NUMBER)),
    "turn, exempt": Case("exempt", lambda gate, bad: _enter(gate.turn(A, exempt=bad)), ("None", *TEXT)),
    "filter, key": Case("key", lambda gate, bad: _drain(gate.filter([A], key=bad)), ("None",)),
    "filter, max_pending": Case("max_pending", lambda gate, bad: _drain(gate.filter([A], max_pending=bad)), WHOLE),
    "set_policy, host": Case("host", lambda gate, bad: gate.set_policy(bad, HostPolicy()), TEXT),
    "set_policy, policy": Case("policy", lambda gate, bad: gate.set_policy("a.test", bad), ("None",)),
    "agent, tokens": Case("tokens", lambda gate, bad: gate.agent(tokens=bad), ("list", *TEXT)),
    "agent, user_agent": Case("user_agent", lambda gate, bad: gate.agent(tokens="a", user_agent=bad), ("None", *TEXT)),
    "subscribe": Case("subscriber", lambda gate, bad: gate.subscribe(bad)),
    "RobotsTxt.parse, body": Case("body", lambda _, bad: RobotsTxt.parse(bad), ("bytes", *TEXT)),
    "RobotsTxt.parse, dialect": Case("dialect", lambda _, bad: RobotsTxt.parse("", bad)),
    "RobotsTxt.rules_for": Case("agent", lambda _, bad: ROBOTS.rules_for(bad), ("list", *TEXT)),
    "RobotsTxt.groups_for": Case("agent", lambda _, bad: ROBOTS.groups_for(bad), ("list", *TEXT)),
    "RobotRules": Case("name", lambda _, bad: RobotRules(bad), TEXT),
    "MemoryStore": Case("max_bytes", lambda _, bad: MemoryStore(max_bytes=bad), NUMBER),
    "SharedMemoryStore": Case("max_bytes", lambda _, bad: SharedMemoryStore(max_bytes=bad), NUMBER),
    "AiohttpFetcher": Case("user_agent", lambda _, bad: AiohttpFetcher(bad), TEXT),
    "AiohttpFetcher, options": Case("options", lambda _, bad: AiohttpFetcher(UA, bad), ("None",)),
    "PoliteQueue, gate": Case("gate", lambda _, bad: PoliteQueue[None](bad)),
    "crawl, web": Case("web", lambda gate, bad: PoliteQueue[None](gate).crawl(bad, _handle)),
    "crawl, handle": Case("handle", lambda gate, bad: PoliteQueue[None](gate).crawl(SimulatedWeb(), bad)),
    "crawl, workers": Case("workers", lambda gate, bad: _crawl(gate, workers=bad), WHOLE),
    "crawl, seen": Case("seen", lambda gate, bad: _crawl(gate, seen=bad), ("None",)),
    "crawl, max_pages": Case("max_pages", lambda gate, bad: _crawl(gate, max_pages=bad), ("None", *WHOLE)),
    "crawl, on_progress": Case("on_progress", lambda gate, bad: _crawl(gate, on_progress=bad), ("None",)),
    "crawl, on_error": Case("on_error", lambda gate, bad: _crawl(gate, on_error=bad), ("None",)),
    "crawl, stop_on_error": Case("stop_on_error", lambda gate, bad: _crawl(gate, stop_on_error=bad), FLAG),
    "put, priority": Case("priority", lambda gate, bad: PoliteQueue[None](gate).put(A, priority=bad), COMPARABLE),
    "PoliteSession, gate": Case("PoliteSession(", lambda _, bad: PoliteSession(bad), TEXT),
    "PoliteSession, session": Case("session", lambda gate, bad: PoliteSession(gate, session=bad), ("None",)),
    "RobotsMiddleware, gate": Case("RobotsMiddleware(", lambda _, bad: RobotsMiddleware(bad)),
    "RobotsMiddleware, pace": Case("pace", lambda gate, bad: RobotsMiddleware(gate, pace=bad), FLAG),
    "Gate": Case("gatekeeper", lambda _, bad: Gate(bad)),
    "PoliteAdapter, gate": Case("PoliteAdapter(", lambda _, bad: PoliteAdapter(bad)),
    "PoliteTransport, gate": Case("PoliteTransport(", lambda _, bad: PoliteTransport(bad)),
    "PoliteTransport, wraps": Case("wraps", lambda gate, bad: PoliteTransport(gate, wraps=bad), ("None",)),
}
for name, client in {
    "PoliteSession": PoliteSession,
    "PoliteTransport": PoliteTransport,
    "RobotsMiddleware": lambda gate, **given: RobotsMiddleware(gate, pace=True, **given),
}.items():
    OTHERS[f"{name}, max_wait_s"] = Case(
        "max_wait_s",
        lambda gate, bad, client=client: client(gate, max_wait_s=bad),  # type: ignore[misc]
        ("None", *NUMBER),
    )

OPTIONS: Final[dict[Callable[..., object], dict[str, tuple[str, ...]]]] = {
    CacheOptions: {
        "min_lifetime_s": NUMBER,
        "refresh_after": (),
        "on_forbidden": ("None",),
        "on_too_many_requests": ("None",),
        "stale_if_unreachable_s": ("None",),
        "retry_min_s": NUMBER,
        "retry_max_s": NUMBER,
        "max_entries_bytes": NUMBER,
        "max_site_files_bytes": NUMBER,
        "max_concurrent_fetches": NUMBER,
        "store_timeout_s": NUMBER,
    },
    FetchOptions: {
        "connect_timeout_s": NUMBER,
        "total_timeout_s": NUMBER,
        "max_body_bytes": (),
        "from_address": ("None", *TEXT),
        "proxy": ("None",),
        "ssl_context": ("None",),
        "private_addresses": (),
        "unguarded_redirects": FLAG,
    },
    PacingOptions: {
        "key": (),
        "address": ("None",),
        "domain": ("None",),
        "min_delay_s": NUMBER,
        "max_concurrent": WHOLE,
        "max_crawl_delay_s": NUMBER,
        "on_long_crawl_delay": (),
        "adaptive_factor": NUMBER,
        "adaptive_max_s": NUMBER,
        "backoff_min_s": NUMBER,
        "backoff_max_s": NUMBER,
        "refused_min_s": NUMBER,
        "refused_after": WHOLE,
        "max_turn_s": NUMBER,
        "scope": TEXT,
    },
    Limit: {"min_delay_s": NUMBER, "max_concurrent": WHOLE},
    HostPolicy: {
        "deny": FLAG,
        "exempt": (),
        "reason": TEXT,
        "min_delay_s": ("None", *NUMBER),
        "max_concurrent": ("None", *WHOLE),
    },
    Gatekeeper: {
        "user_agent": TEXT,
        "token": ("None", *TEXT),
        "dialect": (),
        "cache": ("None",),
        "fetch": ("None",),
        "pacing": ("None",),
        "store": ("None", "str"),
        "session": ("None",),
        "fetcher": ("None",),
        "resolver": ("None",),
        "clock": ("None",),
        "mode": (),
        "enforce_usage": (),
        "policy_tokens": ("None",),
    },
    PoliteQueue: {
        "maxsize": WHOLE,
        "on_disallowed": ("None",),
        "max_unreachable_s": ("None", *NUMBER),
        "max_wait_s": ("None", *NUMBER),
        "max_refusals": ("None", *WHOLE),
    },
}


OUT_OF_RANGE: Final[dict[Callable[..., object], list[dict[str, Any]]]] = {
    CacheOptions: [
        *({"min_lifetime_s": DAY_S + 1}, {"refresh_after": -0.1}, {"refresh_after": 1.1}),
        *({"stale_if_unreachable_s": DAY_S - 1}, {"stale_if_unreachable_s": 30 * DAY_S + 1}),
        *({"retry_min_s": 0.0}, {"retry_min_s": 3601.0}, {"retry_max_s": DAY_S + 1}, {"retry_max_s": inf}),
        *({"max_entries_bytes": 0}, {"max_site_files_bytes": 0}, {"max_concurrent_fetches": 0}),
        *({"on_forbidden": "deny"}, {"on_too_many_requests": "disallow"}),
        *({"store_timeout_s": 0}, {"store_timeout_s": 3_601}, {"store_timeout_s": inf}),
    ],
    FetchOptions: [
        *({"connect_timeout_s": 0.0}, {"connect_timeout_s": inf}, {"max_body_bytes": 511_999}),
        *({"from_address": ""}, {"from_address": "bot@example.com\r\nX-Injected: yes"}),
        *({"private_addresses": "refuse"}, {"proxy": "socks5://127.0.0.1:1080"}),
        *({"proxy": "127.0.0.1:3128"}, {"proxy": "http://[::1"}),
    ],
    PacingOptions: [
        *({"min_delay_s": inf}, {"max_concurrent": 0}, {"max_crawl_delay_s": 0.0}),
        *({"adaptive_factor": inf}, {"adaptive_max_s": inf}, {"backoff_min_s": 0.0}, {"backoff_max_s": 1e6}),
        *({"backoff_min_s": 100.0, "backoff_max_s": 10.0}, {"on_long_crawl_delay": "ignore"}),
        *({"refused_min_s": 0.0}, {"refused_min_s": DAY_S + 1}, {"refused_after": 0}),
    ],
    Limit: [{"max_concurrent": 0}],
}


def _cases() -> Iterator[Any]:
    for table in (URLS, OTHERS):
        for name, case in table.items():
            yield pytest.param(case, id=f"{name}({case.argument})")
    for option_class, arguments in OPTIONS.items():
        for argument, takes in arguments.items():
            case = Case(argument, _made(option_class, argument), takes)
            yield pytest.param(case, id=f"{option_class.__name__}({argument})")


def _made(option_class: Callable[..., object], argument: str) -> Callable[[Gatekeeper, Any], object]:
    def make(gate: Gatekeeper, bad: object) -> object:
        needed: dict[object, dict[str, object]] = {Gatekeeper: {"user_agent": UA}, PoliteQueue: {"gate": gate}}
        return option_class(**{**needed.get(option_class, {}), argument: bad})

    return make


async def _result(gate: Gatekeeper, case: Case, value: object) -> None:
    result = case.call(gate, value)
    if inspect.isawaitable(result):
        await result


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher()


# One test for all values of an argument: a test for each would cost more in pytest than in the library.
@pytest.mark.parametrize("case", list(_cases()))
async def test_wrong_argument_is_refused_by_its_name(gate: Gatekeeper, case: Case) -> None:
    for kind, bad in BAD.items():
        # Of URLs, every str is of the right type; of the others, each value may be wrong.
        if kind in case.takes or (kind == "str" and case in URLS.values()):
            continue
        with pytest.raises((TypeError, ValueError)) as raised:  # a ConfigurationError is a ValueError
            await _result(gate, case, bad)
        message = str(raised.value)
        assert case.argument in message, kind
        assert ": " in message, kind
        assert len(message) < 300, kind
        assert type(raised.value) in {TypeError, ValueError} or isinstance(raised.value, ConfigurationError), kind
        if bad is None or isinstance(bad, bytes) or type(bad) is object:
            assert isinstance(raised.value, TypeError), kind  # of an option: a ConfigurationError, too


@pytest.mark.parametrize("name", [name for name, case in URLS.items() if case.argument not in {"urls", "source"}])
async def test_what_is_no_url_is_a_type_error_that_says_what_to_give(gate: Gatekeeper, name: str) -> None:
    case = URLS[name]
    for bad in (bad for kind, bad in BAD.items() if kind != "str"):
        with pytest.raises(TypeError) as raised:
            await _result(gate, case, bad)
        assert str(raised.value).startswith(f"{case.argument}={bad!r:.100}: give a str or yarl.URL")


async def test_url_of_another_library_is_told_apart_from_that_of_yarl(gate: Gatekeeper) -> None:
    given: Any = httpx.URL(A)
    with pytest.raises(TypeError, match=r"url=URL\('https://a.test/'\): give a str or yarl.URL, not httpx.URL$"):
        await gate.check(given)


@pytest.mark.parametrize("options", [CacheOptions, FetchOptions, PacingOptions, Limit, HostPolicy])
def test_every_option_is_in_the_table(options: type) -> None:
    assert set(OPTIONS[options]) == set(inspect.signature(options).parameters)


@pytest.mark.parametrize(
    ("make", "options"),
    [pytest.param(make, options, id=f"{options}") for make, table in OUT_OF_RANGE.items() for options in table],
)
def test_option_out_of_range_is_refused_by_its_name(make: Callable[..., object], options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))) as raised:
        make(**options)
    assert "proxy" in options or repr(next(iter(options.values()))) in str(raised.value)  # it may have a password


@pytest.mark.parametrize("bad", [None, b"10", "10", True, [10]])
def test_option_of_the_wrong_type_is_a_type_error_and_a_configuration_error(bad: Any) -> None:
    for make in (PacingOptions, Limit):
        with pytest.raises(ConfigurationError, match="min_delay_s=") as raised:
            make(min_delay_s=bad)
        assert isinstance(raised.value, TypeError)


async def test_bad_items_of_a_batch_cost_the_others_nothing(gate: Gatekeeper) -> None:
    given: list[Any] = [A, None, b"x", 5, ["http://a/"], f"{A}b"]
    verdicts = await gate.check_batch(given)
    invalid = [Reason.INVALID_URL] * 4
    assert [verdict.reason for verdict in verdicts] == [Reason.UNAVAILABLE, *invalid, Reason.UNAVAILABLE]
    assert [verdict.url for verdict in verdicts[:4]] == [A, "None", "b'x'", "5"]
    notes = [f"is of type {kind}; give a str or yarl.URL" for kind in ("NoneType", "bytes", "int", "list")]
    assert [verdict.note for verdict in verdicts[1:5]] == notes


async def test_bad_items_of_a_filter_cost_the_others_nothing(gate: Gatekeeper) -> None:
    given: list[Any] = [A, None, b"x", 5, object(), f"{A}b"]
    found = {id(item): verdict async for item, verdict in gate.filter(given)}
    invalid = [Reason.INVALID_URL] * 4
    assert [found[id(item)].reason for item in given] == [Reason.UNAVAILABLE, *invalid, Reason.UNAVAILABLE]


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

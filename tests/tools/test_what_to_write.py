"""What a newcomer writes in the wrong way or place: the error says what to write."""

import re
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import aiohttp
import pytest

import politesse
from politesse import ConfigurationError, Gatekeeper, PoliteQueue, PoliteSession, options
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.page import PageDirectives, followable_links, read_html
from politesse.testing import ManualClock, ScriptedFetcher

UA = "newbot/1.0 (+https://example.com/bot)"
SITE = "https://a.example"


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(autojump=True)) as gate:
        yield gate


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"min_delay_s": 2}, r"write {call}(..., pacing=PacingOptions(min_delay_s=...))"),
        ({"max_body_bytes": 2}, r"write {call}(..., fetch=FetchOptions(max_body_bytes=...))"),
        ({"on_forbidden": "allow"}, r"write {call}(..., cache=CacheOptions(on_forbidden=...))"),
        ({"lease_s": 2.0}, r"write {call}(..., fleet=FleetOptions(lease_s=...))"),
        ({"colour": "red"}, r"{call}() has no such argument"),
    ],
)
@pytest.mark.parametrize("call", [Gatekeeper, PoliteSession])
async def test_option_in_the_wrong_place_is_an_error_that_names_the_place(
    call: Any, given: dict[str, object], problem: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(problem.format(call=call.__name__))) as caught:
        call(UA, **given)
    assert isinstance(caught.value, ConfigurationError)


async def test_argument_of_the_gate_that_a_session_is_given_is_named() -> None:
    with pytest.raises(TypeError, match=r"mode=: give it to the gate, as in Gatekeeper\(\.\.\., mode=\.\.\.\)"):
        PoliteSession(UA, mode="report")


async def test_options_of_aiohttp_reach_the_session_that_sends() -> None:
    timeout = aiohttp.ClientTimeout(total=5)
    async with PoliteSession(UA, timeout=timeout, headers={"X-Test": "yes"}, proxy="http://127.0.0.1:9") as web:
        assert web.session.timeout is timeout
        assert web.session.headers["X-Test"] == "yes"


@pytest.mark.parametrize("name", ["cookie_jar", "headers", "timeout", "connector"])
async def test_attribute_of_the_session_that_sends_is_named(name: str) -> None:
    async with PoliteSession(UA) as web:
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': write \.session\.{name} for"):
            getattr(web, name)
        with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
            _ = web.nonsense  # type: ignore[attr-defined]
        assert not hasattr(web, "nonsense")


def test_public_name_of_a_submodule_is_named_with_its_module() -> None:
    places: dict[str, list[str]] = {}
    folder = Path(politesse.__file__).parent
    for path in folder.rglob("*.py"):
        module = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
        if "._" not in module and "integrations" not in module and not module.endswith("__main__"):
            for name in getattr(import_module(module), "__all__", ()):
                places.setdefault(name, []).append(module)
    missing = {
        name: homes for name, homes in places.items() if name not in politesse.__all__ and not hasattr(politesse, name)
    }
    assert len(missing) > 100
    for name, homes in sorted(missing.items())[::4]:
        with pytest.raises(AttributeError) as caught:
            getattr(politesse, name)
        assert str(caught.value) in {
            f"module 'politesse' has no attribute {name!r}: write 'from {home} import {name}'" for home in homes
        }


def test_name_that_no_module_has_gets_no_hint() -> None:
    for name in ("nonsense", "SqliteStor", "_SqliteStore", "__path"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'$"):
            getattr(politesse, name)


def test_client_of_an_extra_is_named_with_its_module() -> None:
    with pytest.raises(AttributeError, match=r": write 'from politesse\.integrations\.httpx import PoliteTransport'$"):
        _ = politesse.PoliteTransport  # type: ignore[attr-defined]


async def test_turn_that_is_awaited_says_what_to_write(gate: Gatekeeper) -> None:
    with pytest.raises(TypeError, match=r"'async with gate\.turn\(url\) as turn', or 'turn = await gate\.take_turn"):
        await gate.turn(SITE)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"'async with queue\.turn\(\) as turn'"):
        await PoliteQueue(gate).turn()  # type: ignore[misc]


async def test_plain_with_says_what_to_write(gate: Gatekeeper) -> None:
    queue = PoliteQueue(gate)
    async with PoliteSession(gate) as web:
        all_wrong: tuple[Any, ...] = gate, queue, web, gate.turn(SITE), queue.turn()
        for wrong in all_wrong:
            problem = rf"^a {type(wrong).__name__} needs 'async with', not 'with'$"
            with pytest.raises(TypeError, match=problem), wrong:
                pass


async def test_loop_over_a_queue_says_what_to_write(gate: Gatekeeper) -> None:
    with pytest.raises(TypeError, match=r"'async with queue\.turn\(\) as turn' for each page, or 'await queue\.crawl"):
        async for _ in PoliteQueue(gate):  # type: ignore[attr-defined]
            pass


async def test_middleware_for_the_gate_is_no_gate(gate: Gatekeeper) -> None:
    wrong: Any = RobotsMiddleware(gate)
    with pytest.raises(ConfigurationError, match="a User-Agent, a Gatekeeper, or a view of one"):
        PoliteSession(wrong)


TEXT = '<meta charset="latin-1"><meta name="robots" content="noarchive"><a href="/für">f</a>'


@pytest.mark.parametrize("page", [TEXT, "\ufeff" + TEXT, TEXT.encode("latin-1")])
def test_page_may_be_text_or_octets(page: str | bytes) -> None:
    assert followable_links(page, SITE) == [f"{SITE}/f%C3%BCr"]
    assert not PageDirectives.from_response({"content-type": "text/html; charset=latin-1"}, page).may_archive


def test_text_with_lone_surrogates_is_read() -> None:
    html = read_html('<meta name="robots" content="noindex"><a href="/\ud800x">', links=True)
    assert html is not None
    assert [link.href for link in html.links] == ["/?x"]
    assert html.metas[0].content == "noindex"


def test_text_is_read_up_to_the_limit() -> None:
    page = "<p>" + "é" * 100 + '<a href="/late">'
    assert followable_links(page, SITE, max_bytes=50) == []
    assert followable_links(page, SITE) == [f"{SITE}/late"]


def test_names_of_values_are_exported() -> None:
    assert get_args(options.PrivateAddresses) == ("redirects", "deny", "allow")
    assert get_args(options.PacingKey) == ("host", "address", "domain")
    assert get_args(options.OnLongCrawlDelay) == ("obey", "cap", "skip")
    assert get_args(options.OnForbidden) == ("allow", "disallow")
    assert get_args(options.OnTooManyRequests) == ("defer", "allow")
    assert get_args(options.Mode) == ("enforce", "report")

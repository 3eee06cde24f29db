"""What a newcomer writes in the wrong way or place: the error says what to write."""

import json
import re
import subprocess
import sys
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


PLACES = {
    "min_delay_s": r"write {}(..., pacing=PacingOptions(min_delay_s=...))",
    "max_body_bytes": r"write {}(..., fetch=FetchOptions(max_body_bytes=...))",
    "on_forbidden": r"write {}(..., cache=CacheOptions(on_forbidden=...))",
    "lease_s": r"write {}(..., fleet=FleetOptions(lease_s=...))",
    "colour": r"{}() has no such argument",
}


async def test_option_in_the_wrong_place_is_an_error_that_names_the_place() -> None:
    calls: tuple[Any, ...] = Gatekeeper, PoliteSession
    for call in calls:
        for name, problem in PLACES.items():
            with pytest.raises(TypeError, match=re.escape(problem.format(call.__name__))) as caught:
                call(UA, **{name: 2})
            assert isinstance(caught.value, ConfigurationError)


async def test_argument_of_the_gate_that_a_session_is_given_is_named() -> None:
    with pytest.raises(TypeError, match=r"mode=: give it to the gate, as in Gatekeeper\(\.\.\., mode=\.\.\.\)"):
        PoliteSession(UA, mode="report")


async def test_options_of_aiohttp_reach_the_session_that_sends() -> None:
    timeout = aiohttp.ClientTimeout(total=5)
    async with PoliteSession(UA, timeout=timeout, headers={"X-Test": "yes"}, proxy="http://127.0.0.1:9") as web:
        assert web.session.timeout is timeout
        assert web.session.headers["X-Test"] == "yes"


async def test_attribute_of_the_session_that_sends_is_named() -> None:
    async with PoliteSession(UA) as web:
        for name in ("cookie_jar", "headers", "timeout", "connector"):
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
    with pytest.raises(AttributeError, match=r": write 'from politesse\.integrations\.httpx import PoliteTransport'$"):
        _ = politesse.PoliteTransport  # type: ignore[attr-defined]
    for name in ("nonsense", "SqliteStor", "_SqliteStore", "__path"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'$"):
            getattr(politesse, name)


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


def test_page_may_be_text_or_octets() -> None:
    for page in (TEXT, "\ufeff" + TEXT, TEXT.encode("latin-1")):
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


PROGRAM = """
from politesse import CrawlPage, Gatekeeper, PoliteQueue, PoliteSession
from politesse.options import FetchOptions, PrivateAddresses, load
from politesse.queue import QueuedTurn
import aiohttp


async def handle(page: CrawlPage, response: aiohttp.ClientResponse) -> None:
    print(page.url, page.item)


async def note(turn: QueuedTurn) -> None:
    print(turn.item)


async def crawl(private: PrivateAddresses) -> None:
    settings = load("politesse.toml")
    print(settings["user_agent"].upper(), Gatekeeper(**settings, session=None))
    gate = Gatekeeper("ExampleBot/1.0", fetch=FetchOptions(private_addresses=private))
    async with PoliteSession(gate) as web, PoliteQueue(gate) as queue:
        await queue.put("https://example.com/", item={"depth": 1})
        await queue.crawl(web, handle)
        named = PoliteQueue[str](gate)
        await named.crawl(web, handle)
        async with queue.turn() as turn:
            await note(turn)
"""
MISTAKES = """
from politesse import Gatekeeper, PoliteQueue, PoliteSession


async def crawl(gate: Gatekeeper, web: PoliteSession) -> None:
    Gatekeeper("ExampleBot/1.0", min_delay_s=2)
    await gate.turn("https://example.com/")
    with gate:
        pass
    async for page in PoliteQueue(gate):
        pass
    web.cookie_jar
"""
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--config-file", "", "program.py"],
    "pyright": [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
}
STRICT = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["program.py"]}
SOURCES = str(Path(politesse.__file__).parent.parent)  # pyright does not find an editable installation


def checked(checker: str, program: str, folder: Path) -> list[str]:
    """Return the lines that name an error."""
    (folder / "program.py").write_text(program)
    (folder / "pyrightconfig.json").write_text(json.dumps({**STRICT, "extraPaths": [SOURCES]}))
    done = subprocess.run(CHECKERS[checker], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert done.returncode in {0, 1}, done.stderr
    return [line for line in done.stdout.splitlines() if "error:" in line]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", CHECKERS)
def test_bare_queue_and_page_pass_a_strict_type_checker(checker: str, tmp_path: Path) -> None:
    assert checked(checker, PROGRAM, tmp_path) == []


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_that_raise_an_error_are_found_by_a_type_checker(checker: str, tmp_path: Path) -> None:
    found = {int(line.split("program.py:")[1].split(":")[0]) for line in checked(checker, MISTAKES, tmp_path)}
    lines = MISTAKES.splitlines()
    wrong = ("min_delay_s", "gate.turn", "with gate", "async for", "cookie_jar")
    assert found >= {number for number, line in enumerate(lines, 1) if any(text in line for text in wrong)}

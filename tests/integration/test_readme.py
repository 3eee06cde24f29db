"""README's code runs as written, but for the port of the site that it asks and the time of day."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from politesse import Gatekeeper, Reason, Verdict
from tests.integration.sites import EAGER, UA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import CodeType

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", README, re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python" and "sys.argv" not in code]
PROGRAMS = [code for code in PYTHON if "asyncio.run(" in code]
OUTPUT = next(text for language, text in BLOCKS if language == "text")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def robots(_: web.Request) -> web.Response:
        return web.Response(text="User-agent: *\nDisallow: /private\n")

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<ul></ul>")

    app = web.Application()
    app.router.add_get("/robots.txt", robots)
    app.router.add_get("/{path:.*}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def run(code: str, port: int, names: dict[str, object]) -> str:
    """Execute a block, with or without ``await`` at its top, and return what it printed."""
    compiled: CodeType = compile(
        code.replace(":8000", f":{port}"), "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(compiled, names)  # noqa: S307 - our own README
        if inspect.iscoroutine(result):
            await result
    return printed.getvalue().replace(f":{port}", ":8000")


@pytest.mark.realtime
@pytest.mark.parametrize("program", PROGRAMS, ids=["aiohttp", "httpx"])
async def test_program_prints_what_readme_shows(port: int, program: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", program.replace(":8000", f":{port}"), stdout=asyncio.subprocess.PIPE
    )
    printed = (await process.communicate())[0].decode().replace(f":{port}", ":8000")
    assert process.returncode == 0
    moment = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\d+ s old")
    assert moment.sub("T", printed) == moment.sub("T", OUTPUT)


@pytest.mark.realtime
async def test_every_other_block_runs_as_written(port: int) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        names: dict[str, object] = {"gate": gate}
        outputs = [await run(code, port, names) for code in PYTHON if code not in PROGRAMS]
    verdict = names["verdict"]
    assert isinstance(verdict, Verdict)
    [turns] = [output for output in outputs if "/private disallow-rule" in output]
    outputs.remove(turns)
    [aiohttp] = [output for output in outputs if "MiddlewareBypassed" in output]
    outputs.remove(aiohttp)
    bypassed = re.findall(r"`(MiddlewareBypassed\(.*\))`", README)
    assert aiohttp.splitlines() == ["200", "disallow-rule", "200", "200", *bypassed, "200"]
    assert sorted(turns.split("\n")) == ["", "/", "/a", "/private disallow-rule"]
    denied = "a Disallow rule is the most specific match: line 2, 'Disallow: /private'"
    assert [output for output in outputs if output] == [
        "front no-rule\nmail invalid-url\n",  # the site is known from the block before
        "b'<ul></ul>'\n",  # of any other client
        "http://localhost:8000/flaky 200 2\n",  # the second attempt
        "http://localhost:8000/page 200\n",
        "nothing is stated\n",
        "unknown ()\n",  # this server has a web page for every path
        re.findall(r"# (False .*)", README)[0] + "\n",
        f"disallowed: https://example.com/private ({denied})\n",
        f"disallowed: http://localhost:8000/private ({denied})\n",
    ]


async def test_values_in_comments_are_those_of_the_code(port: int) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        verdict = await gate.check(f"http://localhost:{port}/private/page")
        assert (verdict.allowed, bool(verdict), verdict.reason) == (False, False, Reason.DISALLOW_RULE)
        assert verdict.rule is not None
        assert (verdict.rule.line, str(verdict.rule), verdict.not_before) == (2, "Disallow: /private", None)
        names: dict[str, object] = {}
        code = next(code for code in PYTHON if "rules.crawl_delay" in code)
        await run(code, port, names)
        shown = dict(re.findall(r"^(rules\.\S.*?) +# (.*)$", code, re.MULTILINE))
        assert {expression: repr(eval(expression, names)) for expression in shown} == shown  # noqa: S307 - our own README
        assert len(shown) == 3
        code = next(code for code in PYTHON if "Dialect." in code)
        await run(code, port, names)
        answers = re.findall(r"^(RobotsTxt\.\S.*?) +# (True|False):", code, re.MULTILINE)
        assert [repr(eval(expression, names)) for expression, _ in answers] == [answer for _, answer in answers]  # noqa: S307 - our own README
        assert len(answers) == 2
        code = next(code for code in PYTHON if "RobotRules" in code)
        await run(code, port, names)
        answers = re.findall(r"^(rules\.allowed\S+) +# (<.*?>)", code, re.MULTILINE)
        assert [repr(eval(expression, names)) for expression, _ in answers] == [answer for _, answer in answers]  # noqa: S307 - our own README
        assert len(answers) == 2
        code = next(code for code in PYTHON if "PageDirectives" in code)
        await run(code, port, names)
        shown = dict(re.findall(r"^(\S.*?) +# (.*)$", code, re.MULTILINE))
        assert {expression: repr(eval(expression, names)) for expression in shown} == shown  # noqa: S307 - our own README
        assert len(shown) == 4
        for sign in ("verdict.usage", "listed ="):
            code = next(code for code in PYTHON if sign in code)
            names["gate"] = gate
            await run(code, port, names)
            for expression, shown_as in re.findall(r"^((?:verdict|listed)\.\S.*?) +# (.*)$", code, re.MULTILINE):
                assert repr(eval(expression, names)) == shown_as  # noqa: S307 - our own README


def test_first_screen_has_the_two_commands() -> None:
    first_screen = README.splitlines()[:25]
    assert any("politesse demo" in line for line in first_screen)
    assert any(line.endswith("pytest -n auto") for line in first_screen)

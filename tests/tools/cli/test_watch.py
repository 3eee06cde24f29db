"""``politesse watch``, and ``politesse crawl --watch``."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from politesse import Gatekeeper, HostPolicy, PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.watch import app, serve
from tests.support.scripted import UA
from tests.support.sites import Site, serving, until
from tests.tools.cli.command import COMMAND, politesse, read_terminal, start
from tests.wire.watch.watching import mounted

TOKEN: Final = "a token of the tests"
STEERING: Final = "\x1b]0;owned\x07[bold]:smile:<img>"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A watch of two hosts: one that is denied, and one that is closed."""
    site = ScriptedFetcher({"https://a.example": "User-agent: *\nDisallow: /private"})
    async with Gatekeeper(UA, fetcher=site, clock=ManualClock()) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await gate.check("https://a.example/private")
        gate.set_policy("a.example", HostPolicy(deny=True, reason="by request [bold]"))
        gate.clock.advance(60.0)  # type: ignore[attr-defined]
        turn = await gate.take_turn("https://b.example/", max_wait_s=0.0, exempt="a test")
        turn.observe(503, {"Retry-After": "1200"})
        turn.end()
        await queue.put("https://b.example/1")
        async with await serve(gate, queue, port=0, token=TOKEN) as server:
            yield server.url


async def test_the_present_table_is_printed_once(url: str) -> None:
    cases: list[tuple[list[str], dict[str, Any]]] = [
        ([f"{url}#token={TOKEN.replace(' ', '%20')}"], {}),
        ([url.rstrip("/"), "--token", TOKEN, "--once"], {}),
        ([url], {"POLITESSE_WATCH_TOKEN": TOKEN}),
    ]
    for arguments, settings in cases:
        done = await politesse("watch", *arguments, **settings)
        assert (done.code, done.err) == (0, "")
        lines = [" ".join(line.split()) for line in done.out.splitlines()]
        assert lines == [
            UA,
            "running, 1 queued, 0 under way",
            "1 allowed, 1 disallow-rule",
            "2 of 2 hosts shown; of all hosts: 1 closed, 1 idle",
            "host phase queued pace why",
            "b.example closed 1 1 s for 20 min: retry-after",
            "a.example idle 0 1 s denied (by request [bold])",
        ]


async def test_options_choose_the_hosts(url: str) -> None:
    done = await politesse("watch", f"{url}#token={TOKEN}", "--phase", "closed", "--sort", "host")
    assert ("b.example" in done.out, "a.example" in done.out) == (True, False)
    done = await politesse("watch", f"{url}#token={TOKEN}", "--search", "a.ex")
    assert ("b.example" in done.out, "a.example" in done.out) == (False, True)


async def test_a_refusal_is_an_error_with_the_reason_of_the_server(url: str) -> None:
    for arguments, problem in (
        ([f"{url}#token=wrong"], "401: the token is wrong or missing"),
        ([url], "401: the token is wrong or missing"),
        ([f"{url}#token={TOKEN}", "--sort", "size"], "400: sort='size': give one of host, queued"),
    ):
        done = await politesse("watch", *arguments)
        assert (done.code, done.out) == (2, "")
        assert problem in done.problem
        assert TOKEN not in done.err


async def test_a_server_that_is_not_there_or_is_no_watch_is_an_error(site: Site) -> None:
    for where in "http://127.0.0.1:1/", "nonsense", site.base:
        done = await politesse("watch", where)
        assert (done.code, done.out, done.err.strip() != "") == (2, "", True)


async def test_the_password_of_a_url_is_not_shown(site: Site) -> None:
    base = site.base.removeprefix("http://").rstrip("/")
    for where in f"http://me:secret@{base}/", "http://me:secret@[bad/", "me:secret@a.example", "http://me:secret@a b/":
        done = await politesse("watch", where)
        assert (done.code, done.out, done.err.strip() != "") == (2, "", True)
        assert "secret" not in done.err


async def test_an_answer_that_no_watch_gives_is_an_error() -> None:
    class Other(Site):
        body = b""

        async def respond(self, request: web.Request) -> web.StreamResponse:
            return web.Response(body=self.body, content_type="application/json")

    async for site in serving(other := Other()):
        for other.body in b"[" * 100_000, b"[]", b'{"denied": []}', b'{"allowed": 1, "denied": [], "crawl": null}':
            done = await politesse("watch", site.base)
            assert (done.code, done.out, done.err.strip() != "") == (2, "", True)


async def test_a_long_error_of_a_server_is_shortened() -> None:
    class Wordy(Site):
        status = 0

        async def respond(self, request: web.Request) -> web.StreamResponse:
            return web.json_response({"error": "word " * 100_000}, status=self.status)

    async for site in serving(wordy := Wordy()):
        for wordy.status, code in ((400, 2), (410, 0)):
            done = await politesse("watch", site.base)
            assert done.code == code
            assert "word word" in done.out + done.err
            assert len(done.out + done.err) < 3000


async def test_text_of_a_hostile_server_neither_steers_the_terminal_nor_is_markup() -> None:
    robots = {"fault": STEERING, "fetching": False}
    row = dict.fromkeys(("host", "phase", "closed_by", "held_by", "bound_by", "refusal", "policy"), STEERING)
    hosts = {
        "time": 0.0,
        "matching": 1,
        "phases": {STEERING: 1},
        "hosts": [
            {**row, "queued": 0, "interval_s": 0, "in_flight": 1, "held_s": 1, "closed_until": None, "robots": [robots]}
        ],
    }
    statistics = {"agent": STEERING, "allowed": 0, "denied": {STEERING: 1}, "crawl": None}

    class Hostile(Site):
        async def respond(self, request: web.Request) -> web.StreamResponse:
            return web.json_response(hosts if request.path == "/hosts" else statistics)

    async for site in serving(Hostile()):
        done = await politesse("watch", site.base)
        assert done.code == 0
        assert done.out.replace("\n", "").isprintable()
        assert done.out.count("\\x1b]0;owned\\x07[bold]:smile:<img>") >= 3


@asynccontextmanager
async def in_terminal(url: str) -> AsyncIterator[list[str]]:
    """Watch in a terminal; the body begins when a host is seen. The list then has the exit code and the last line."""
    ours, theirs = os.openpty()
    terminal = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(*COMMAND, "watch", url, stdout=theirs, stderr=theirs, env=terminal)
    os.close(theirs)
    shown, ended = bytearray(), list[str]()
    reading = asyncio.create_task(asyncio.to_thread(read_terminal, ours, shown))
    try:
        async with asyncio.timeout(30):
            await until(lambda: b"a.example" in shown)
            yield ended
            code, text = await process.wait(), (await reading).decode()
    finally:
        if process.returncode is None:
            process.kill()  # otherwise the thread that reads would wait for ever
    lines = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text).split("\r\n")
    ended += [str(code), [line for line in lines if line][-1]]


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
async def test_the_end_of_a_watch_is_said_as_it_is() -> None:
    broken = False

    @web.middleware
    async def proxy(request: web.Request, handler: Handler) -> web.StreamResponse:
        return web.Response(status=502, text="<html>Bad Gateway") if broken else await handler(request)

    site = ScriptedFetcher({"https://a.example": ""})
    async with Gatekeeper(UA, fetcher=site) as gate:
        await gate.check("https://a.example/")
        async with await serve(gate, port=0) as server, in_terminal(server.url) as server_ended:
            await server.aclose()
        outer = web.Application(middlewares=[proxy])
        outer.add_subapp("/watch/", app(gate))
        async with mounted(outer) as browser:
            async with in_terminal(f"{browser.url}watch/") as proxy_broke:
                broken = True
            broken = False
            async with in_terminal(f"{browser.url}watch/") as gate_closed:
                await gate.aclose()
            later = await politesse("watch", f"{browser.url}watch/")
    assert server_ended == ["0", "The watch has ended."]
    assert gate_closed == ["0", "The watch has ended: the gatekeeper was closed."]
    assert (later.code, later.out) == (0, "The watch has ended: the gatekeeper was closed.\n")
    assert proxy_broke[0] == "2"
    assert "does not answer as a watch does" in proxy_broke[1]


@pytest.mark.realtime
@pytest.mark.parametrize("port", [[], ["0"]])
async def test_a_crawl_prints_the_url_of_its_page_and_is_steered_there(
    port: list[str], tmp_path: Path, unused_tcp_port_is_default: None
) -> None:
    out = tmp_path / "out.jsonl"
    async for site in serving(Linked()):
        process = await start("crawl", "--watch", *port, f"{site.base}/0", "--min-delay", "0.01", "--out", str(out))
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        found = re.fullmatch(r"watch this crawl at (http://127\.0\.0\.1:(\d+)/)#token=(\S{20,})\n", line)
        assert found, line
        assert port or found[2] == "8900"
        headers = {"Authorization": f"Bearer {found[3]}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            while True:
                async with http.get(f"{found[1]}statistics") as response:
                    if (await response.json())["crawl"]["queued"]:
                        break
            order = {"action": "stop", "reason": "enough"}
            async with http.post(f"{found[1]}steer", json=order) as response:
                assert await response.json() == {"done": "The crawl is stopping"}
        said = (await process.communicate())[1].decode()
        outcomes = [json.loads(line)["outcome"] for line in out.read_text().splitlines()]
        assert outcomes.count("left") >= 1
        assert "left at 1 host; stopped" in said
        assert "The crawl is stopping, by a watcher at 127.0.0.1: enough" in said
        assert process.returncode == 1


class Linked(Site):
    """An endless site: each page leads to the next two."""

    async def page(self, request: web.Request) -> web.Response:
        number = int(request.path[1:])
        links = "".join(f"<a href=/{2 * number + more}>next</a>" for more in (1, 2))
        return web.Response(text=links, content_type="text/html")


@pytest.fixture
async def unused_tcp_port_is_default(port: list[str]) -> None:
    """Skip the test of the default port if another program has it."""
    if not port:
        try:
            server: Any = await asyncio.start_server(lambda *_: None, "127.0.0.1", 8900)
        except OSError:
            pytest.skip("port 8900 is in use")
        server.close()
        await server.wait_closed()


async def test_a_port_that_is_in_use_ends_the_crawl_before_it_begins(site: Site) -> None:
    port = site.base.rpartition(":")[2]
    done = await politesse("crawl", f"{site.base}/", "--watch", port)
    assert done.code == 2
    assert "address already in use" in done.problem
    assert site.pages == []


async def test_a_port_that_is_no_port_is_refused() -> None:
    done = await politesse("crawl", "--watch", "70000", "http://127.0.0.1:1/")
    assert done.code == 2
    assert "less than or equal to 65535" in done.problem

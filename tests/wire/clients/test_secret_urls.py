"""URLs with userinfo and a fragment: the server gets the userinfo, and no record, event, log or error has either."""

import asyncio
import json
import logging
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from politesse import Disallowed, Gatekeeper, PoliteQueue, PoliteSession, Verdict
from politesse.errors import ClosedError, InvalidURL, TooFar, TurnHeld
from politesse.events import Event, HostClosed, LongWait, TurnDropped
from politesse.integrations.warc import WarcFile
from politesse.queue import CrawlPage
from tests.support.events import events_of
from tests.support.sites import EAGER, UA, Site
from tests.tools.cli.command import politesse
from tests.wire.clients.clients import CRAWLING

pytestmark = pytest.mark.realtime

USERINFO, FRAGMENT = "crawler:pa55w0rd@", "#t0ken"
SECRETS = ("pa55w0rd", "t0ken")
AUTHORIZATION = "Basic Y3Jhd2xlcjpwYTU1dzByZA=="  # RFC 7617 2: crawler:pa55w0rd


def secret(site: Site, path: str) -> str:
    return f"http://{USERINFO}{site.base.removeprefix('http://')}{path}{FRAGMENT}"


def texts_of(found: object) -> list[str]:
    """Return all texts that a subscriber sees in an event, or a caller in an error, its verdict included."""
    if isinstance(found, Verdict):
        return [found.url, str(found), repr(found), found.explain()]
    parts = [getattr(found, one.name) for one in fields(found)] if is_dataclass(found) else []
    parts += [*getattr(found, "args", ()), *vars(found).values()] if isinstance(found, BaseException) else []
    return [repr(found), str(found), *(text for part in parts for text in texts_of(part))]


def leaks(*found: object) -> list[str]:
    return [text for one in found for text in texts_of(one) if any(secret in text for secret in SECRETS)]


def leaking(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if any(secret.encode() in file.read_bytes() for secret in SECRETS)]


@pytest.mark.parametrize(
    "client", [name for name in CRAWLING if name not in {"RobotsMiddleware", "httpx2.PoliteTransport"}]
)
async def test_crawl_hides_secrets(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, client: str) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    site.redirects = {"/moved": (302, "/elsewhere")}
    paths = ["/page", "/private", "/moved", "/raises", "/404"]
    shown: list[object] = []
    gate = Gatekeeper(UA, pacing=EAGER, ledger=tmp_path / "ledger.db")
    events = events_of(gate, Event)
    async with gate, WarcFile(tmp_path / "crawl.warc") as archive, CRAWLING[client](gate) as web:

        async def handle(page: CrawlPage[None], response: Any) -> None:
            if client != "httpx2.AsyncClient":
                await archive.add(response)
            if "/raises" in page.url:
                raise ValueError("a page that raises")
            response.raise_for_status()  # an error that names the URL

        async with PoliteQueue[None](gate, journal=tmp_path / "journal.db") as queue:
            for path in paths:
                await queue.put(secret(site, path))
            shown.append(await queue.crawl(web, handle, out=tmp_path / "out.jsonl", on_progress=shown.append))
        shown += [repr(queue), gate.hosts(), repr(gate)]
    requested = {seen.path: seen.headers.get("Authorization") for seen in site.seen}
    given = dict.fromkeys(("/page", "/raises", "/404", "/moved"), AUTHORIZATION)
    assert requested == given | {"/robots.txt": None, "/elsewhere": requested["/elsewhere"]}
    records = {(one := json.loads(line))["url"]: one for line in (tmp_path / "out.jsonl").read_text().splitlines()}
    assert records.keys() >= {f"{site.base}{path}" for path in paths}
    assert f"{site.base}/404" in records[f"{site.base}/404"]["error"]
    for kind, target in (("export", [str(tmp_path / "ledger.jsonl")]), ("show", [])):
        shown.append((await politesse("ledger", kind, str(tmp_path / "ledger.db"), *target)).out)
    assert f"denied {site.base}/private " in str(shown[-1])
    logged = [one.getMessage() for one in caplog.records if one.name.startswith("politesse")]
    assert leaks(*events, *shown, *logged) == []
    assert {name.partition("-")[0] for name in leaking(tmp_path)} <= {"journal.db"}  # a later run must request its URLs


async def test_no_error_or_warning_has_a_password(site: Site) -> None:
    errors: list[BaseException] = []
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        events = events_of(gate, Event)
        page, private = secret(site, "/page"), secret(site, "/private")
        with pytest.raises(Disallowed) as disallowed:
            await gate.take_turn(private)
        async with gate.turn(page) as turn:
            assert turn.url == page
            assert leaks(repr(turn)) == []
            for url in (page, secret(site, "/other")):
                with pytest.raises((TurnHeld, TooFar)) as held:
                    await gate.take_turn(url)
                errors.append(held.value)
        for text in (
            f"ftp://{USERINFO}example.com/",
            *(f"https://crawler:pa55w0rd{end}x@example.com/" for end in "/#?"),
            f"https://{USERINFO}exa mple.com/",
            f"{USERINFO}example.com/",
            "https://exa mple.com/#t0ken",
        ):
            with pytest.raises(InvalidURL) as invalid:
                await gate.check(text)
            errors.append(invalid.value)
            [verdict] = await gate.check_batch([text])
            assert leaks(verdict) == []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (await gate.take_turn(page)).__del__()
            await asyncio.sleep(0)
        assert len(caught) == 1
        session = PoliteSession(gate)
        await session.close()
        with pytest.raises(ClosedError) as closed:
            await session.get(page)
        async with gate.turn(page) as turn:
            turn.observe(503, {"Retry-After": "3600"})
        with pytest.raises(TooFar) as too_far:
            await gate.take_turn(page, max_wait_s=1.0)
        waiting = asyncio.ensure_future(gate.take_turn(page))
        await asyncio.sleep(0.01)
        waiting.cancel()
        assert {type(event) for event in events} >= {TurnDropped, HostClosed, LongWait}
    errors += [disallowed.value, closed.value, too_far.value]
    assert leaks(*errors, *events, *(str(one.message) for one in caught)) == []


async def test_a_page_that_is_checked_by_the_command_is_requested_with_its_password(site: Site) -> None:
    done = await politesse("check", "--page", "--json", secret(site, "/page"))
    assert leaks(done.out + done.err) == []
    assert json.loads(done.out)["url"] == f"{site.base}/page"
    assert {seen.path: seen.headers.get("Authorization") for seen in site.seen}["/page"] == AUTHORIZATION


@pytest.mark.parametrize("target", ["ftp://crawler:pa55w0rd@h.example/#t0ken", "//crawler:pa55w0rd@h:99999/#t0ken"])
async def test_redirects_hide_secrets(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    site.redirects = {"/moved": (302, target)}
    records: list[dict[str, Any]] = []

    async def handle(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
        raise AssertionError(page, response)

    async with Gatekeeper(UA, pacing=EAGER, ledger=tmp_path / "ledger.db") as gate, PoliteSession(gate) as web:
        events = events_of(gate, Event)
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put(f"{site.base}/moved")
        await queue.crawl(web, handle, out=records.append)
        site.redirects = {"/robots.txt": (302, target)}
        await gate.forget(site.base)
        verdict = await gate.check(f"{site.base}/page")
        shown = [verdict.explain(), gate.hosts(), records]
    assert "a redirect to" in verdict.explain()
    assert "redirects to" in records[0]["error"]
    assert leaks(*events, *shown, caplog.text) == []
    assert leaking(tmp_path) == []

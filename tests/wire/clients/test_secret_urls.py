"""URLs with userinfo and a fragment: the server gets the userinfo, and no record, event, log or error has either."""

import asyncio
import json
import logging
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from politesse import Disallowed, Gatekeeper, PoliteQueue, PoliteSession, Verdict
from politesse.errors import ClosedError, InvalidURL, TooFar, TurnHeld
from politesse.events import Event, HostClosed, LongWait, TurnDropped
from politesse.integrations.httpx import PoliteTransport
from politesse.integrations.warc import WarcFile
from politesse.origin import Origin
from politesse.queue import CrawlPage
from tests.support.sites import EAGER, UA, Site
from tests.tools.cli.command import politesse

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


def leaks(text: object) -> list[str]:
    return [secret for secret in SECRETS if secret in str(text)]


@pytest.mark.parametrize("library", ["PoliteSession", "aiohttp", "httpx", "httpx2", "httpx.PoliteTransport"])
async def test_a_crawl_with_passwords_writes_none(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, library: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    site.redirects = {"/moved": (302, "/elsewhere")}
    paths = ["/page", "/private", "/moved", "/raises"]
    events: list[Event] = []
    shown: list[object] = []
    gate = Gatekeeper(UA, pacing=EAGER, ledger=tmp_path / "ledger.db")
    gate.subscribe(events.append)
    clients: dict[str, Any] = {
        "PoliteSession": lambda: PoliteSession(gate),
        "aiohttp": aiohttp.ClientSession,
        "httpx": httpx.AsyncClient,
        "httpx2": httpx2.AsyncClient,
        "httpx.PoliteTransport": lambda: httpx.AsyncClient(transport=PoliteTransport(gate)),
    }
    async with gate, WarcFile(tmp_path / "crawl.warc") as archive, clients[library]() as web:
        queue: PoliteQueue[None] = PoliteQueue(gate, journal=tmp_path / "journal.db")

        async def handle(page: CrawlPage[None], response: Any) -> None:
            if library != "httpx2":
                await archive.add(response)
            if "/raises" in page.url:
                raise ValueError("a page that raises")

        async with queue:
            for path in paths:
                await queue.put(secret(site, path))
            options: dict[str, Any] = {"out": tmp_path / "out.jsonl", "on_progress": shown.append}
            shown.append(await queue.crawl(web, handle, **options))
        shown += [repr(queue), gate.hosts(), repr(gate)]
    requested = {seen.path: seen.headers.get("Authorization") for seen in site.seen}
    assert requested == {"/robots.txt": None, "/page": AUTHORIZATION, "/raises": AUTHORIZATION} | {
        "/moved": AUTHORIZATION,
        "/elsewhere": requested["/elsewhere"],
    }
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {record["url"] for record in records} >= {f"{site.base}{path}" for path in paths[:4]}
    for kind in ("export", "show"):
        target = (str(tmp_path / "ledger.jsonl"),) if kind == "export" else ()
        shown.append((await politesse("ledger", kind, str(tmp_path / "ledger.db"), *target)).out)
    assert f"denied {site.base}/private " in str(shown[-1])
    assert not [text for event in [*events, *shown] for text in texts_of(event) if leaks(text)]
    assert not leaks(caplog.text)
    for file in tmp_path.iterdir():  # noqa: ASYNC240 - small files
        if not file.name.startswith("journal.db"):  # what is left must be requested by a later run
            assert not [one for one in SECRETS if one.encode() in file.read_bytes()], file.name


async def test_no_error_or_warning_has_a_password(site: Site) -> None:
    errors: list[BaseException] = []
    events: list[Event] = []
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        gate.subscribe(events.append)
        page, private = secret(site, "/page"), secret(site, "/private")
        with pytest.raises(Disallowed) as disallowed:
            async with gate.turn(private):
                pass
        errors.append(disallowed.value)
        async with gate.turn(page) as turn:
            assert turn.url == page
            assert not leaks(repr(turn))
            for request in (gate.turn(page), gate.turn(secret(site, "/other"))):
                with pytest.raises((TurnHeld, TooFar)) as held:
                    async with request:
                        pass
                errors.append(held.value)
        for text in (
            f"ftp://{USERINFO}example.com/",
            "https://crawler:pa55w0rd/x@example.com/",
            "https://crawler:pa55w0rd#x@example.com/",
            "https://crawler:pa55w0rd?x@example.com/",
            f"https://{USERINFO}exa mple.com/",
            f"{USERINFO}example.com/",
            "https://exa mple.com/#t0ken",
        ):
            with pytest.raises(InvalidURL) as invalid:
                await gate.check(text)
            errors.append(invalid.value)
            [verdict] = await gate.check_batch([text])
            assert not [shown for shown in texts_of(verdict) if leaks(shown)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (await gate.take_turn(page)).__del__()
            await asyncio.sleep(0)
        assert len(caught) == 1
        session = PoliteSession(gate)
        await session.close()
        with pytest.raises(ClosedError) as closed:
            await session.get(page)
        errors.append(closed.value)
        async with gate.turn(page) as turn:
            turn.observe(503, {"Retry-After": "3600"})
        with pytest.raises(TooFar) as too_far:
            await gate.take_turn(page, max_wait_s=1.0)
        errors.append(too_far.value)
        waiting = asyncio.ensure_future(gate.take_turn(page))
        await asyncio.sleep(0.01)
        waiting.cancel()
        assert {type(event) for event in events} >= {TurnDropped, HostClosed, LongWait}
    found = [text for one in [*errors, *events] for text in texts_of(one)] + [str(one.message) for one in caught]
    assert not [text for text in found if leaks(text)]


async def test_a_page_that_is_checked_by_the_command_is_requested_with_its_password(site: Site) -> None:
    done = await politesse("check", "--page", "--json", secret(site, "/page"))
    assert not leaks(done.out + done.err)
    assert json.loads(done.out)["url"] == f"{site.base}/page"
    assert {seen.path: seen.headers.get("Authorization") for seen in site.seen}["/page"] == AUTHORIZATION


async def test_a_decision_with_an_at_sign_in_its_path_is_recorded_whole(site: Site) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        for path in ("/@user/a@b?to=http://x:y@z", "//x@y/"):
            assert (await gate.check(f"{site.base}{path}")).url == f"{site.base}{path}"
            assert Origin.of(f"{site.base}{path}") == Origin.of(site.base)


@pytest.mark.parametrize("target", ["ftp://crawler:pa55w0rd@h.example/#t0ken", "//crawler:pa55w0rd@h:99999/#t0ken"])
async def test_a_redirect_to_no_url_with_a_password_is_shown_without_it(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    site.redirects = {"/moved": (302, target)}
    events: list[Event] = []
    records: list[dict[str, Any]] = []

    async def handle(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
        raise AssertionError(page, response)

    async with Gatekeeper(UA, pacing=EAGER, ledger=tmp_path / "ledger.db") as gate, PoliteSession(gate) as web:
        gate.subscribe(events.append)
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put(f"{site.base}/moved")
        await queue.crawl(web, handle, out=records.append)
        site.redirects = {"/robots.txt": (302, target)}
        await gate.forget(site.base)
        verdict = await gate.check(f"{site.base}/page")
        shown = [verdict.explain(), gate.hosts(), records]
    assert "a redirect to" in verdict.explain()
    assert "redirects to" in records[0]["error"]
    assert not [text for one in [*events, *shown] for text in texts_of(one) if leaks(text)]
    assert not leaks(caplog.text)
    for file in tmp_path.iterdir():  # noqa: ASYNC240 - small files
        assert not [one for one in SECRETS if one.encode() in file.read_bytes()], file.name


@pytest.mark.parametrize("library", [aiohttp.ClientSession, httpx.AsyncClient, httpx2.AsyncClient])
async def test_an_error_of_the_client_that_names_the_url_is_logged_and_recorded_without_its_secrets(
    site: Site, caplog: pytest.LogCaptureFixture, library: Any
) -> None:
    records: list[dict[str, Any]] = []

    async def handle(page: CrawlPage[None], response: Any) -> None:
        response.raise_for_status()

    async with Gatekeeper(UA, pacing=EAGER) as gate, library() as web:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put(secret(site, "/404"))
        report = await queue.crawl(web, handle, out=records.append)
    assert f"{site.base}/404" in records[0]["error"]
    assert f"{site.base}/404" in report.first_error
    assert not leaks([records, report])
    assert not [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("politesse") and leaks(record.getMessage())
    ]

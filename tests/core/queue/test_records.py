"""``crawl(out=)``: one record of each URL, as soon as it is finished."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from politesse import ConfigurationError, Gatekeeper
from politesse.audit import Audit, AuditOptions
from politesse.queue import CrawlPage, PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, B, Queue
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb, moved


async def read(page: CrawlPage[object], reply: Reply) -> dict[str, object] | None:
    if page.url.endswith("/raises"):
        raise LookupError("no title")
    return {"title": "A", "status": "lost"} if page.url.endswith("/a") else None


def records(path: Path) -> dict[str, dict[str, Any]]:
    """The records by URL; fails for a URL with two."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {record["url"]: record for record in lines}
    assert len(found) == len(lines)
    return found


async def test_each_url_appends_one_record_with_its_outcome(clock: ManualClock, tmp_path: Path) -> None:
    out = tmp_path / "pages.jsonl"
    out.write_text('{"url": "of an earlier crawl"}\n')
    fetcher = ScriptedFetcher({A: "User-agent: *\nDisallow: /private\nSitemap: https://a.example/map.xml"})
    busy = Reply(503, {"Retry-After": "1"})
    body = f"<urlset><url><loc>{A}/a</loc></url></urlset>".encode()
    web = SimulatedWeb(
        {f"{A}/map.xml": Reply(body=body), f"{A}/moved": moved("/a"), f"{A}/busy": busy, f"{A}/gone": Reply(404)}
    )
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue: Queue = PoliteQueue(gate)
        for path in ("/moved", "/busy", "/gone", "/private", "/raises"):
            await queue.put(f"{A}{path}")
        await queue.put_sitemaps(A)
        report = await queue.crawl(web, read, out=out, workers=1)
    found = records(out)
    found.pop("of an earlier crawl")
    problem = "was answered with 503 to 5 attempts"
    request = {"hops": [], "attempt": 1, "depth": 0}
    without = {"url", "started", "request_s", "elapsed_s"}
    shown = {url: {name: record[name] for name in record if name not in without} for url, record in found.items()}
    assert {url.removeprefix(A): record for url, record in shown.items()} == {
        "/moved": {"outcome": "redirect", "status": 301, "location": "/a", **request},
        "/a": {"outcome": "page", "status": 200, **request, "hops": [f"{A}/moved"], "title": "A"},
        "/gone": {"outcome": "page", "status": 404, **request},
        "/busy": {"outcome": "failed", "status": 503, **request, "attempt": 5, "error": problem},
        "/raises": {"outcome": "failed", "status": 200, **request, "error": "LookupError: no title"},
        "/map.xml": {"outcome": "sitemap", "status": 200, **request},
        "/private": {
            "outcome": "disallowed",
            "reason": "disallow-rule",
            "rule": {"line": 2, "field": "Disallow", "value": "/private"},
            "robots_url": f"{A}/robots.txt",
            "note": "",
        },
    }
    requested = [record for record in found.values() if record["outcome"] != "disallowed"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["started"]) for record in requested)
    assert (report.pages, report.failed, report.redirects, report.sitemaps, report.disallowed) == (2, 2, 1, 1, 1)


async def test_a_function_gets_each_record_before_the_next_request(queue: Queue) -> None:
    seen: list[tuple[object, ...]] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        seen.append(("handled", page.url))

    for path in ("/1", "/2"):
        await queue.put(f"{A}{path}")
    await queue.crawl(SimulatedWeb(), handle, out=lambda record: seen.append((record["outcome"], record["url"])))
    assert seen == [("handled", f"{A}/1"), ("page", f"{A}/1"), ("handled", f"{A}/2"), ("page", f"{A}/2")]


async def test_a_site_that_refuses_is_recorded_as_refused(clock: ManualClock) -> None:
    found: list[dict[str, Any]] = []
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock) as gate:
        queue: Queue = PoliteQueue(gate, max_refusals=1)
        for path in ("/1", "/2"):
            await queue.put(f"{A}{path}")
        web = SimulatedWeb({f"{A}/1": Reply(403, {"cf-mitigated": "challenge"})})
        await queue.crawl(web, Pages(), out=found.append, workers=1)
    assert [(record["outcome"], record.get("reason")) for record in found] == [("page", None), ("refused", "refused")]
    assert "challenge" in found[1]["note"]


@pytest.mark.parametrize("failing", ["page", "redirect", "failed"])
async def test_a_record_that_cannot_be_written_ends_the_crawl_and_its_url_is_queued_again(
    queue: Queue, failing: str
) -> None:
    def full(record: dict[str, Any]) -> None:
        if record["outcome"] == failing:
            raise OSError("no space left")

    web = SimulatedWeb({f"{A}/redirect": moved("/target"), f"{A}/failed": Reply(301, {"Location": "mailto:x"})})
    await queue.put(f"{A}/{failing}")
    await queue.put(f"{B}/later", priority=1)
    with pytest.raises(OSError, match="no space left"):
        await queue.crawl(web, Pages(), out=full, workers=1)
    assert f"{A}/{failing}" in [url for url, _, _ in queue.left()]


async def test_a_refusal_that_cannot_be_written_ends_the_crawl(clock: ManualClock) -> None:
    def full(record: dict[str, Any]) -> None:
        raise OSError("no space left")

    async with Gatekeeper(UA, fetcher=ScriptedFetcher({A: "User-agent: *\nDisallow: /"}), clock=clock) as gate:
        queue: Queue = PoliteQueue(gate)
        await queue.put(f"{A}/1")
        with pytest.raises(OSError, match="no space left"):
            await queue.crawl(SimulatedWeb(), Pages(), out=full)


async def test_what_handle_returns_must_fit_into_json(queue: Queue, tmp_path: Path) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> dict[str, object]:
        return {"page": page}

    await queue.put(f"{A}/1")
    with pytest.raises(TypeError, match="CrawlPage is not JSON serializable"):
        await queue.crawl(SimulatedWeb(), handle, out=tmp_path / "pages.jsonl")
    assert queue.qsize() == 1


async def test_wrong_values_of_out_are_named(queue: Queue, tmp_path: Path) -> None:
    async def write(record: dict[str, Any]) -> None:
        pass

    with pytest.raises(ConfigurationError, match="out=5: give the path of a file, or a function"):
        await queue.crawl(SimulatedWeb(), Pages(), out=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"out=.*: give a function that is not asynchronous"):
        await queue.crawl(SimulatedWeb(), Pages(), out=write)
    with pytest.raises(IsADirectoryError):
        await queue.crawl(SimulatedWeb(), Pages(), out=tmp_path)
    assert (await queue.crawl(SimulatedWeb(), Pages())).pages == 0


async def test_polite_crawl_with_a_slow_handler_is_acquitted_by_its_own_records(
    clock: ManualClock, tmp_path: Path
) -> None:
    async def parse(page: CrawlPage[object], _: Reply) -> None:
        await clock.sleep(30.0)

    robots = "User-agent: *\nCrawl-delay: 5\n"
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({A: robots}), clock=clock) as gate:
        queue: Queue = PoliteQueue(gate)
        for path in ("/1", "/2", "/3"):
            await queue.put(f"{A}{path}")
        await queue.crawl(SimulatedWeb(clock=clock, took_s=2.0), parse, out=tmp_path / "pages.jsonl", workers=3)
    audit = Audit(AuditOptions(agents=("ExampleBot",), robots={A: robots}))
    assert list(audit.findings([tmp_path / "pages.jsonl"])) == []
    assert audit.counts()["requests"] == 3
    durations = [(record["request_s"], record["elapsed_s"]) for record in records(tmp_path / "pages.jsonl").values()]
    assert durations == [(2.0, 32.0)] * 3

"""What a crawl leaves out: by pattern, by the pages of a host, and by its time."""

import asyncio
from typing import Any

import pytest

from politesse import ConfigurationError, Gatekeeper, HostPolicy
from politesse.testing import ManualClock
from tests.core.queue.crawl import A, B, C, Queue
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb, crawled, moved


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (
            "example.com",
            "http://example.com/ https://EXAMPLE.com:8443/a",
            "http://www.example.com/ http://example.org/",
        ),
        (
            ".example.com",
            "http://example.com/ http://a.b.example.com/",
            "http://badexample.com/ http://example.com.org/",
        ),
        ("example.com:8443", "https://example.com:8443/", "https://example.com/ http://example.com/"),
        ("example.com:80", "http://example.com/", "https://example.com/"),
        ("[2001:db8::1]", "http://[2001:db8:0::1]:81/", "http://[2001:db8::2]/"),
        ("bücher.example", "http://xn--bcher-kva.example/", "http://bucher.example/"),
        ("/docs/", "http://a.example/docs/ https://b.example/docs/x", "http://a.example/docs http://a.example/a/docs/"),
        ("/*.pdf$", "http://a.example/a/b.pdf", "http://a.example/b.pdf?x http://a.example/pdf"),
        ("/caf\u00e9%7e", "http://a.example/caf%C3%A9~", "http://a.example/cafe~"),
        ("/caf%C3%A9", "http://a.example/café http://a.example/caf%c3%a9/", "http://a.example/cafe"),
        ("/*?page=", "http://a.example/x?page=2", "http://a.example/x?a=1&page=2 http://a.example/page=2"),
        (".example.com/docs", "http://a.example.com/docs/1", "http://a.example.com/ http://a.example/docs"),
        ("example.com/", "http://example.com http://example.com/x", "http://a.example.com/"),
    ],
)
async def test_pattern_matches_hosts_and_paths(queue: Queue, pattern: str, inside: str, outside: str) -> None:
    for url in (*inside.split(), *outside.split()):
        for name in ("allow", "deny"):
            web = SimulatedWeb({f"{A}/": Reply(links=[url])})
            report = await crawled(queue, web, Pages(), **{name: [pattern]})
            is_followed = (url in inside.split()) == (name == "allow")
            assert (url, len(web.requests), report.skipped) == (url, 1 + is_followed, not is_followed)


async def test_one_pattern_of_allow_suffices_and_deny_has_the_last_word(queue: Queue, pages: Pages) -> None:
    links = [f"{A}/x", f"{A}/public/old/1", f"{B}/public/", f"{C}/", f"{C}/public/"]
    web = SimulatedWeb({f"{A}/": Reply(links=links)})
    await crawled(queue, web, pages, allow=["a.example", "/public/"], deny=["/public/old/", "b.example"])
    assert sorted(pages.urls) == [f"{A}/", f"{A}/x", f"{C}/public/"]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("a.example", "give several patterns"),
        (7, "give several patterns"),
        ([b"a.example"], "give patterns of type str"),
        ([""], "give a host or a path"),
        (["."], "give a host or a path"),
        (["https://a.example/"], "give a host or a path"),
        (["*.a.example"], "its host "),
        (["a b/docs"], "its host "),
    ],
)
@pytest.mark.parametrize("name", ["allow", "deny"])
async def test_pattern_that_is_none_is_refused_before_anything_is_requested(
    queue: Queue, pages: Pages, name: str, patterns: Any, message: str
) -> None:
    web = SimulatedWeb()
    with pytest.raises(ConfigurationError, match=f"{name}=.*{message}"):
        await crawled(queue, web, pages, **{name: patterns})
    assert not web.requests


async def test_links_and_redirects_out_of_scope_are_skipped_and_counted(queue: Queue, pages: Pages) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1", "/2.pdf", f"{B}/", f"{C}/"]), f"{A}/1": moved(f"{C}/moved")})
    report = await crawled(queue, web, pages, allow=["a.example", "b.example"], deny=["/*.pdf$"])
    assert sorted(web.requests) == [f"{A}/", f"{A}/1", f"{B}/"]
    assert (report.pages, report.redirects, report.skipped, report.failed, report.left) == (2, 1, 3, 0, 0)
    assert ", 3 skipped, in" in str(report)


async def test_a_url_that_the_program_puts_is_requested_whatever_the_scope(queue: Queue, pages: Pages) -> None:
    await crawled(queue, SimulatedWeb({f"{A}/": Reply(links=["/1"])}), pages, allow=[])
    assert pages.urls == [f"{A}/"]


async def test_a_host_gives_no_more_pages_than_it_may(queue: Queue, pages: Pages) -> None:
    links = [f"{host}/{number}" for number in range(5) for host in (A, B)]
    web = SimulatedWeb({f"{A}/": Reply(links=links), f"{A}/1": moved("/moved"), f"{B}/0": [Reply(503), Reply()]})
    report = await crawled(queue, web, pages, max_pages_per_host=3)
    assert [sum(url.startswith(host) for url in pages.urls) for host in (A, B)] == [3, 3]
    assert (report.pages, report.failed, report.left) == (6, 0, 0)
    assert report.skipped == 11 - 6  # a redirect and a busy host are no pages
    assert len(web.requests) == 6 + 2


async def test_a_host_that_takes_several_requests_at_once_gives_no_more_pages_than_it_may(
    gate: Gatekeeper, queue: Queue, pages: Pages, clock: ManualClock
) -> None:
    gate.set_policy("a.example", HostPolicy(min_delay_s=0.1, max_concurrent=8))
    for number in range(20):
        await queue.put(f"{A}/{number}")
    # The first two requests are no pages, so two more URLs may take their places.
    web = SimulatedWeb({f"{A}/0": moved("/moved"), f"{A}/1": ConnectionResetError()}, clock=clock, took_s=2.0)
    report = await queue.crawl(web, pages, max_pages_per_host=5)
    assert (report.pages, report.redirects, report.failed, report.left) == (5, 1, 1, 0)
    assert report.skipped == 21 - 5 - 2
    assert len(web.requests) == 5 + 2


async def test_skipped_urls_cost_their_host_no_interval(queue: Queue, pages: Pages, clock: ManualClock) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=[f"/{number}" for number in range(100)])})
    started = clock.monotonic()
    await crawled(queue, web, pages, max_pages_per_host=2)
    assert clock.monotonic() - started < 5


async def test_after_its_time_a_crawl_finishes_the_pages_under_way_and_leaves_the_rest(
    queue: Queue, pages: Pages, clock: ManualClock
) -> None:
    for number in range(10):
        await queue.put(f"{A}/{number}")
    await queue.put(f"{B}/slow")
    report = await queue.crawl(SimulatedWeb(clock=clock, took_s=4.0), pages, max_time_s=1.5)
    assert sorted(pages.urls) == [f"{A}/0", f"{B}/slow"]
    assert (report.pages, report.left, report.failed) == (2, 9, 0)
    assert report.elapsed_s == pytest.approx(1.0 + 4.0)  # the first pages begin a second after their robots.txt
    later = await queue.crawl(SimulatedWeb(), pages)
    assert (later.pages, later.left) == (9, 0)


async def test_a_crawl_that_ends_before_its_time_does_not_wait_for_it(queue: Queue, pages: Pages) -> None:
    async with asyncio.timeout(5):
        report = await crawled(queue, SimulatedWeb(), pages, max_time_s=3600.0)
    assert report.pages == 1
    assert report.elapsed_s < 100


@pytest.mark.parametrize("options", [{"max_pages_per_host": 0}, {"max_time_s": 0}, {"max_time_s": float("nan")}])
async def test_limits_that_are_no_counts_or_times_are_refused(queue: Queue, options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(ConfigurationError, match=f"{name}={value!r}"):
        await queue.crawl(SimulatedWeb(), Pages(), **options)

"""Gates that cheat, each by one option or by a fetcher that tampers with robots.txt, for the demo to catch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from politesse import Gatekeeper
from politesse.cli.demo import CACHE, PACING
from politesse.fetch import AiohttpFetcher
from politesse.options import SharedPacer
from politesse.ports import FetchFault, FetchRequest, FetchResponse, FetchResult
from tests.support.violations import FORBIDDEN, GAP, OVERLAP, REFETCHED, RETRIED_EARLY, RETRY_AFTER, STALE, WHILE_CLOSED


def _with(**changes: object) -> type[Gatekeeper]:
    """Other options than those of the demo."""

    class Gate(Gatekeeper):
        """Has other options."""

        __slots__ = ()

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **_apart(options | changes))

    return Gate


def _apart(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with a pace that no other run of the demo in this process shares."""
    return options | {"pacer": SharedPacer(options["pacing"])}


def _reading(tamper: Callable[[FetchResult], FetchResult], **changes: object) -> type[Gatekeeper]:
    """A gate that reads each answer for robots.txt as another one."""

    class Fetcher(AiohttpFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            return tamper(await super().fetch(request))

    class Gate(Gatekeeper):
        """Has another fetcher."""

        __slots__ = ()

        def __init__(self, user_agent: str, *, fetch: Any, **options: Any) -> None:
            super().__init__(user_agent, fetcher=Fetcher(user_agent, fetch), **_apart(options | changes))

    return Gate


def _absent(*statuses: int) -> Callable[[FetchResult], FetchResult]:
    return lambda result: FetchResponse(404, result.final_url) if result.status in statuses else result


def _redirect_is_absent(result: FetchResult) -> FetchResult:
    return FetchResponse(404, result.final_url) if isinstance(result, FetchFault) and result.location else result


def _without_header(name: str) -> Callable[[FetchResult], FetchResult]:
    def tamper(result: FetchResult) -> FetchResult:
        if not isinstance(result, FetchResponse):
            return result
        return replace(result, headers={field: value for field, value in result.headers.items() if field != name})

    return tamper


def _with_max_age_0(result: FetchResult) -> FetchResult:
    if not isinstance(result, FetchResponse):
        return result
    return replace(result, headers={**result.headers, "cache-control": "max-age=0"})


def _body(change: Callable[[bytes], bytes]) -> Callable[[FetchResult], FetchResult]:
    return lambda result: replace(result, body=change(result.body)) if isinstance(result, FetchResponse) else result


def _without_lines(start: bytes) -> Callable[[FetchResult], FetchResult]:
    return _body(lambda body: b"\n".join(line for line in body.split(b"\n") if not line.startswith(start)))


UNFETCHED = "allowed pages not fetched"
"""Beside the kinds of violations: a gate that denies what is allowed is no success."""

CLOSED = {FORBIDDEN, WHILE_CLOSED}
SABOTAGES: dict[str, tuple[type[Gatekeeper], set[str]]] = {
    # permission
    "open": (_reading(_absent(200)), {FORBIDDEN}),
    "closed": (_reading(_body(lambda _: b"User-agent: *\nDisallow: /")), {UNFETCHED}),
    "opens on 5xx": (_reading(_absent(503)), {*CLOSED}),
    "another agent's group": (_with(token="OtherBot"), {FORBIDDEN, UNFETCHED}),
    "no wildcards": (_reading(_without_lines(b"Disallow: /*")), {FORBIDDEN}),
    "decodes %2F": (_reading(_body(lambda body: body.replace(b"%2F", b"/"))), {FORBIDDEN, UNFETCHED}),
    "no redirect of robots.txt": (_reading(_redirect_is_absent), {FORBIDDEN}),
    "expired copy": (_reading(_without_header("cache-control")), {STALE}),
    "fetches robots.txt each time": (
        _reading(_with_max_age_0, cache=replace(CACHE, min_lifetime_s=0.0)),
        {REFETCHED},
    ),
    "no Retry-After of robots.txt": (_reading(_without_header("retry-after")), {RETRIED_EARLY}),
    # pace
    "no pause": (_with(pacing=replace(PACING, min_delay_s=0.0)), {GAP}),
    "eight at once": (_with(pacing=replace(PACING, max_concurrent=8, min_delay_s=0.0)), {OVERLAP}),
    "no Crawl-delay": (_with(pacing=replace(PACING, on_long_crawl_delay="cap", max_crawl_delay_s=0.001)), {GAP}),
    "waits half of Retry-After": (_with(pacing=replace(PACING, backoff_max_s=1.0)), {RETRY_AFTER}),
}

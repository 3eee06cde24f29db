"""One fetch of the cache: each redirect a request of its own, repeated if a 304 is about another file, guarded.

So each hop can be permitted, paced and limited by itself (``follow``). An exception of the fetcher becomes a fault
(``fetch_guarded``).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from politesse._cache.outcome import names_another
from politesse._http.redirects import Hops
from politesse._tasks import is_ended_from_outside
from politesse._text import described
from politesse.events import ComponentFailed, Publisher
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.origin import Origin


async def revalidate(fetch: Callable[[FetchRequest], Awaitable[FetchResult]], request: FetchRequest) -> FetchResult:
    """Make a request by ``fetch``; once more, without conditions, where a 304 is about another file than the copy."""
    result = await fetch(request)
    if request.validators is None or not names_another(result, request.validators):
        return result
    result = await fetch(replace(request, validators=None))
    # A 304 to a request without conditions confirms nothing, whatever its fetcher reports.
    return replace(result, conditional=False) if isinstance(result, FetchResponse) else result


async def fetch_guarded(fetcher: Fetcher, request: FetchRequest, publisher: Publisher) -> FetchResult:
    """Fetch once; an exception of the fetcher is published as ComponentFailed and returned as a fault.

    KeyboardInterrupt, SystemExit and the cancellation of the current task pass.
    """
    try:
        return await fetcher.fetch(request)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if is_ended_from_outside(error, asyncio.current_task()):
            raise
        # A user's fetcher may raise anything, a CancelledError of its own too, and all of it closes the gate.
        publisher.publish(ComponentFailed(request.origin, "fetcher", error))
        return internal_fault("the fetcher", error, request.url)


def internal_fault(component: str, error: BaseException, url: str) -> FetchFault:
    """Return the fault that stands for an unexpected exception. It never raises, even if ``str(error)`` does."""
    return FetchFault(FaultKind.INTERNAL, f"{component} failed with {described(error)}", url)


async def follow(request: FetchRequest, ask: Callable[[FetchRequest], Awaitable[FetchResult]]) -> FetchResult | None:
    """Return the result of ``request`` after its redirects; None if the fetcher does not report where one leads.

    Args:
        request: the first request, with the largest number of redirects.
        ask: makes one request, and follows no redirect.
    """
    hops = None
    hop = FetchRequest(  # not ``replace``, which takes 3 us more
        request.origin,
        max_redirects=0,
        validators=request.validators,
        path=request.path,
        redirected=request.redirected,
        first_url=request.first_url,
        last=request.max_redirects < 1,
    )
    while True:
        result = await ask(hop)
        if not isinstance(result, FetchFault) or result.kind is not FaultKind.REDIRECT_LIMIT or result.final:
            return result
        if not result.location:
            return None
        hops = hops or Hops(request)
        target = hops.redirect(result.status or 0, result.location)
        if isinstance(target, FetchFault):
            return target
        origin, url = target
        hops.seen.append(url)
        hop = FetchRequest(
            origin,
            max_redirects=0,
            validators=request.validators,
            path=url.removeprefix(str(origin)),
            redirected=hop.redirected or _is_redirected(hop, result, origin),
            first_url=request.first_url or request.url,
            last=len(hops.seen) > request.max_redirects,
        )


def _is_redirected(hop: FetchRequest, result: FetchFault, target: Origin) -> bool:
    """Return whether the next hop must not reach a private address: the last one was public, or may have been."""
    if result.private is None:  # then the host may redirect to itself, but not to a private address of another host
        return target.host != hop.origin.host
    return not result.private

"""Following redirects one request at a time, so that each can be permitted, paced and limited on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from politesse._http.redirects import Hops
from politesse.ports import FaultKind, FetchFault, FetchRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.origin import Origin
    from politesse.ports import FetchResult


async def follow(request: FetchRequest, ask: Callable[[FetchRequest], Awaitable[FetchResult]]) -> FetchResult | None:
    """Return what ``request`` comes to after its redirects; None if the fetcher does not report where one leads.

    Args:
        request: of how many redirects at most.
        ask: makes one request, which follows none.
    """
    hops = Hops(request)
    hop = replace(request, max_redirects=0, last=request.max_redirects < 1)
    while True:
        result = await ask(hop)
        if not isinstance(result, FetchFault) or result.kind is not FaultKind.REDIRECT_LIMIT or result.final:
            return result
        if not result.location:
            return None
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
    if result.private is None:  # then only another host is refused what this one could reach by itself
        return target.host != hop.origin.host
    return not result.private

"""Asking whether the copy at hand is still what the server has, and for the whole file where that came to nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from politesse._cache.outcome import names_another
from politesse.ports import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.ports import FetchRequest, FetchResult


async def revalidate(fetch: Callable[[FetchRequest], Awaitable[FetchResult]], request: FetchRequest) -> FetchResult:
    """Make a request by ``fetch``; once more, without conditions, where a 304 is about another file than the copy."""
    result = await fetch(request)
    if request.validators is None or not names_another(result, request.validators):
        return result
    result = await fetch(replace(request, validators=None))
    # A 304 confirms nothing now, whatever its fetcher says: it was not asked whether something had changed.
    return replace(result, conditional=False) if isinstance(result, FetchResponse) else result

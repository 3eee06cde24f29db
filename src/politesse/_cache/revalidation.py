"""One request of the cache: guarded against what a fetcher raises, and repeated where a 304 is about another file."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from traceback import format_exception_only
from typing import TYPE_CHECKING, Final

from politesse._cache.outcome import names_another
from politesse._tasks import is_ended_from_outside
from politesse._text import printable
from politesse.events import ComponentFailed
from politesse.ports import FaultKind, FetchFault, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.events import Publisher
    from politesse.ports import Fetcher, FetchRequest, FetchResult

_MAX_SHOWN: Final = 200  # characters of an error


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
    described = printable(format_exception_only(error)[0].strip()[:_MAX_SHOWN])
    return FetchFault(FaultKind.INTERNAL, f"{component} failed with {described}", url)

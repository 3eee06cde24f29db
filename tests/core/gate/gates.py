"""A gatekeeper over scripted answers, in virtual time."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from politesse import Gatekeeper, NotYet, Verdict
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.stores import MemoryStore
from politesse.testing import Answer, Exchange, ManualClock, ScriptedFetcher
from tests.support.scripted import UA

SITE: Final = "https://example.com"
PAGE: Final = f"{SITE}/page"
ROBOTS_TXT: Final = f"{SITE}/robots.txt"
PRIVATE: Final = "User-agent: *\nDisallow: /private\n"
OPEN: Final = "User-agent: *\nDisallow:\n"
CLOSED: Final = "User-agent: *\nDisallow: /\n"
HOUR: Final = 3_600.0
DAY: Final = 86_400.0

Answers = Mapping[str, Answer | Sequence[Answer]]


class TimedFetcher(ScriptedFetcher):
    """A ScriptedFetcher that takes its time by a clock, and notes the times of its requests."""

    def __init__(self, clock: ManualClock, answers: Answers | None = None, takes_s: float = 0.0) -> None:
        super().__init__(answers)
        self.clock = clock
        self.takes_s = takes_s
        self.log: list[Exchange] = []

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        started_wall = self.clock.wall()
        if self.takes_s:
            await self.clock.sleep(self.takes_s)
        result = await super().fetch(request)
        self.log.append(Exchange(request.url, started_wall, self.clock.wall(), result.status or 0))
        return result

    def starts(self, url: str = ROBOTS_TXT) -> list[float]:
        """Return the Unix times of the requests for a URL."""
        return [one.started for one in self.log if one.url == url]


class ScriptedGate(Gatekeeper):
    """A Gatekeeper whose answers and time a test controls.

    Args:
        answers: those of its fetcher.
        jumps: whether its clock jumps to the next timer when all tasks wait.
        clock: instead of a new one.
        fetcher: instead of a new one over the answers.
    """

    clock: ManualClock

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        jumps: bool = False,
        clock: ManualClock | None = None,
        fetcher: ScriptedFetcher | None = None,
        **options: Any,
    ) -> None:
        clock = clock or ManualClock(autojump=jumps)
        self.fetcher = fetcher or TimedFetcher(clock, answers)
        super().__init__(UA, fetcher=self.fetcher, clock=clock, **options)

    @property
    def asked(self) -> list[str]:
        """The URLs that were fetched."""
        return [request.url for request in self.fetcher.requests]

    def known(self, url: str) -> Verdict:
        """Return the verdict of ``peek``, which must be known."""
        verdict = self.peek(url)
        assert verdict is not None
        return verdict

    def refused(self, url: str = PAGE) -> NotYet:
        """Return the answer of ``try_turn``, which must be none."""
        answer = self.try_turn(url)
        assert isinstance(answer, NotYet)
        return answer


class Forgetful(MemoryStore):
    """A store that keeps nothing."""

    async def get(self, key: str, /) -> bytes | None:
        return None


def found(body: str, url: str = ROBOTS_TXT, **headers: str) -> FetchResponse:
    """Return an answer with status 200; an underscore in the name of a header field is a hyphen."""
    return FetchResponse(200, url, {name.replace("_", "-"): value for name, value in headers.items()}, body.encode())


def lasting(seconds: int, body: str = OPEN) -> FetchResponse:
    """Return a robots.txt that is fresh for so long."""
    return found(body, cache_control=f"max-age={seconds}")


def refusal(status: int, retry_after: str = "", url: str = ROBOTS_TXT) -> FetchResponse:
    return FetchResponse(status, url, {"retry-after": retry_after} if retry_after else {})


def moved(url: str, location: str) -> FetchFault:
    return FetchFault(FaultKind.REDIRECT_LIMIT, "more than 0 redirects", url, 301, location=location)

"""Answers to robots.txt requests, and addresses of host names, without a network."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from politesse._constants import ROBOTS_TXT
from politesse.errors import ConfigurationError
from politesse.ports import FetchFault, FetchRequest, FetchResponse, FetchResult


class ScriptedFetcher:
    r"""A Fetcher whose answers the test writes, and that records the requests.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> async def main() -> None:
        ...     fetcher = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private"})
        ...     async with Gatekeeper("ExampleBot/1.0", fetcher=fetcher) as gate:
        ...         verdict = await gate.check("https://example.com/private")
        ...     print(verdict.allowed, fetcher.count("https://example.com"))
        >>> asyncio.run(main())
        False 1

    Args:
        answers: by origin, as in ``"https://example.com"``, for its robots.txt, and by URL for any other file: text or
            octets, a status, a FetchResponse or FetchFault, an exception to raise, or a sequence of these for one
            fetch after the other, the last of which is repeated. Anything else answers 404.

    Attributes:
        requests: every request so far, in order.
        gate: all answers wait while it is cleared; it is set at first.
        closed: whether aclose() was called.
    """

    def __init__(self, answers: Mapping[str, Answer | Sequence[Answer]] | None = None) -> None:
        self.answers: dict[str, Answer | Sequence[Answer]] = dict(answers or {})
        self._given: Counter[str] = Counter()
        self.requests: list[FetchRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False

    def count(self, asked: str) -> int:
        """Return how often the robots.txt of an origin, or the file at a URL, was requested."""
        return sum(_key(request) == asked for request in self.requests)

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Answer as scripted.

        Raises:
            Exception: the scripted answer is one.
        """
        self.requests.append(request)
        await self.gate.wait()
        key = _key(request)
        answer = self.answers.get(key, 404)
        if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
            answer = answer[min(self._given[key], len(answer) - 1)]
            self._given[key] += 1
        return _result(answer, request)

    async def aclose(self) -> None:
        """Record that it was closed."""
        self.closed = True


Answer = str | bytes | int | FetchResponse | FetchFault | Exception


def _key(request: FetchRequest) -> str:
    return str(request.origin) if request.path == ROBOTS_TXT else request.url


def _result(answer: Answer, request: FetchRequest) -> FetchResult:
    url = request.url
    if isinstance(answer, str | bytes):
        return FetchResponse(200, url, body=answer.encode() if isinstance(answer, str) else answer)
    if isinstance(answer, int):
        return FetchResponse(answer, url, conditional=request.validators is not None)
    if isinstance(answer, Exception):
        raise answer
    return answer


class ScriptedResolver:
    """A Resolver whose addresses the test writes, and that records the lookups.

    Example:
        >>> import asyncio
        >>> resolver = ScriptedResolver({"example.com": ["192.0.2.1"]})
        >>> asyncio.run(resolver.resolve("example.com", 443))
        ['192.0.2.1']
        >>> resolver.asked
        ['example.com']

    Args:
        addresses: by host name; any other name does not exist.

    Raises:
        ConfigurationError: an address is given where a list of addresses is needed.

    Attributes:
        asked: every name that was looked up, in order.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]]) -> None:
        for host, given in addresses.items():
            if isinstance(given, str):
                raise ConfigurationError(f"addresses of {host!r}: give a list, as in [{given!r}]")
        self.addresses = dict(addresses)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises:
            OSError: the name does not exist.
        """
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(f"{host}:{port} does not exist")
        return self.addresses[host]

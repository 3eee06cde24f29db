"""A server with a robots.txt for each of many hosts, which stamps each request."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from aiohttp import web

from tests.rules.properties.reference import decide, records_for

_VALUES: Final = ("/", "/a", "/a/", "/a/*.html$", "/b", "/*?q=", "/private", "/private/open", "/*.pdf$", "/%C3%A4", "")
_NAMES: Final = ("*", "examplebot", "otherbot")


@dataclass(frozen=True, slots=True)
class Robots:
    """What one host answers.

    Attributes:
        status: of the answer.
        text: of the file.
        delay_s: how long it takes.
    """

    status: int
    text: str
    delay_s: float

    @classmethod
    def of_host(cls, number: int) -> Self:
        """Return what a host answers: most have a file, each with other rules."""
        random = Random(f"host {number}")
        status = random.choices([200, 404, 503, 429], [16, 2, 1, 1])[0]
        groups = []
        for name in random.sample(_NAMES, 2):
            rules = [f"{random.choice(['Allow', 'Disallow'])}: {random.choice(_VALUES)}" for _ in range(5)]
            groups.append("\n".join([f"User-agent: {name}", *rules]))
        return cls(status, f"# host {number}\n" + "\n\n".join(groups), random.random() * 0.05)

    def allows(self, path: str) -> bool:
        """Return the answer to a question, by a literal reading of the text; RFC 9309 2.3.1.3 and 2.3.1.4."""
        if self.status != 200:
            return self.status == 404
        return decide(records_for(self.text.encode(), b"examplebot"), path.encode()).allowed


class RobotsSite:
    """Serves what hosts answer, by the number in their name.

    Attributes:
        robots: by number.
        starts: when each request came, by the monotonic clock, by number.
        hang: the numbers of the hosts that answer nothing now.
    """

    def __init__(self, robots: Sequence[Robots]) -> None:
        self.robots = robots
        self.starts: dict[int, list[float]] = {number: [] for number in range(len(robots))}
        self.hang: set[int] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/robots.txt", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def requests(self) -> int:
        return sum(map(len, self.starts.values()))

    async def _answer(self, request: web.Request) -> web.Response:
        number = int(request.host.partition(".")[0].removeprefix("host"))
        self.starts[number].append(time.monotonic())
        robots = self.robots[number]
        if number in self.hang:
            await asyncio.sleep(3_600)
        await asyncio.sleep(robots.delay_s)
        headers = {"Retry-After": "600"} if robots.status == 429 else {}
        return web.Response(status=robots.status, text=robots.text, headers=headers)

"""A process that asks about many origins at once: ``python -m tests.wire.fleet.asker JOB NUMBER``.

It asks once its input says so, and prints its answers in the order of the questions: 1 for allowed, 0 for not.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from politesse import Gatekeeper, PacingOptions
from politesse.events import ComponentFailed
from politesse.options import FleetOptions
from politesse.stores.redis import RedisStore
from tests.support.sites import UA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.events import Event

_TASKS: Final = 200
PATHS: Final = 3


@dataclass(frozen=True, slots=True)
class Job:
    """What each asker does.

    Attributes:
        redis_url: where the fleet meets.
        prefix: of its keys.
        port: of the site.
        origins: how many there are.
        questions: how many each asker has.
        is_fleet: whether the gates are told their fleet, and not just a store.
    """

    redis_url: str
    prefix: str
    port: int
    origins: int
    questions: int
    is_fleet: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def asked_by(self, asker: int) -> list[tuple[int, int]]:
        """Return the questions of an asker, each an origin and a path. All ask about every origin."""
        random = Random(f"asker {asker}")
        origins = [place % self.origins for place in range(self.questions)]
        random.shuffle(origins)
        return [(origin, random.randrange(PATHS)) for origin in origins]


class Loopback:
    """Finds every host on this machine."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        return ["127.0.0.1"]


def show(event: Event) -> None:
    if isinstance(event, ComponentFailed):
        print(event, file=sys.stderr)  # noqa: T201 - reported to the test


def gate_of(job: Job) -> Gatekeeper:
    if job.is_fleet:
        return Gatekeeper(UA, fleet=FleetOptions(job.redis_url, prefix=job.prefix), resolver=Loopback())
    store = RedisStore(job.redis_url, prefix=job.prefix)
    return Gatekeeper(UA, store=store, pacing=PacingOptions(scope="process"), resolver=Loopback())


async def main(job: Job, asker: int) -> None:
    questions = job.asked_by(asker)
    answers = ["?"] * len(questions)
    places = iter(range(len(questions)))
    async with gate_of(job) as gate:
        gate.subscribe(show)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

        async def ask() -> None:
            for place in places:
                origin, path = questions[place]
                verdict = await gate.check(f"http://host{origin}.example:{job.port}/{path}/page")
                answers[place] = "1" if verdict.allowed else "0"

        await asyncio.gather(*(ask() for _ in range(_TASKS)))
    print("".join(answers))  # noqa: T201 - for the test


if __name__ == "__main__":
    asyncio.run(main(Job(**json.loads(sys.argv[1])), int(sys.argv[2])))

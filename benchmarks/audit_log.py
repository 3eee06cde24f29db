"""An access log of a crawler with planted violations, each of which breaks one rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from politesse._judge import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

AGENT: Final = "ExampleBot"
FORMAT: Final = '$msec $scheme://$http_host "$request" $status $request_time "$http_user_agent" $sent_http_retry_after'
ROBOTS: Final = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"
BY_DAY: Final = f"{ROBOTS}Visit-time: 0600-2000\n"
FLOOR_S: Final = 1.0
_SENT: Final = f"{AGENT}/1.0 (+https://bot.example/)"
_OTHERS: Final = ("Mozilla/5.0 (X11; Linux x86_64)", "OtherBot/2.0", "NotExampleBot/1.0")
_PACE_S: Final = 2.0
_DAY_S: Final = 86_400.0
_FRESH_S: Final = 20 * 3_600.0
_BASE: Final = 1_800_000_000.0 - 1_800_000_000.0 % _DAY_S + 7 * 3_600
_GARBAGE: Final = ("\x16\x03\x01", "not a line of a log", '{"time": 1}')


@dataclass
class _Host:
    """A host whose requests are polite, but for the planted ones."""

    name: str
    random: Random
    now: float
    rows: list[tuple[float, str]] = field(default_factory=list)
    planted: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0
    robots_at: float = 0.0

    def send(
        self, target: str, status: int = 200, *, wait_s: int | None = None, lasts_s: float = 0.1, port: str = ""
    ) -> str:
        """Send a request now, and set the time to its end."""
        ended = self.now + lasts_s
        host = f"{self.name}{port}"
        line = f'{ended:.3f} https://{host} "GET {target} HTTP/1.1" {status} {lasts_s:.3f} "{_SENT}" {wait_s or "-"}'
        self.rows.append((ended, line))
        self.now = ended
        return f"https://{host}{target}"

    def robots(self, status: int = 200, *, port: str = "") -> str:
        self.robots_at = self.robots_at if port else self.now
        return self.send("/robots.txt", status, port=port)

    def page(self, folder: str = "a", status: int = 200, *, wait_s: int | None = None, lasts_s: float = 0.1) -> str:
        self.count += 1
        return self.send(f"/{folder}/{self.count}", status, wait_s=wait_s, lasts_s=lasts_s)

    def pause(self, seconds: float = 0.0) -> None:
        self.now += seconds or self.random.uniform(_PACE_S + 0.1, _PACE_S + 1)

    def plant(self, kind: Kind, url: str) -> None:
        self.planted.append((kind, url))
        self.pause()

    def reopen(self) -> None:
        """Fetch robots.txt if it may be fetched again, or is old."""
        self.pause(61.0)
        self.robots()
        self.pause()


def _forbidden(host: _Host) -> None:
    host.plant(Kind.FORBIDDEN, host.page("private"))


def _gap(host: _Host) -> None:
    host.page()
    host.pause(host.random.uniform(0.1, 1.9))
    host.plant(Kind.GAP, host.page())


def _overlap(host: _Host) -> None:
    host.page(lasts_s=2.0)
    host.pause(-1.5)
    host.plant(Kind.OVERLAP, host.page(lasts_s=3.0))


def _retry_after(host: _Host) -> None:
    host.page(status=503, wait_s=30)
    host.pause(10.0)
    host.plant(Kind.RETRY_AFTER, host.page())
    host.pause(30.0)


def _retried_early(host: _Host) -> None:
    host.pause(61.0)
    host.page(status=429, wait_s=30)
    host.pause(10.0)
    host.plant(Kind.RETRIED_EARLY, host.robots())
    host.pause(30.0)


def _refetched(host: _Host) -> None:
    host.reopen()
    host.pause(20.0)
    host.plant(Kind.REFETCHED, host.robots())


def _robots_overlap(host: _Host) -> None:
    host.pause(61.0)
    host.robots(port=":8001")
    host.pause(-0.08)
    host.plant(Kind.ROBOTS_OVERLAP, host.robots(port=":8002"))


def _robots_gap(host: _Host) -> None:
    host.pause(61.0)
    for port in (":8003", ":8004"):
        host.robots(port=port)
        host.pause(0.2)
    host.plant(Kind.ROBOTS_GAP, host.robots(port=":8005"))


def _stale(host: _Host) -> None:
    host.reopen()
    host.pause(25 * 3_600.0)
    host.plant(Kind.STALE, host.page())
    host.reopen()


def _visit_time(host: _Host) -> None:
    host.now += 23 * 3_600 - host.now % _DAY_S
    host.robots()
    host.pause()
    host.plant(Kind.VISIT_TIME, host.page())
    host.now += 31 * 3_600 - host.now % _DAY_S
    host.reopen()


def _before_robots(host: _Host) -> None:
    host.plant(Kind.BEFORE_ROBOTS, host.page())
    host.robots()
    host.pause()


def _while_closed(host: _Host) -> None:
    host.robots(503)
    host.pause(20.0)
    host.plant(Kind.WHILE_CLOSED, host.page())
    host.reopen()


_ANYWHERE: Final[tuple[Callable[[_Host], None], ...]] = (
    *(_forbidden, _gap, _overlap, _retry_after, _retried_early, _refetched, _robots_overlap, _robots_gap, _stale),
)
_FIRST: Final[tuple[Callable[[_Host], None], ...]] = (_before_robots, _while_closed)


@dataclass
class PlantedLog:
    """A log, its rules, and the violations that it holds."""

    lines: list[str]
    robots: dict[str, str]
    planted: Counter[tuple[str, str]]
    garbage: int


def planted_log(lines: int, each: int, seed: int = 9_309) -> PlantedLog:
    """Make a log of ``lines`` lines with ``each`` violations of each kind; about a third are of other clients."""
    random = Random(seed)
    busy = [_Host(f"busy{n}.example", random, _BASE + 3_600 * random.random()) for n in range(each // 2 + 1)]
    by_day = [_Host(f"day{n}.example", random, _BASE + 3_600 * random.random()) for n in range(each // 10 + 1)]
    new = [
        (_Host(f"new{n}.example", random, _BASE + 3_600 * random.random()), plant)
        for n, plant in enumerate(_FIRST * each)
    ]
    episodes = [(random.choice(busy), plant) for plant in _ANYWHERE for _ in range(each)]
    episodes += [(random.choice(by_day), _visit_time) for _ in range(each)]
    random.shuffle(episodes)
    for host in (*busy, *by_day):
        host.robots()
        host.pause()
    for host, plant in (*new, *episodes):
        if host.robots_at and host.now - host.robots_at > _FRESH_S:
            host.reopen()
        plant(host)
    hosts = [*busy, *by_day, *(host for host, _ in new)]
    own = sum(len(host.rows) for host in hosts)
    for _ in range(2 * lines // 3 - own):
        host = random.choice(busy)
        if host.now - host.robots_at > _FRESH_S:
            host.reopen()
        host.page()
        host.pause()
    rows = [row for host in hosts for row in host.rows]
    last = max(at for at, _ in rows)
    rows += [(random.uniform(_BASE, last), random.choice(_GARBAGE)) for _ in range(each)]
    for _ in range(lines - len(rows)):
        at, name = random.uniform(_BASE, last), f"busy{random.randrange(len(busy))}.example"
        sent = random.choice(_OTHERS)
        rows.append((at, f'{at:.3f} https://{name} "GET /private/{random.random()} HTTP/1.1" 200 0.001 "{sent}" -'))
    rows.sort()
    robots = {f"https://{host.name}": BY_DAY if host in by_day else ROBOTS for host in hosts}
    planted = Counter(one for host in hosts for one in host.planted)
    return PlantedLog([line for _, line in rows], robots, planted, each)

"""politesse and its peers, each used in its fastest honest way.

Parsed once and asked often, with whatever a peer prepares on the first question already done. Where a peer takes
text, the time to decode it is not counted; politesse takes octets, and its decoding is.
"""

from __future__ import annotations

import os
import platform
import urllib.robotparser
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import robots
from protego import Protego

from politesse.robots import IMPLEMENTATION, RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.corpus import RobotsFile

    Judge = Callable[[Sequence[str]], list[bool]]
    Bound = Callable[..., object]
    Work = Sequence[tuple[Bound, str]]

AGENT: Final = "examplebot"
"""A product token in lower case, the form that every peer uses in the end."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Attributes:
    name: how its rows are headed.
    parse: reads a file.
    judge: reads a file and returns a function for many URLs at once, so that each engine has its own bare loop.
    bind: reads a file and returns the bound method that answers for one URL.
    ask: calls such methods of many files, each with its URL, in a bare loop.
    """

    name: str
    parse: Callable[[RobotsFile], object]
    judge: Callable[[RobotsFile], Judge]
    bind: Callable[[RobotsFile], Bound]
    ask: Callable[[Work], None]


def parse_politesse(file: RobotsFile) -> RobotsTxt:
    return RobotsTxt.parse(file.body)


def judge_politesse(file: RobotsFile) -> Judge:
    allowed = RobotsTxt.parse(file.body).rules_for(AGENT).allowed
    return lambda urls: [allowed(url) for url in urls]


def parse_protego(file: RobotsFile) -> Protego:
    return Protego.parse(file.text)


def judge_protego(file: RobotsFile) -> Judge:
    can_fetch = parse_protego(file).can_fetch
    return lambda urls: [can_fetch(url, AGENT) for url in urls]


def parse_urllib(file: RobotsFile) -> urllib.robotparser.RobotFileParser:
    parser = urllib.robotparser.RobotFileParser()
    parser.parse(file.text.splitlines())
    return parser


def judge_urllib(file: RobotsFile) -> Judge:
    can_fetch = parse_urllib(file).can_fetch
    return lambda urls: [can_fetch(AGENT, url) for url in urls]


def parse_robotspy(file: RobotsFile) -> robots.RobotsParser:
    return robots.RobotsParser.from_string(file.text)


def judge_robotspy(file: RobotsFile) -> Judge:
    can_fetch = parse_robotspy(file).can_fetch
    return lambda urls: [can_fetch(AGENT, url) for url in urls]


def ask_url(work: Work) -> None:
    for ask, url in work:
        ask(url)


def ask_url_and_agent(work: Work) -> None:
    for ask, url in work:
        ask(url, AGENT)


def ask_agent_and_url(work: Work) -> None:
    for ask, url in work:
        ask(AGENT, url)


POLITESSE: Final = Engine(
    "politesse", parse_politesse, judge_politesse, lambda file: parse_politesse(file).rules_for(AGENT).allowed, ask_url
)
PROTEGO: Final = Engine(
    "Protego", parse_protego, judge_protego, lambda file: parse_protego(file).can_fetch, ask_url_and_agent
)
URLLIB: Final = Engine(
    "urllib.robotparser", parse_urllib, judge_urllib, lambda file: parse_urllib(file).can_fetch, ask_agent_and_url
)
ROBOTSPY: Final = Engine(
    "robotspy", parse_robotspy, judge_robotspy, lambda file: parse_robotspy(file).can_fetch, ask_agent_and_url
)

PEERS: Final = (PROTEGO, URLLIB, ROBOTSPY)
ENGINES: Final = (POLITESSE, *PEERS)


def machine() -> str:
    """Return the line without which no number means anything."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("politesse", "protego", "robotspy"))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{python} with its urllib, {system}; {packages}; the rules of politesse: {IMPLEMENTATION}"

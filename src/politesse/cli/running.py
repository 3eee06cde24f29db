"""The common parts of the commands: shared options, the gate, the event loop, the exit code, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, is_dataclass, replace
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from politesse._base import __version__
from politesse._base.checks import checked_names
from politesse._base.text import printable
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.identity import Identity
from politesse.cli.console import abandon_output, errors, say
from politesse.errors import ConfigurationError, InvalidURL, PolitesseError, PolitesseWarning
from politesse.events import Event, FleetAway, FleetBack
from politesse.fetch import AiohttpFetcher
from politesse.fetch._options import MIN_BODY_BYTES
from politesse.options import FetchOptions, FleetOptions, GateArguments, SharedPacer, load
from politesse.page.html import MAX_BYTES
from politesse.ports import Fetcher, FetchRequest, FetchResponse, FetchResult
from politesse.queue._signals import SignalStop, gets_signals
from politesse.robots import Dialect
from politesse.robots.agents import BROWSER, EVERYBODY, first_word

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from types import FrameType

    from aiohttp import StreamReader

    from politesse._gate.view import AgentView


def file_option(text: str, *names: str, **more: Any) -> object:  # noqa: ANN401 - the arguments of typer.Option
    """Return the option for the path of a file."""
    return typer.Option(*names, metavar="FILE", dir_okay=False, help=text, **more)


def number_option(text: str, *names: str, least: int = 1, **more: Any) -> object:  # noqa: ANN401 - as above
    """Return the option for a whole number."""
    return typer.Option(*names, metavar="N", min=least, help=text, **more)


def seconds_option(text: str, *names: str, least: float = 0.001) -> object:
    """Return the option for a time in seconds."""
    return typer.Option(*names, metavar="SECONDS", min=least, help=text)


AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line instead, with the keys named above.")
]

Agent = Annotated[
    str,
    typer.Option(
        metavar="TOKEN_OR_UA",
        help="Judge for this product token, or for the product token of this User-Agent. The requests for robots.txt "
        "have politesse's own User-Agent.",
    ),
]
InDialect = Annotated[
    Dialect,
    typer.Option("--dialect", metavar="NAME", help=f"Read as one of {', '.join(one.value for one in Dialect)}."),
]
StoreFile = Annotated[
    Path | None, file_option("Keep each robots.txt and the state of each host in this file, for later runs.", "--store")
]
Timeout = Annotated[float, seconds_option("For one robots.txt with its redirects.", "--timeout")]
REDIS_URL = "As redis://host:6379/0; also rediss://, unix://, redis+sentinel:// and redis+cluster://."

FleetURL = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="URL",
        envvar="POLITESSE_FLEET",
        help=f"Share the pace of each host, and each robots.txt, with all processes that name this Redis. {REDIS_URL}",
    ),
]
FleetPrefix = Annotated[
    str,
    typer.Option(
        "--fleet-prefix", metavar="TEXT", help="The prefix of its keys: give each fleet on the same Redis its own."
    ),
]
DEFAULT_PREFIX = FleetOptions().prefix


def _settings(path: str) -> GateArguments:
    with checked_arguments(), warnings.catch_warnings(record=True, action="always") as caught:
        settings = load(path)
    for warning in caught:
        say(errors(), f"politesse: {printable(str(warning.message))}", "yellow")
    return settings


def _as_defaults(context: typer.Context, settings: GateArguments | None) -> GateArguments | None:
    """Let the file set the defaults of the command's options."""
    if settings is not None:
        found: dict[str, object] = {"agent": settings["user_agent"]}
        if "dialect" in settings:
            found["dialect"] = settings["dialect"].value
        if "fleet" in settings:
            found |= {"fleet_url": settings["fleet"].url, "fleet_prefix": settings["fleet"].prefix}
        if "pacing" in settings:
            found["min_delay"] = settings["pacing"].min_delay_s
        if "fetch" in settings:
            found["timeout_s"] = settings["fetch"].total_timeout_s
        context.default_map = found
    return settings


Config = Annotated[
    GateArguments | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=_settings,
        callback=_as_defaults,
        is_eager=True,
        help="Make the gate of this TOML file, as its crawlers do; see politesse guide settings. The other options "
        "replace its values.",
    ),
]

USER_AGENT: Final = f"politesse/{__version__} (robots.txt check)"

MAX_READ_BYTES: Final = 4 * 1024 * 1024
"""The part of a file that is read: more than any crawler reads, so that the rest can be reported, too."""

_BY_SIGNAL: Final = 128  # a shell adds this to the number of the signal that ended a program
_SHOW_CURSOR: Final = b"\x1b[?25h"


@dataclass(slots=True)
class GateOptions:
    """The options of a gate, as a command takes them.

    Attributes:
        token: the product token that selects the groups.
        settings: the arguments in the file of --config; without the option, only politesse's own User-Agent.
        shared: the fleet that the gate belongs to, or None.

    Raises:
        BadParameter: the agent names no crawler, or the URL does not name a Redis.
    """

    agent: Agent = "politesse"
    timeout_s: Timeout = 30.0
    store: StoreFile = None
    fleet: FleetURL = None
    fleet_prefix: FleetPrefix = DEFAULT_PREFIX
    config: Config = None
    token: str = field(init=False)
    settings: GateArguments = field(init=False)
    shared: FleetOptions | None = field(init=False)

    def __post_init__(self) -> None:
        self.settings = self.config or GateArguments(user_agent=USER_AGENT)
        is_stated = self.agent == self.settings["user_agent"]
        tokens = checked_names("token", self.settings.get("token", ())) if is_stated else []
        self.token = tokens[0] if tokens else first_word(self.agent)
        with checked_arguments():
            if self.token in {"", EVERYBODY, BROWSER}:
                agent = f"--agent {self.agent!r}"
                raise ConfigurationError(f"{agent}: give the product token of a crawler, as in 'ExampleBot'")
            with warnings.catch_warnings(action="ignore", category=PolitesseWarning):  # USER_AGENT lacks the token
                Identity.of(USER_AGENT, self.token)
            shared = self.settings.get("fleet") or (None if self.fleet is None else FleetOptions(self.fleet))
            if shared is not None:
                shared = replace(shared, url=self.fleet or shared.url, prefix=self.fleet_prefix or shared.prefix)
            self.shared = shared

    def fetch_options(self, max_body_bytes: int = MIN_BODY_BYTES) -> FetchOptions:
        """Return the options of a fetch within the timeout."""
        options = self.settings.get("fetch") or FetchOptions()
        return replace(
            options,
            connect_timeout_s=min(options.connect_timeout_s, self.timeout_s),
            total_timeout_s=self.timeout_s,
            max_body_bytes=max(options.max_body_bytes, max_body_bytes),
        )

    def arguments(self, **replaced: object) -> dict[str, Any]:
        """Return the arguments of the gate: those of --config, with the command's options in their place."""
        given = {"store": self.store, "fleet": self.shared, "fetch": self.fetch_options(), **replaced}
        stated = {name: value for name, value in given.items() if value is not None}
        return {**self.settings, **stated}

    @asynccontextmanager
    async def gate(
        self, fetcher: Fetcher | None = None, dialect: Dialect = Dialect.RFC9309
    ) -> AsyncGenerator[AgentView, None]:
        """Open a gate that fetches under the User-Agent of the settings, and judges for the token.

        The gate reports on standard error when the Redis of its fleet is away, and when Redis is back. While Redis is
        away, no request starts.

        Raises:
            ConfigurationError: the file is not a store, or cannot be used; or the URL of the fleet is invalid.
        """
        arguments = self.arguments()
        if fetcher is not None:  # a OneFetch answers each gate, and requests one file
            kept = {name: arguments.get(name) for name in ("user_agent", "token", "signer")}
            arguments = {**kept, "dialect": dialect, "fetcher": fetcher, "pacer": SharedPacer()}
        with warnings.catch_warnings(action="ignore", category=PolitesseWarning):
            made = Gatekeeper(**arguments)
        async with made as gate:
            gate.subscribe(_tell_of_fleet)
            with warnings.catch_warnings(action="ignore", category=PolitesseWarning):
                same = self.token.lower() == gate.identity.tokens[0]
                view = gate if same else gate.agent(tokens=self.token)
            yield view


def _tell_of_fleet(event: Event) -> None:
    match event:
        case FleetAway(server, error):
            line = f"{server} is away: no request starts until it is back ({error})"
        case FleetBack(server, away_s):
            line = f"{server} is back after {away_s:.1f} s"
        case _:
            return
    say(errors(), printable(line), "yellow")


class OneFetch:
    """A Fetcher that fetches one file once, and returns the same result to every gate.

    Args:
        options: the options with the timeout.
        max_body_bytes: see FetchOptions.
    """

    def __init__(self, options: GateOptions, *, max_body_bytes: int = MIN_BODY_BYTES) -> None:
        self._fetcher = AiohttpFetcher(options.settings["user_agent"], options.fetch_options(max_body_bytes))
        self._result: FetchResult | None = None

    @property
    def body(self) -> bytes:
        """The content of the file; empty without a file."""
        return self._result.body if isinstance(self._result, FetchResponse) else b""

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Fetch the file in the first call, and return the result in each call."""
        if self._result is None:
            self._result = await self._fetcher.fetch(request)
        return self._result

    async def aclose(self) -> None:
        """Close the connections."""
        await self._fetcher.aclose()


async def read_body(content: StreamReader, limit: int = MAX_BYTES) -> bytes:
    """Read a page until it ends, or until more than ``limit`` octets were read."""
    body = bytearray()
    while len(body) <= limit and (octets := await content.readany()):
        body += octets
    return bytes(body)


def run(command: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command in an event loop, and exit with the exit code of the command.

    The exit code is 2 after an OSError, PolitesseError or ImportError.

    The first SIGINT or SIGTERM cancels the command, which may finish its work and then raises the CancelledError. The
    second signal ends the process.
    """
    try:
        code = asyncio.run(_run(command))
    except (OSError, PolitesseError, ImportError) as error:  # such as a full disk or a missing extra
        abandon_output()
        say(errors(), f"politesse: {printable(str(error))}", "red")
        code = 2
    raise typer.Exit(code)


def awaited(command: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., NoReturn]:
    """Return a function for typer that calls a coroutine function, a command, by ``run``.

    A parameter whose type is a dataclass stands for the fields of the dataclass: each field is an option.
    """
    given = signature(command, eval_str=True).parameters
    kinds = {name: one.annotation for name, one in given.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    fields = {name: signature(group, eval_str=True).parameters for name, group in groups.items()}

    @wraps(command)
    def call(**named: Any) -> NoReturn:  # noqa: ANN401 - the arguments of any command
        for name, group in groups.items():
            named[name] = group(**{field: named.pop(field) for field in fields[name]})
        run(command(**named))

    options = [option for name, one in given.items() for option in fields.get(name, {name: one}).values()]
    call.__signature__ = Signature([one.replace(kind=one.KEYWORD_ONLY) for one in options])  # type: ignore[attr-defined]
    return call


@contextmanager
def checked_arguments() -> Generator[None, None, None]:
    """Report an argument that is not a URL, or an invalid option, in the format of typer's own errors."""
    try:
        yield
    except (InvalidURL, ConfigurationError) as error:
        raise typer.BadParameter(str(error)) from error


async def _run(command: Coroutine[Any, Any, int]) -> int:
    task = asyncio.current_task()

    def end(number: int, _: FrameType | None) -> None:
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # a live table hides the cursor
        os._exit(_BY_SIGNAL + number)

    signals = SignalStop(lambda _: task and task.cancel(), end)
    with signals.block() if gets_signals() else nullcontext():
        try:
            code = await command
        except asyncio.CancelledError:
            if not signals.received:
                raise
            code = 0
    return _BY_SIGNAL + signals.received if signals.received else code

"""``politesse fleet``: what a fleet knows of its hosts."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.live import Live

from politesse._text import counted, needs_extra, printable
from politesse.cli.console import plain
from politesse.errors import ConfigurationError
from politesse.origin import Origin
from politesse.verdict import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.text import Text

    from politesse._pacing.fleet.status import FleetHost, FleetReader, UnreadableKey
    from politesse.options import FleetOptions

_LINE_EVERY_S: Final = 5.0
_FRAMES_PER_S: Final = 4


@dataclass(slots=True)
class FleetTotals:
    """What was found, in numbers.

    Attributes:
        busy: the hosts where a request is under way or waits, or that are closed.
        idle: the others that are remembered.
        foreign: the keys that are no host's.
        closed: the hosts that are closed.
        leases: the requests that are under way.
        waiting: the requests that wait.
    """

    busy: int = 0
    idle: int = 0
    foreign: int = 0
    closed: int = 0
    leases: int = 0
    waiting: int = 0

    def count(self, host: FleetHost) -> None:
        """Add a host."""
        self.busy += host.is_busy
        self.idle += not host.is_busy
        self.closed += host.closed_until_wall is not None
        self.leases += len(host.leases)
        self.waiting += host.waiting.total()

    def record(self) -> dict[str, int]:
        """Return the numbers as ``--json`` prints them."""
        names = ("busy", "idle", "foreign", "closed", "leases", "waiting")
        return {name: getattr(self, name) for name in names}

    def line(self) -> Text:
        """Return them as one line."""
        foreign = f", {counted(self.foreign, 'key')} of something else" if self.foreign else ""
        return plain(
            f"{counted(self.busy, 'host')} busy, {self.closed:,} of them closed, {self.idle:,} idle; "
            f"{counted(self.leases, 'request')} under way, {self.waiting:,} waiting{foreign}"
        )


def names_of(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the names under which a fleet may know hosts, which are given as such or as URLs; raises InvalidURL."""
    names = {}
    for name in given:
        is_bare_ipv6 = name.count(":") > 1 and "[" not in name and "//" not in name
        host = Origin.of(
            name if "://" in name else f"https://[{name}]" if is_bare_ipv6 else f"https://{name}"
        ).pacing_host
        names[name] = [host, host[1:-1]] if host.startswith("[") else [host]  # an address has no brackets
    return names


async def print_status(
    fleet: FleetOptions, names: Mapping[str, Sequence[str]], out: Console, err: Console, *, as_json: bool
) -> int:
    """Print what a fleet knows of some hosts, given as ``names_of`` returns them, or of all that are busy.

    Returns:
        The exit code: 1 if nothing is known of one of the hosts.

    Raises:
        ConfigurationError: Redis refuses this client, or the extra ``redis`` is missing.
        ConnectionError: Redis is away.
    """
    reader, totals, code = _reader(fleet), FleetTotals(), 0
    try:
        for name, keys in names.items():
            found = await reader.find(keys)
            _print(found, totals, out, as_json=as_json, with_idle=True)
            if not found:
                code = 1
                err.print(plain(f"nothing is known of {printable(name)}", "yellow"), soft_wrap=True)
        if not names:
            await _print_all(reader, totals, out, err, as_json=as_json)
    finally:
        await reader.aclose()
    out.print(plain(json.dumps({"totals": totals.record()})) if as_json else totals.line(), soft_wrap=True)
    return code


async def _print_all(reader: FleetReader, totals: FleetTotals, out: Console, err: Console, *, as_json: bool) -> None:
    """Print all that is busy, and what was found so far to ``err``: alive in a terminal, else every five seconds."""
    printed_mono = time.monotonic()
    with ExitStack() as stack:
        if err.is_terminal and not out.is_terminal:  # otherwise what is printed shows how far it is
            live = Live(get_renderable=totals.line, console=err, refresh_per_second=_FRAMES_PER_S, transient=True)
            stack.enter_context(live)
        async for found in reader.scan():
            _print(found, totals, out, as_json=as_json, with_idle=False)
            if not err.is_terminal and time.monotonic() - printed_mono >= _LINE_EVERY_S:
                printed_mono = time.monotonic()
                err.print(totals.line(), soft_wrap=True)


def _reader(fleet: FleetOptions) -> FleetReader:
    try:
        from politesse._pacing.fleet.status import FleetReader  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(needs_extra("politesse fleet", "redis")) from error
    return FleetReader(fleet)


def _print(
    found: Iterable[FleetHost | UnreadableKey], totals: FleetTotals, out: Console, *, as_json: bool, with_idle: bool
) -> None:
    for one in found:
        if isinstance(one, tuple):  # a UnreadableKey
            totals.foreign += 1
            line = json.dumps(one._asdict()) if as_json else f"{printable(one.key)}: {printable(one.error)}"
        else:
            totals.count(one)
            if not (with_idle or one.is_busy):
                continue
            line = json.dumps(_record(one)) if as_json else "\n".join(_lines(one))
        out.print(plain(line), soft_wrap=True)


def _record(host: FleetHost) -> dict[str, Any]:
    """Return what is known of a host as ``--json`` prints it; times are ISO 8601 in UTC, by the clock of Redis."""
    return {
        "host": host.name,
        "scope": host.scope,
        "asked": _time(host.asked_wall),
        "closed_until": _time(host.closed_until_wall),
        "closed_by": host.closed_by,
        "interval_s": host.interval_s,
        "adaptive_s": host.adaptive_s,
        "leases": [{"owner": lease.owner, "url": lease.url, "left_s": round(lease.left_s, 3)} for lease in host.leases],
        "waiting": dict(host.waiting.most_common()),
    }


def _lines(host: FleetHost) -> list[str]:
    """Return what is known of a host as text, what comes from elsewhere made printable."""
    adaptive = f", its answers ask for {host.adaptive_s:g} s" if host.adaptive_s > host.interval_s else ""
    lines = [
        f"{host.scope}: {printable(host.name)}",
        f"  pace:    every {host.interval_s:g} s{adaptive}",
        f"  asked:   {_time(host.asked_wall) or 'never'}",
    ]
    if host.closed_until_wall is not None:
        lines.append(f"  closed:  until {_time(host.closed_until_wall)}, by {host.closed_by}")
    lines += [
        f"  request: {printable(lease.url) or 'unknown'}, by {printable(lease.owner)}, for {lease.left_s:.0f} s more "
        "if nothing is heard of it"
        for lease in host.leases
    ]
    if host.waiting:
        owners = ", ".join(f"{number:,} of {printable(owner)}" for owner, number in host.waiting.most_common())
        lines.append(f"  waiting: {owners}")
    return lines


def _time(wall: float | None) -> str | None:
    return None if wall is None else utc(wall)

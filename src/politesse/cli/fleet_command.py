"""``politesse fleet``: the hosts of a fleet."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from politesse._base.text import counted, needing, printable
from politesse.cli.console import as_lines, errors, output, say, say_json
from politesse.cli.running import DEFAULT_PREFIX, REDIS_URL, AsJson, Config, FleetPrefix, checked_arguments
from politesse.errors import ConfigurationError
from politesse.options import FleetOptions
from politesse.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console


app: typer.Typer = typer.Typer(
    name="fleet",
    help="Look into the Redis by which the processes of a fleet share their pace.",
    no_args_is_help=True,
)


@app.command()
async def status(
    fleet_url: Annotated[
        str,
        typer.Option(
            "--fleet",
            metavar="URL",
            envvar="POLITESSE_FLEET",
            show_default=False,  # --config may give the default, with a password
            help=f"The Redis of the fleet. {REDIS_URL}",
        ),
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="HOST", help="Hosts, addresses, domains, or URLs; by default, all busy hosts."),
    ] = None,
    fleet_prefix: FleetPrefix = DEFAULT_PREFIX,
    *,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Show the hosts of the fleet: requests under way and waiting, their processes, closures and the pace.

    Without HOST, the command shows the busy hosts, in no particular order, and then totals. A host is busy if a request
    is under way or waits, or if it is closed. A host that becomes busy or idle while the command runs may be missing.
    The command reads Redis in small steps (SCAN) and changes nothing. Of the processes that wait for a host, Redis
    knows the one that has waited for the longest time, so only this one is counted as waiting.

    Exit code: 0; 1 if the fleet does not know one of the HOSTs; 2 if Redis is away, or refuses the client.

    With --json, for each host: host, scope ("host", "address" or "domain"), asked (the time of the last or the next
    request), closed_until, closed_by, interval_s (the longest of its requests), adaptive_s (the adaptive delay), leases
    [{owner, url, left_s}], waiting {owner: number}; for a key that does not belong to a host: key, error; at the end:
    totals {busy, idle, foreign, closed, leases, waiting}.
    """
    with checked_arguments():
        names = _names_of(hosts or [])
        fleet = (None if config is None else config.get("fleet")) or FleetOptions()
        fleet = replace(fleet, url=fleet_url, prefix=fleet_prefix)
    out, totals = output(), dict.fromkeys(("busy", "idle", "foreign", "closed", "leases", "waiting"), 0)
    code = 0
    with needing("politesse fleet", "redis", ConfigurationError):
        from politesse._pacing.fleet.status import FleetReader  # noqa: PLC0415 - an extra
    async with aclosing(FleetReader(fleet)) as reader:
        for name, keys in names.items():
            found = await reader.find(keys)
            _print(found, totals, out, as_json=as_json, with_idle=True)
            if not found:
                code = 1
                say(errors(), f"nothing is known of {printable(name)}", "yellow")
        if not names:
            async for found in reader.scan():
                _print(found, totals, out, as_json=as_json, with_idle=False)
    if as_json:
        say_json(out, {"totals": totals})
        return code
    foreign = f", {counted(totals['foreign'], 'key')} of something else" if totals["foreign"] else ""
    say(
        out,
        f"{counted(totals['busy'], 'host')} busy, {totals['closed']:,} of them closed, {totals['idle']:,} idle; "
        f"{counted(totals['leases'], 'request')} under way, {totals['waiting']:,} waiting{foreign}",
    )
    return code


def _names_of(given: Sequence[str]) -> dict[str, list[str]]:
    """Map each given name or URL to the names under which a fleet may keep its host; raises InvalidURL."""
    names = {}
    for name in given:
        is_bare_ipv6 = name.count(":") > 1 and "[" not in name and "//" not in name
        host = Origin.of(
            name if "://" in name else f"https://[{name}]" if is_bare_ipv6 else f"https://{name}"
        ).pacing_host
        names[name] = [host, host[1:-1]] if host.startswith("[") else [host]  # a key has no brackets around IPv6
    return names


def _print(
    found: Iterable[dict[str, Any]], totals: dict[str, int], out: Console, *, as_json: bool, with_idle: bool
) -> None:
    for record in found:
        if "error" in record:
            totals["foreign"] += 1
            text = f"{printable(record['key'])}: {printable(record['error'])}"
        else:
            busy = bool(record["leases"] or record["waiting"] or record["closed_until"])
            totals["busy" if busy else "idle"] += 1
            totals["closed"] += record["closed_until"] is not None
            totals["leases"] += len(record["leases"])
            totals["waiting"] += sum(record["waiting"].values())
            if not (with_idle or busy):
                continue
            lines = as_lines(record | {"host": None, "scope": None})
            text = "\n".join([f"{record['scope']}: {printable(record['host'])}", *lines])
        if as_json:
            say_json(out, record)
        else:
            say(out, text)

"""The commands of ``politesse fleet`` and their options, as typer reads them; and the options that name a fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from politesse import InvalidURL
from politesse.cli.console import errors, output
from politesse.cli.fleet_command import names_of, print_status
from politesse.cli.running import run
from politesse.options import FleetOptions

app = typer.Typer(
    name="fleet",
    help="Look into the Redis by which the processes of a fleet share their pace.",
    no_args_is_help=True,
)

_URL = "As redis://host:6379/0; also rediss://, unix://, redis+sentinel:// and redis+cluster://."

FleetURL = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="URL",
        envvar="POLITESSE_FLEET",
        help=f"Share the pace of each host, and each robots.txt, with all processes that name this Redis. {_URL}",
    ),
]
FleetPrefix = Annotated[
    str,
    typer.Option(
        "--fleet-prefix", metavar="TEXT", help="What its keys begin with: another one for each fleet on the same Redis."
    ),
]
DEFAULT_PREFIX = FleetOptions().prefix


def fleet_options(url: str | None, prefix: str) -> FleetOptions | None:
    """Return the options of a fleet; None for no fleet. Raises BadParameter."""
    if url is None:
        return None
    try:
        return FleetOptions(url, prefix=prefix)
    except ValueError as error:  # ConfigurationError
        raise typer.BadParameter(str(error)) from error


@app.command()
def status(
    url: Annotated[
        str, typer.Option("--fleet", metavar="URL", envvar="POLITESSE_FLEET", help=f"The Redis of the fleet. {_URL}")
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="HOST", help="Hosts, addresses, domains, or URLs; without, all that are busy."),
    ] = None,
    prefix: FleetPrefix = DEFAULT_PREFIX,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line instead, with the keys named above.")
    ] = False,
) -> None:
    """Show what the fleet knows of its hosts: who requests what, who waits, what is closed until when, and the pace.

    Without HOST it shows those where a request is under way or waits, or that are closed, in no order, each as soon as
    it is read; then totals. A host that comes or goes meanwhile may be missing. Redis is asked in small steps (SCAN),
    and nothing in it is changed. Each process reserves for the first request of its line: those behind it are not
    counted.

    Exit code: 0; 1 if nothing is known of one of the HOSTs; 2 if Redis is away, or refuses.

    With --json, for each host: host, scope ("host", "address" or "domain"), asked (when it was asked last, or is to be
    asked next), closed_until, closed_by, interval_s (the longest of its requests), adaptive_s (what its answers ask
    for), leases [{owner, url, left_s}], waiting {owner: number}; for a key that is no host's: key, error; at the end:
    totals {busy, idle, foreign, closed, leases, waiting}.
    """
    try:
        names = names_of(hosts or [])
    except InvalidURL as error:
        raise typer.BadParameter(str(error)) from error
    fleet = fleet_options(url, prefix) or FleetOptions()
    run(print_status(fleet, names, output(), errors(), as_json=as_json))

"""``politesse key``: makes and rotates the keys that sign requests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from politesse.cli.console import output, say

_MAX_DAYS: Final = 3_650.0

app: typer.Typer = typer.Typer(
    name="key",
    help="Make and rotate the keys that sign requests (Web Bot Auth).",
    no_args_is_help=True,
)

KeyPath = Annotated[Path, typer.Argument(metavar="FILE.pem", help="The file of the private keys.")]
Days = Annotated[float, typer.Option(metavar="DAYS", min=0.001, max=_MAX_DAYS, help="How long the new key is used.")]
Ahead = Annotated[
    float,
    typer.Option(metavar="DAYS", min=0.0, max=_MAX_DAYS, help="How long the new key is published before its use."),
]


@app.command()
async def new(file: KeyPath, days: Days = 90.0) -> int:
    """Make a new file, which only you may read, with an ed25519 key."""
    return _change(file, days, None)


@app.command()
async def rotate(file: KeyPath, days: Days = 90.0, ahead: Ahead = 1.0) -> int:
    """Add a new key, and drop the keys that have expired. Running crawlers and directories notice the change.

    The directory has the new key at once. The new key signs requests after --ahead days, or earlier if the last old key
    expires.
    """
    return _change(file, days, ahead)


@app.command()
async def directory(file: KeyPath) -> int:
    """Print the public keys as a JSON Web Key Set, for a web server that serves files."""
    from politesse.signing import _keys as keys  # noqa: PLC0415 - needs an extra

    say(output(), keys.directory_of(keys.KeyFile(file).valid()))
    return 0


def _change(file: Path, days: float, ahead_days: float | None) -> int:
    from politesse.signing import _keys as keys  # noqa: PLC0415 - needs an extra

    now_wall = time.time()
    if ahead_days is None:
        held = [keys.new_key(now_wall, days)]
    else:
        held = keys.rotated(keys.read_keys(file), now_wall, days, ahead_days)
    keys.write_keys(file, held, is_new=ahead_days is None)
    for key in held:
        say(output(), f"Key: {key.thumbprint}\n{key.times}")
    return 0

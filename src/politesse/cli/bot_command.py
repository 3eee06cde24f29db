"""``politesse card``, ``bot-page`` and ``key``: describe a bot, from one TOML file, and make its keys."""

from __future__ import annotations

import json
import time
import tomllib
from html import escape
from importlib.resources import files
from ipaddress import ip_network
from pathlib import Path
from string import Template
from typing import Annotated, Any, Final

import typer

from politesse.cli.console import output, say
from politesse.errors import ConfigurationError
from politesse.verdict import utc

_DRAFT: Final = "draft-meunier-webbotauth-registry-04"

# Each key of the TOML file, with the type of its value. _CARD has members of the card; _BOT and _RULES have the members
# of the card's object ``web_bot_auth``.
_CARD: Final = {"client_name": str, "client_uri": str, "operator": str, "contacts": list, "jwks_uri": str}
_BOT: Final = {"user_agent": str, "purpose": str, "rate_control": str, "ip_ranges_uri": str}
_RULES: Final = {"rfc9309_product_token": str, "rfc9309_compliance": bool}
_KEYS: Final[dict[str, type]] = {**_CARD, **_BOT, **_RULES, "ip_ranges": list}

Source = Annotated[Path, typer.Argument(metavar="BOT.toml", help="The description of the bot.")]
CardFile = Annotated[Path, typer.Option("--card", metavar="FILE", help="Where to write the card.")]
RangesFile = Annotated[Path, typer.Option("--ranges", metavar="FILE", help="Where to write the IP ranges.")]
PageFile = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the page.")]


async def card(source: Source, card: CardFile = Path("card.json"), ranges: RangesFile = Path("ip-ranges.json")) -> int:
    """Write the Signature Agent Card of a bot (draft-meunier-webbotauth-registry-04), and the list of its IP ranges.

    The guide "signing" shows a BOT.toml; its keys are the members of the card.
    """
    bot = _read(source)
    members = {name: bot[name] for name in _CARD} | {"web_bot_auth": {name: bot[name] for name in (*_BOT, *_RULES)}}
    prefixes = [{f"ipv{network.version}Prefix": str(network)} for network in bot["ip_ranges"]]
    _write(card, json.dumps({**members, "draft": _DRAFT}, indent=2))
    _write(ranges, json.dumps({"creationTime": utc(time.time()), "prefixes": prefixes}, indent=2))
    return 0


async def bot_page(source: Source, out: PageFile = Path("bot.html")) -> int:
    """Write a page for the owners of sites: who runs the bot, why, and how to block it.

    BOT.toml is the file that politesse card reads.
    """
    bot = _read(source)
    texts = {name: escape(str(value)) for name, value in bot.items()}
    links = [(escape(url), escape(url.removeprefix("mailto:"))) for url in bot["contacts"]]
    texts["contacts"] = ", ".join(f'<a href="{url}">{text}</a>' for url, text in links)
    texts["obeys"] = "obeys" if bot["rfc9309_compliance"] else "does not obey"
    template = (files("politesse.cli") / "bot_page.html").read_text(encoding="utf-8")
    _write(out, Template(template).substitute(texts))
    return 0


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text.rstrip()}\n", encoding="utf-8")
    say(output(), f"{path} written")


def _read(source: Path) -> dict[str, Any]:
    """Return the checked values of the file; raises ConfigurationError for a key that is unknown, missing or wrong."""
    try:
        bot = tomllib.loads(source.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{source}: this is no TOML: {error}") from None
    for name in sorted(bot.keys() ^ _KEYS.keys()):
        problem = "is missing" if name in _KEYS else f"is unknown; the keys are {', '.join(_KEYS)}"
        raise ConfigurationError(f"{source}: the key {name!r} {problem}")
    for name, value in bot.items():
        texts = value if isinstance(value, list) else [str(value)]
        if type(value) is not _KEYS[name] or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(f"{source}: {name}={value!r:.100}: give a {_KEYS[name].__name__}")
        schemes = ("https://", "mailto:") if name == "contacts" else "https://" if name.endswith("_uri") else ""
        if not all(text.startswith(schemes) for text in texts):
            raise ConfigurationError(f"{source}: {name}={value!r:.100}: give https URLs; a contact may be a mailto URL")
    try:
        return bot | {"ip_ranges": [ip_network(text) for text in bot["ip_ranges"]]}
    except ValueError as error:
        raise ConfigurationError(f"{source}: ip_ranges: {error}") from None


_MAX_DAYS: Final = 3_650.0

keys: typer.Typer = typer.Typer(
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


@keys.command()
async def new(file: KeyPath, days: Days = 90.0) -> int:
    """Make a new file, which only you may read, with an ed25519 key."""
    return _change(file, days, None)


@keys.command()
async def rotate(file: KeyPath, days: Days = 90.0, ahead: Ahead = 1.0) -> int:
    """Add a new key, and drop the keys that have expired. Running crawlers and directories notice the change.

    The directory has the new key at once. The new key signs requests after --ahead days, or earlier if the last old key
    expires.
    """
    return _change(file, days, ahead)


@keys.command()
async def directory(file: KeyPath) -> int:
    """Print the public keys as a JSON Web Key Set, for a web server that serves files."""
    from politesse.signing import _keys as signing  # noqa: PLC0415 - needs an extra

    say(output(), signing.directory_of(signing.KeyFile(file).valid()))
    return 0


def _change(file: Path, days: float, ahead_days: float | None) -> int:
    from politesse.signing import _keys as signing  # noqa: PLC0415 - needs an extra

    now_wall = time.time()
    if ahead_days is None:
        held = [signing.new_key(now_wall, days)]
    else:
        held = signing.rotated(signing.read_keys(file), now_wall, days, ahead_days)
    signing.write_keys(file, held, is_new=ahead_days is None)
    for key in held:
        say(output(), f"Key: {key.thumbprint}\n{key.times}")
    return 0

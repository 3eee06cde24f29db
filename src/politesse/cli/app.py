"""The commands and their options, as typer reads them."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from politesse._base import __version__
from politesse.cli import bot_command, fleet_command, ledger_command, store_command
from politesse.cli.audit_command import audit
from politesse.cli.console import output
from politesse.cli.crawl_command import WatchableCommand, crawl
from politesse.cli.demo import run as run_demo
from politesse.cli.guide_command import guide
from politesse.cli.rules_commands import check, diff, explain_url, filter_urls, lint_all
from politesse.cli.running import awaited, number_option
from politesse.cli.watch_command import watch
from politesse.robots import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable

app: typer.Typer = typer.Typer(
    name="politesse",
    help="Check before you crawl: which URLs does robots.txt permit, and why?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # tracebacks without the values of variables, which may be secret
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        output().print(f"politesse {__version__} (rules of robots.txt: {IMPLEMENTATION})", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Check before you crawl: which URLs does robots.txt permit, and why?"""


async def demo(
    pages: Annotated[int, number_option("How many pages to make, about.", least=200)] = 3_000,
) -> int:
    """Crawl a small web on this machine, and judge the crawl by the logs of its servers.

    Each page is counted as fetched, as disallowed by robots.txt, as given up because the server never answers for
    robots.txt, or as left. A request breaks a rule in three cases: its page is disallowed; no valid robots.txt was
    fetched before; the request comes sooner than Retry-After, the site's pace or the crawler's own pause permits.

    Exit code: 0 if every allowed page was fetched and no rule was broken; else 1.
    """
    return await run_demo(output(), pages)


def _unwrapped(text: str) -> str:
    """Return a docstring with each paragraph in one line, because typer's help would keep the line ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


_GROUPS = (store_command.app, ledger_command.app, fleet_command.app, bot_command.keys)
_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "audit": audit,
    "card": bot_command.card,
    "bot-page": bot_command.bot_page,
    "check": check,
    "explain": explain_url,
    "filter": filter_urls,
    "crawl": crawl,
    "lint": lint_all,
    "diff": diff,
    "demo": demo,
    "watch": watch,
    "guide": guide,
}
for _name, _function in _COMMANDS.items():
    app.command(_name, cls=WatchableCommand if _function is crawl else None)(_function)
for _group in _GROUPS:
    app.add_typer(_group)
for _command in [one for group in (app, *_GROUPS) for one in group.registered_commands]:
    _command.help = _unwrapped((_command.callback and _command.callback.__doc__) or "")
    if iscoroutinefunction(_command.callback):
        _command.callback = awaited(_command.callback)

"""``politesse watch``: the hosts of another process's crawl in a terminal. ``politesse crawl --watch`` serves them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qs, urldefrag

import aiohttp
import typer
from rich.console import Group
from rich.live import Live

from politesse._base.text import counted, printable, shortened, without_tls
from politesse.cli.console import output, say
from politesse.cli.progress import host_table, rough, shown_line
from politesse.errors import ClosedError, ConfigurationError, InvalidURL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import JustifyMethod


_COLUMNS: Final[dict[str, tuple[JustifyMethod, int]]] = {  # with the number of cells; the rest is for the last one
    "host": ("left", 30),
    "phase": ("left", 7),
    "queued": ("right", 7),
    "pace": ("right", 8),
}
_OTHER_LINES: Final = 6
_LINES_OF_PIPE: Final = 50
_EVERY_S: Final = 1.0
_MALFORMED: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)  # the answer is no watch's
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10.0)


async def watch(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The URL that politesse crawl --watch has printed, or that of a watch.")
    ],
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="POLITESSE_WATCH_TOKEN",
            help="The token, if the URL has no #token=...",
            show_default=False,
        ),
    ] = None,
    search: Annotated[str, typer.Option(metavar="TEXT", help="Only hosts whose names have this text.")] = "",
    phase: Annotated[str, typer.Option(metavar="PHASE", help="Only closed, busy, waiting, spaced or idle hosts.")] = "",
    sort: Annotated[
        str,
        typer.Option(
            metavar="BY",
            help="host, queued, waiting, interval, not_before, closed or held; a leading - turns the order round.",
        ),
    ] = "-queued",
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the present table, and end.")] = False,
) -> int:
    """Show the hosts of a crawl that runs in another process: their pace, why they wait, and until when.

    The table is read again each second. Without a terminal, it is printed once.

    Exit code: 0 when the watch has ended, with its crawl or before; 2 if the URL does not answer as a watch does, or
    refuses the token or an option.
    """
    url, fragment = urldefrag(url)
    token = next(iter(parse_qs(fragment).get("token", ())), token)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    out, view = output(), {"search": search, "phase": phase, "sort": sort}
    rows = out.height - _OTHER_LINES if out.is_terminal else _LINES_OF_PIPE
    view["count"] = str(max(1, min(rows, 200)))
    end = "The watch has ended."
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=_TIMEOUT) as http:
            first = await _read_frame(http, url, view, out.width)
            if once or not out.is_terminal:
                out.print(first)
                return 0
            with Live(first, console=out, auto_refresh=False) as live, suppress(_NoConnection):
                while True:
                    await asyncio.sleep(_EVERY_S)
                    live.update(await _read_frame(http, url, view, out.width), refresh=True)
    except ClosedError as error:
        end = f"The watch has ended: {printable(str(error))}."
    say(out, end)
    return 0


class _NoConnection(ConfigurationError):
    """Nothing listens at the URL, or what listened there has ended."""


async def _read_frame(http: aiohttp.ClientSession, url: str, view: Mapping[str, str], width: int) -> Group:
    """Ask a watch, and return the table.

    Raises:
        ClosedError: the gate is closed.
        ConfigurationError: the URL does not answer as a watch does, or refuses the token or the view.
    """
    shown = InvalidURL(url, "").url  # without userinfo

    async def read(path: str, query: Mapping[str, str]) -> dict[str, Any]:
        async with http.get(f"{url.rstrip('/')}/{path}", params=query, allow_redirects=False) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            if response.status == HTTPStatus.GONE:
                raise ClosedError(shortened(str(answer["error"])))
            if not response.ok:
                raise ConfigurationError(f"{shown} answers {response.status}: {shortened(str(answer['error']))}")
            return answer

    try:
        return _frame(await read("statistics", {}), await read("hosts", view), width)
    except ConfigurationError:
        raise
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):  # their text has the whole URL
        raise ConfigurationError(f"{shown} is not the URL of a watch") from None
    except TimeoutError as error:
        raise ConfigurationError(f"{shown} does not answer") from error
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        raise _NoConnection(without_tls(str(error))) from error
    except (aiohttp.ClientError, *_MALFORMED) as error:
        raise ConfigurationError(f"{shown} does not answer as a watch does: {error}") from error


def _frame(statistics: Mapping[str, Any], page: Mapping[str, Any], width: int) -> Group:
    """Return the table; all text is remote, and is escaped."""
    crawl, denied = statistics["crawl"], statistics["denied"]
    verdicts = [f"{statistics['allowed']:,} allowed", *(f"{count:,} {reason}" for reason, count in denied.items())]
    lines = [statistics["agent"], ", ".join(verdicts)]
    if crawl is not None:
        state = "stopping" if crawl["stopping"] else "paused" if crawl["paused"] else "running"
        lines.insert(1, f"{state}, {crawl['queued']:,} queued, {crawl['under_way']:,} under way")
    phases = ", ".join(f"{count:,} {phase}" for phase, count in page["phases"].items() if count)
    lines.append(f"{len(page['hosts']):,} of {counted(page['matching'], 'host')} shown; of all hosts: {phases}")
    table = host_table(width)
    for name, (justify, cells) in _COLUMNS.items():
        table.add_column(name, justify=justify, width=cells, no_wrap=True, overflow="ellipsis")
    table.add_column("why", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in page["hosts"]:
        style = "yellow" if row["phase"] == "closed" else ""
        words = row["host"], row["phase"], f"{row['queued']:,}", f"{row['interval_s']:g} s", _why(row, page["time"])
        table.add_row(*(shown_line(one, style) for one in words))
    return Group(*map(shown_line, lines), table)


def _why(row: Mapping[str, Any], now_wall: float) -> str:
    """Return what a host waits for, and its policy."""
    words = [row["refusal"] or "", row["policy"] or ""]
    if row["closed_until"] is not None:
        words.insert(0, f"for {rough(row['closed_until'] - now_wall)}: {row['closed_by']}")
    elif row["in_flight"]:
        words.append(f"for {rough(row['held_s'])}: {row['held_by']}")
    elif row["not_before"] > now_wall:
        words.append(f"for {rough(row['not_before'] - now_wall)}: {row['bound_by']}")
    if row["closed_until"] is None:  # else robots.txt cannot be fetched, either
        words += [f"robots.txt: {one['fault']}" for one in row["robots"] if one["fault"]]
    return "; ".join(filter(None, words))

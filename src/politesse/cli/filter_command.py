"""``politesse filter``: URLs in on standard input, the allowed ones out on standard output."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from contextlib import ExitStack, aclosing, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from rich.live import Live

from politesse._text import printable
from politesse.cli.console import BROKEN_PIPE, plain
from politesse.cli.streams import MAX_LINE_BYTES, Outlet, lines
from politesse.verdict import UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from politesse import AgentView, Verdict
    from politesse.cli.gate_options import Asking

_LAST_FLUSH_S: Final = 1.0


@dataclass(slots=True)
class Tally:
    """How many URLs were judged, and how.

    Attributes:
        allowed: that robots.txt allows.
        denied: that it disallows.
        untold: for which that could not be told, lines that are no URL included.
        ending: how it ended, where that was not the end of the input.
    """

    allowed: int = 0
    denied: int = 0
    untold: int = 0
    ending: str = ""
    started_mono: float = field(default_factory=time.monotonic)

    def count(self, verdict: Verdict) -> None:
        """Add one."""
        if verdict.allowed:
            self.allowed += 1
        elif verdict.reason in UNDECIDED:
            self.untold += 1
        else:
            self.denied += 1

    def line(self) -> Text:
        """Return it as one line."""
        judged = self.allowed + self.denied + self.untold
        elapsed_s = time.monotonic() - self.started_mono
        told = f"{self.allowed:,} allowed, {self.denied:,} denied, {self.untold:,} could not be told"
        return plain(f"{judged:,} URLs in {elapsed_s:.1f} s: {told}{self.ending and f'; {self.ending}'}")


async def filter_stdin(asking: Asking, err: Console, rejected: Path | None, max_pending: int) -> int:
    """Pass the allowed URLs on from standard input to standard output; returns the exit code.

    Only allowed URLs are written to standard output, as they came; to ``rejected`` every other line, with a tab and the
    reason behind it. A summary is always written to ``err``.
    """
    tally = Tally()
    with ExitStack() as stack:
        stack.callback(lambda: err.print(tally.line(), soft_wrap=True))
        try:
            others = nullcontext() if rejected is None else _opened(rejected)
            stdin, stdout = _descriptor(sys.stdin), _descriptor(sys.stdout)
            out, aside = stack.enter_context(closing(Outlet(stdout))), stack.enter_context(others)
            stack.enter_context(_progress(tally, err, seen=os.isatty(stdout)))
            async with asking.gate() as gate:
                await sift(gate, stdin, out, aside, tally, max_pending)
        except BrokenPipeError:
            tally.ending = "stopped, because nobody reads them any more"
            return BROKEN_PIPE
        except OSError as error:
            tally.ending = f"stopped by an error: {printable(str(error))}"
            return 2
        except asyncio.CancelledError:
            tally.ending = "interrupted"
            raise
    return 2 if tally.untold else 0


async def sift(
    gate: AgentView, source_fd: int, out: Outlet, rejected: Outlet | None, tally: Tally, max_pending: int
) -> None:
    """Judge every line of ``source_fd``, each as soon as it can be, and write it where it belongs. Raises OSError."""
    outlets = [outlet for outlet in (out, rejected) if outlet is not None]
    try:
        async with aclosing(gate.filter(lines(source_fd), key=_url, max_pending=max_pending)) as judged:
            async for line, verdict in judged:
                tally.count(verdict)
                if verdict.allowed:
                    await out.write(line + b"\n")
                elif rejected is not None:
                    await rejected.write(b"%b\t%b\n" % (line, verdict.reason.encode()))
    except BaseException:  # what is judged is written all the same, if that is quickly done
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await _flush(outlets)
        raise
    await _flush(outlets)


async def _flush(outlets: list[Outlet]) -> None:
    for outlet in outlets:
        await outlet.flush()


def _url(line: bytes) -> str:
    """Return the line as text; one that was cut off as none, which no URL is."""
    return line.decode("utf-8", "surrogateescape") if len(line) <= MAX_LINE_BYTES else ""


@contextmanager
def _opened(path: Path) -> Generator[Outlet, None, None]:
    with path.open("wb", buffering=0) as file, closing(Outlet(file.fileno())) as outlet:
        yield outlet


def _descriptor(stream: TextIO | None) -> int:
    """Return the descriptor below a standard stream; raises OSError where the program was started without it.

    What Python buffers above it cannot be shared with a thread that may never end. And where there is no stream, its
    number may by now be that of a connection.
    """
    if stream is None:
        raise OSError(errno.EBADF, "a standard stream is closed")
    return stream.fileno()


@contextmanager
def _progress(tally: Tally, err: Console, *, seen: bool) -> Generator[None, None, None]:
    """Show the tally as it grows, but not to somebody who sees the URLs themselves go by."""
    if not err.is_terminal or seen:
        yield
        return
    with Live(get_renderable=tally.line, console=err, refresh_per_second=8, transient=True):
        yield

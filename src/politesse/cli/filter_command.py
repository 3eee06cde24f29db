"""``politesse filter``: URLs in on standard input, the allowed ones out on standard output."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import ExitStack, aclosing, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.live import Live

from politesse._text import printable
from politesse.cli.console import BROKEN_PIPE, plain
from politesse.cli.streams import MAX_LINE_BYTES, OutputWriter, descriptor, lines
from politesse.verdict import UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from politesse import AgentView, Verdict
    from politesse.cli.gate_options import GateOptions

_LAST_FLUSH_S: Final = 1.0


@dataclass(slots=True)
class Tally:
    """The number of URLs for each answer.

    Attributes:
        allowed: by robots.txt.
        denied: by robots.txt.
        undecided: for which that could not be decided, lines that are no URL included.
        ending: how the command ended, if not by the end of the input.
    """

    allowed: int = 0
    denied: int = 0
    undecided: int = 0
    ending: str = ""
    started_mono: float = field(default_factory=time.monotonic)

    def count(self, verdict: Verdict) -> None:
        """Add a verdict."""
        if verdict.allowed:
            self.allowed += 1
        elif verdict.reason in UNDECIDED:
            self.undecided += 1
        else:
            self.denied += 1

    def line(self) -> Text:
        """Return the tally as one line."""
        judged = self.allowed + self.denied + self.undecided
        elapsed_s = time.monotonic() - self.started_mono
        counts = f"{self.allowed:,} allowed, {self.denied:,} denied, {self.undecided:,} could not be decided"
        return plain(f"{judged:,} URLs in {elapsed_s:.1f} s: {counts}{self.ending and f'; {self.ending}'}")


async def filter_stdin(options: GateOptions, err: Console, rejected: Path | None, max_pending: int) -> int:
    """Copy the allowed URLs from standard input to standard output, and return the exit code.

    Allowed URLs are written unchanged; every other line goes to ``rejected``, followed by a tab and the reason. A
    summary is always written to ``err``.
    """
    tally = Tally()
    with ExitStack() as stack:
        stack.callback(lambda: err.print(tally.line(), soft_wrap=True))
        try:
            others = nullcontext() if rejected is None else _opened(rejected)
            stdin, stdout = descriptor(sys.stdin), descriptor(sys.stdout)
            out, aside = stack.enter_context(closing(OutputWriter(stdout))), stack.enter_context(others)
            stack.enter_context(_progress(tally, err, seen=os.isatty(stdout)))
            async with options.gate() as gate:
                await filter_lines(gate, stdin, out, aside, tally, max_pending)
        except BrokenPipeError:
            tally.ending = "stopped, because the output was closed"
            return BROKEN_PIPE
        except OSError as error:
            tally.ending = f"stopped by an error: {printable(str(error))}"
            return 2
        except asyncio.CancelledError:
            tally.ending = "interrupted"
            raise
    return 2 if tally.undecided else 0


async def filter_lines(
    gate: AgentView, source_fd: int, out: OutputWriter, rejected: OutputWriter | None, tally: Tally, max_pending: int
) -> None:
    """Judge every line of ``source_fd``, and write each to its writer as soon as it is decided; raises OSError."""
    writers = [writer for writer in (out, rejected) if writer is not None]
    try:
        async with aclosing(gate.filter(lines(source_fd), key=_url, max_pending=max_pending)) as judged:
            async for line, verdict in judged:
                tally.count(verdict)
                if verdict.allowed:
                    await out.write(line + b"\n")
                elif rejected is not None:
                    await rejected.write(b"%b\t%b\n" % (line, verdict.reason.encode()))
    except BaseException:  # verdicts so far are written, unless that takes long
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await _flush(writers)
        raise
    await _flush(writers)


async def _flush(writers: list[OutputWriter]) -> None:
    for writer in writers:
        await writer.flush()


def _url(line: bytes) -> str:
    """Return the line as text; empty, and so no URL, if it was cut off."""
    return line.decode("utf-8", "surrogateescape") if len(line) <= MAX_LINE_BYTES else ""


@contextmanager
def _opened(path: Path) -> Generator[OutputWriter, None, None]:
    with path.open("wb", buffering=0) as file, closing(OutputWriter(file.fileno())) as writer:
        yield writer


@contextmanager
def _progress(tally: Tally, err: Console, *, seen: bool) -> Generator[None, None, None]:
    """Show the growing tally, unless the terminal already shows the URLs themselves."""
    if not err.is_terminal or seen:
        yield
        return
    with Live(get_renderable=tally.line, console=err, refresh_per_second=8, transient=True):
        yield

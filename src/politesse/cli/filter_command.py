"""``politesse filter``: reads URLs from standard input, and writes the allowed URLs to standard output."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import ExitStack, aclosing, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from politesse._base.text import counted, printable
from politesse.cli.check_command import reason_of
from politesse.cli.console import BROKEN_PIPE, MAX_LINE_BYTES, OutputWriter, descriptor, lines, plain, say
from politesse.verdict import UNDECIDED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from politesse import AgentView, Verdict
    from politesse.cli.running import GateOptions

_ALLOWED, _DISALLOWED, _UNDECIDED = "allowed", "disallowed", "could not be decided"
_LAST_FLUSH_S: Final = 1.0
_MAX_REASONS: Final = 10
_MAX_SHOWN: Final = 200  # the URL or line of a reason is cut to this many characters


@dataclass(slots=True)
class Tally:
    """The number of URLs for each answer.

    Attributes:
        counts: maps each answer to its number of URLs; a line that is not a URL counts as undecided.
        reasons: the reasons for the first ten undecided answers. The key is the URL of the robots.txt, or the line if
            the line is not a URL.
        ending: why the command ended before the end of the input; else empty.
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    ending: str = ""
    started_mono: float = field(default_factory=time.monotonic)

    def count(self, verdict: Verdict) -> None:
        """Add a verdict."""
        answer = _ALLOWED if verdict else _UNDECIDED if verdict.reason in UNDECIDED else _DISALLOWED
        self.counts[answer] += 1
        if answer is _UNDECIDED and len(self.reasons) < _MAX_REASONS:
            where = verdict.url if verdict.source is None else verdict.source.robots_url
            self.reasons[printable(where[:_MAX_SHOWN])] = reason_of(verdict)

    def summary(self) -> Text:
        """Return the tally as one line, and below it the reasons why some URLs could not be decided."""
        elapsed_s = time.monotonic() - self.started_mono
        counts = ", ".join(f"{self.counts[answer]:,} {answer}" for answer in (_ALLOWED, _DISALLOWED, _UNDECIDED))
        judged, ending = counted(self.counts.total(), "URL"), self.ending and f"; {self.ending}"
        reasons = [f"\n  {where}: {reason}" for where, reason in self.reasons.items()]
        more = ["\n  ..."] if len(reasons) == _MAX_REASONS else []
        return plain("".join([f"{judged} in {elapsed_s:.1f} s: {counts}{ending}", *reasons, *more]))


async def filter_stdin(options: GateOptions, err: Console, rejected: Path | None) -> int:
    """Copy the allowed URLs from standard input to standard output, and return the exit code.

    Allowed URLs are written unchanged; every other line goes to ``rejected``, followed by a tab and the reason. A
    summary is always written to ``err``.
    """
    tally = Tally()
    with ExitStack() as stack:
        stack.callback(lambda: say(err, tally.summary()))
        try:
            others = nullcontext() if rejected is None else _opened(rejected)
            stdin, stdout = descriptor(sys.stdin), descriptor(sys.stdout)
            out, aside = stack.enter_context(closing(OutputWriter(stdout))), stack.enter_context(others)
            async with options.gate() as gate:
                await filter_lines(gate, stdin, out, aside, tally)
        except BrokenPipeError:
            tally.ending = "stopped, because the output was closed"
            return BROKEN_PIPE
        except OSError as error:
            tally.ending = f"stopped by an error: {printable(str(error))}"
            return 2
        except asyncio.CancelledError:
            tally.ending = "interrupted"
            raise
    return 2 if tally.counts[_UNDECIDED] else 0


async def filter_lines(
    gate: AgentView, source_fd: int, out: OutputWriter, rejected: OutputWriter | None, tally: Tally
) -> None:
    """Judge every line of ``source_fd``, and write it to ``out`` or ``rejected`` when decided; raises OSError."""
    writers = [writer for writer in (out, rejected) if writer is not None]
    try:
        async with aclosing(gate.filter(url_lines(source_fd), key=url_of)) as judged:
            async for line, verdict in judged:
                tally.count(verdict)
                if verdict.allowed:
                    await out.write(line + b"\n")
                elif rejected is not None:
                    await rejected.write(b"%b\t%b\n" % (line, verdict.reason.encode()))
    except BaseException:  # try for a short time to write the verdicts so far
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await _flush(writers)
        raise
    await _flush(writers)


async def url_lines(source_fd: int) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a list of URLs, without the comments, which begin with ``#``."""
    async with aclosing(lines(source_fd)) as given:
        async for line in given:
            if not line.startswith(b"#"):
                yield line


async def _flush(writers: list[OutputWriter]) -> None:
    for writer in writers:
        await writer.flush()


def url_of(line: bytes) -> str:
    """Return the line as text; empty for a line that was cut off, because such a line is not a URL."""
    return line.decode("utf-8", "surrogateescape") if len(line) <= MAX_LINE_BYTES else ""


@contextmanager
def _opened(path: Path) -> Generator[OutputWriter, None, None]:
    with path.open("wb", buffering=0) as file, closing(OutputWriter(file.fileno())) as writer:
        yield writer

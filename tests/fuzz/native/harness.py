"""The C of the compiled core, without Python and under sanitizers.

Invariant: for all octets, and whichever allocation fails, no read or write is out of bounds, nothing leaks, nothing is
undefined, and a decision names a rule that exists. A small budget allows nothing that a large one disallows.

Input: as for ``matching``; the line for the crawler is another form of the target.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from zlib import crc32

from politesse import _native
from politesse.robots.pattern import FOLDED, NORMALISED, PLAIN
from tests.fuzz import native_reference
from tests.fuzz.campaign import MAX_S_PER_INPUT, Outcome
from tests.fuzz.mutation import mutants
from tests.fuzz.target import Target

SANITIZED: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
_STRICT: Final = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
_COUNTED: Final = tuple(f"-D{name}=counted_{name}" for name in ("malloc", "calloc", "realloc", "free"))
SOURCES: Final = Path(_native.__file__).parent
_FORMS: Final = b"".join(
    bytes(octet in table for table in (PLAIN, *form[:3]) for octet in range(256)) + bytes(form[3:])
    for form in (NORMALISED, FOLDED)
)
_BATCH: Final = 200
_BATCH_S: Final = 120
_MOST_OCTETS: Final = 500 * 1024


@cache
def compiler() -> str | None:
    """Return a C compiler that has the sanitizers, or None."""
    found = filter(None, map(shutil.which, ("gcc", "cc")))
    program = b"int main(void) { return 0; }"
    return next((one for one in found if not _failure([one, *SANITIZED, "-xc", "-", "-o", "/dev/null"], program)), None)


def built(directory: Path, options: Sequence[str] = SANITIZED) -> str:
    """Build the harness; return its path."""
    command = [str(compiler()), *_STRICT, f"-I{SOURCES}", *options]
    objects = [str(directory / f"{name}.o") for name in ("scan", "rules")]
    for made in objects:
        report = _failure([*command, *_COUNTED, "-c", str(SOURCES / Path(made).with_suffix(".c").name), "-o", made])
        assert not report, report
    program = str(directory / "harness")
    report = _failure([*command, str(Path(__file__).with_suffix(".c")), *objects, "-o", program])
    assert not report, report
    return program


def fault(command: Sequence[str], inputs: Iterable[bytes], timeout_s: float = _BATCH_S) -> str:
    """Have a harness try inputs; return its report of a fault, or an empty text."""
    return _failure(command, _FORMS + b"".join(map(_sent, inputs)), timeout_s)


def _failure(command: Sequence[str], octets: bytes = b"", timeout_s: float = _BATCH_S) -> str:
    """Run a command; return how it failed, or an empty text."""
    try:
        done = subprocess.run(command, input=octets, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"took more than {timeout_s} s"
    return f"exit code {done.returncode}: {done.stderr.decode(errors='replace')}" if done.returncode else ""


def _sent(octets: bytes) -> bytes:
    written, _, rest = octets[1:].partition(b"\n")
    path, _, body = rest.partition(b"\n")
    return struct.pack("=4I", crc32(octets), *map(len, (written, path, body))) + written + path + body


def generated(count: int, seed: int) -> Iterator[bytes]:
    """Yield mutations of the corpus; in some of them a piece comes very often."""
    chance = random.Random(seed)
    for octets in mutants(TARGET, count, seed):
        start = chance.randrange(octets.find(b"\n") + chance.choice((20, len(octets) + 2)))  # of the target; or of all
        piece = chance.choice((octets[-40:], octets[start:], *TARGET.words)) or b"*"
        length = chance.choice((2_000, 20_000, _MOST_OCTETS)) if chance.random() < 1 / 20 else 0
        yield (octets[:start] + piece * (length // len(piece)) + octets[start:])[: TARGET.max_octets]


_directory: Final = cache(tempfile.TemporaryDirectory)


@cache
def program() -> str:
    """Build the harness once; return its path."""
    return built(Path(_directory().name))


def check(octets: bytes) -> None:
    """Hold the C to the invariant, with each allocation failing."""
    report = fault([program(), "--failures"], [octets], MAX_S_PER_INPUT)
    assert not report, report


def fuzz(_: Target, seconds: int, output: Path) -> Outcome:
    """Fuzz for some time; findings go to ``output``. In every fourth batch allocations fail."""
    output.mkdir(parents=True, exist_ok=True)
    end, batches, report, found = time.monotonic() + seconds, 0, "", list[Path]()
    while not report and time.monotonic() < end:
        batch, command = list(generated(_BATCH, time.time_ns())), [program(), "--failures"][: 1 + (batches % 4 == 0)]
        report = fault(command, batch)
        batches += 1
        for octets in batch if report else ():
            if fault(command, [octets], MAX_S_PER_INPUT):
                found.append(output / f"{crc32(octets):08x}")
                found[-1].write_bytes(octets)
    (output / "log.txt").write_text(report, encoding="utf-8")
    return Outcome(batches * _BATCH, 0, 0, 0, tuple(found), bool(report), output / "log.txt")


TARGET: Final = Target(
    name="native",
    check=check,
    words=(*native_reference.TARGET.words, b"\x00", b"\r", b"\n\r", b"\xff", b"Disallow: /%4\n", b"Allow: *%4*%5$\n"),
    max_octets=_MOST_OCTETS,
    seeds="matching",
    fuzz=fuzz,
)

"""The C of the compiled core, without Python and under sanitizers.

Invariant: for all octets, and whichever allocation fails, no read or write is out of bounds, nothing leaks, nothing is
undefined, and a decision names a rule that exists. A small budget allows nothing that a large one disallows.

Input: as for ``matching``; the line for the crawler is another form of the target.
"""

import random
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final
from zlib import crc32

import politesse
from politesse.robots.pattern import FOLDED, NORMALISED, PLAIN
from tests.fuzz import native_reference
from tests.fuzz.campaign import MAX_S_PER_INPUT, Outcome
from tests.fuzz.target import Target, mutants

SANITIZED: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
_STRICT: Final = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
_COUNTED: Final = tuple(f"-D{name}=counted_{name}" for name in ("malloc", "calloc", "realloc", "free"))
SOURCES: Final = Path(politesse.__file__).parent / "_native"
_FORMS: Final = b"".join(
    bytes(
        octet in table
        for table in (PLAIN, form.in_path.kept, form.in_path.decoded, form.in_query.decoded)
        for octet in range(256)
    )
    + bytes([bool(form.in_path.decoded)])
    for form in (NORMALISED, FOLDED)
)
_LIBRARY: Final = ("forms", "rules", "scan")
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
    objects = [*_COUNTED, "-c", *(str(SOURCES / f"{name}.c") for name in _LIBRARY)]
    for step in (
        objects,
        [*(f"{name}.o" for name in _LIBRARY), str(Path(__file__).with_suffix(".c")), "-o", "harness"],
    ):
        report = _failure([*command, *step], directory=directory)
        assert not report, report
    return str(directory / "harness")


def fault(command: Sequence[str], inputs: Iterable[bytes], timeout_s: float = _BATCH_S) -> str:
    """Have a harness try inputs; return its report of a fault, or an empty text."""
    return _failure(command, _FORMS + b"".join(map(_sent, inputs)), timeout_s)


def _failure(
    command: Sequence[str], octets: bytes = b"", timeout_s: float = _BATCH_S, directory: Path | None = None
) -> str:
    """Run a command; return how it failed, or an empty text."""
    try:
        subprocess.run(command, input=octets, capture_output=True, timeout=timeout_s, check=True, cwd=directory)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return f"{error}\n{error.stderr.decode(errors='replace')}"
    return ""


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


def check(octets: bytes) -> None:
    """Hold the C to the invariant, with each allocation failing."""
    with tempfile.TemporaryDirectory() as directory:
        report = fault([built(Path(directory)), "--failures"], [octets], MAX_S_PER_INPUT)
    assert not report, report


def fuzz(_: Target, seconds: int, output: Path) -> Outcome:
    """Fuzz for some time; the first finding goes to ``output``. In every fourth batch allocations fail."""
    findings, log = output / "findings", output / "log.txt"
    findings.mkdir(parents=True, exist_ok=True)
    program, end, batches, report, found = built(output), time.monotonic() + seconds, 0, "", list[bytes]()
    while not report and time.monotonic() < end:
        batch, command = list(generated(_BATCH, time.time_ns())), [program, "--failures"][: 1 + (batches % 4 == 0)]
        report = fault(command, batch)
        singly = (octets for octets in batch if report and fault(command, [octets], MAX_S_PER_INPUT))
        found = list(islice(singly, 1))
        batches += 1
    log.write_text(report, encoding="utf-8")
    for octets in found:
        (findings / f"{crc32(octets):08x}").write_bytes(octets)
    return Outcome(batches * _BATCH, 0, 0, 0, tuple(findings.iterdir()), bool(report), log)


TARGET: Final = Target(
    name="native",
    check=check,
    words=(
        *native_reference.TARGET.words,
        b"\x00",
        b"\r",
        b"\n\r",
        b"\xff",
        b"Disallow: /%4\n",
        b"Allow: *%4*%5$\n",
        b"%%32%46",
        b"Allow: /\xff%/index.html",
        b"\xc2\xa0",
        b"\xe2\x80\xa0",
    ),
    max_octets=_MOST_OCTETS,
    seeds="matching",
    fuzz=fuzz,
)

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from politesse.cli.console import MAX_LINE_BYTES, OutputWriter, lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


async def _lines_of(reader: int) -> list[bytes]:
    return [line async for line in lines(reader)]


async def _lines(pipe: tuple[int, int], octets: bytes) -> list[bytes]:
    """Write from a thread: a pipe holds less than some of these texts."""
    reader, writer = pipe

    def write() -> None:
        left = octets
        while left:
            left = left[os.write(writer, left) :]
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    found = await _lines_of(reader)
    thread.join()
    return found


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb", [b"a", b"b"]),
        (b"\n \n\r\n  a b \t\n\n", [b"a b"]),
        (b"\xff\x00\n", [b"\xff\x00"]),
    ],
)
async def test_lines_come_without_their_ends_and_none_that_are_empty(
    pipe: tuple[int, int], octets: bytes, expected: list[bytes]
) -> None:
    assert await _lines(pipe, octets) == expected


async def test_lines_are_whole_wherever_a_block_ends(pipe: tuple[int, int]) -> None:
    expected = [b"line %d%b" % (n, b"x" * (n % 97)) for n in range(20_000)]
    assert await _lines(pipe, b"\n".join(expected)) == expected


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_line_without_end_is_cut_off_and_the_next_one_is_whole(pipe: tuple[int, int], end: bytes) -> None:
    long = b"x" * (20 * MAX_LINE_BYTES)
    found = await _lines(pipe, b"before\n" + long + b"\nafter\n" + long + end)
    cut = long[: MAX_LINE_BYTES + 1]
    assert found == [b"before", cut, b"after", cut]


async def test_a_line_is_there_before_the_next_one_is_written(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    source = lines(reader)
    os.write(writer, b"first\nsec")
    assert await anext(source) == b"first"
    os.write(writer, b"ond\n")
    assert await anext(source) == b"second"
    os.close(writer)
    assert [line async for line in source] == []


async def test_output_writes_everything_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    expected = [b"line %d" % n for n in range(50_000)]
    reading = asyncio.create_task(_lines_of(reader))
    with closing(OutputWriter(writer)) as output:
        for line in expected:
            await output.write(line + b"\n")
        await output.flush()
    os.close(writer)
    assert await reading == expected


async def test_output_delays_its_callers_while_nobody_reads(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    written = 0

    async def write() -> None:
        nonlocal written
        with closing(OutputWriter(writer)) as output:
            for _ in range(10_000):
                await output.write(b"x" * 1_023 + b"\n")
                written += 1
            await output.flush()
        os.close(writer)

    writing = asyncio.create_task(write())
    before = -1
    while written > before:
        before = written
        await asyncio.sleep(0.01)
    assert written < 10_000
    assert len(await _lines_of(reader)) == 10_000
    await writing


async def test_output_raises_once_the_reader_is_gone(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    with closing(OutputWriter(writer)) as output:
        await output.write(b"x\n")
        with pytest.raises(BrokenPipeError):
            await output.flush()
        with pytest.raises(BrokenPipeError):
            await output.write(b"y\n")

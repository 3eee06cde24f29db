"""``politesse filter``, and the reader and writer of its streams."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

import pytest

import politesse as package
from politesse.cli.console import MAX_LINE_BYTES, OutputWriter, descriptor, lines
from tests.tools.cli.command import COMMAND, Origin, politesse, serving, start


@pytest.mark.full
async def test_ten_thousand_urls_of_several_origins_are_all_sorted(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    async with AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(serving(Origin())) for _ in range(5)]
        allowed = [f"{origins[n % 5].base}/public/{n}" for n in range(8_000)]
        denied = [f"{origins[n % 5].base}/private/{n}" for n in range(2_000)]
        urls = sorted([*allowed, *denied], key=lambda url: url[::-1])
        done = await politesse("filter", "--rejected", str(rejected), stdin="\n".join(urls).encode())
    assert done.code == 0
    assert sorted(done.out.splitlines()) == sorted(allowed)
    assert sorted(rejected.read_text().splitlines()) == sorted(f"{url}\tdisallow-rule" for url in denied)
    assert [len(origin.requests) for origin in origins] == [1] * 5
    assert "10,000 URLs" in done.err
    assert "8,000 allowed, 2,000 disallowed, 0 could not be decided" in done.err


async def test_undecided_urls_exit_2_and_are_not_lost(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    async with serving(Origin()) as well, serving(Origin(status=503)) as ill, serving(Origin(status=429)) as busy:
        urls = [f"{well.base}/", f"{ill.base}/", f"{busy.base}/"]
        done = await politesse("filter", "--rejected", str(rejected), stdin="\n".join(urls).encode())
    assert (done.code, done.out.splitlines()) == (2, urls[:1])
    assert set(rejected.read_text().splitlines()) == {f"{urls[1]}\tunreachable", f"{urls[2]}\ttoo-many-requests"}
    assert well.requests[0].headers["User-Agent"] == f"politesse/{package.__version__} (robots.txt check)"


async def test_comments_are_skipped_and_the_reason_of_a_dead_host_is_told_once() -> None:
    async with serving(Origin()) as origin:
        urls = [f"{origin.base}/", "# dead since 2025", "http://dead.invalid/a", "http://dead.invalid/b"]
        done = await politesse("filter", stdin="\n".join(urls).encode())
    assert (done.code, done.out.splitlines()) == (2, urls[:1])
    told, reason = done.err.splitlines()
    assert told.startswith("3 URLs in ")
    assert told.endswith(": 1 allowed, 0 disallowed, 2 could not be decided")
    assert reason.startswith("  http://dead.invalid/robots.txt: robots.txt is unreachable")
    assert ": dns: " in reason


async def test_lines_that_are_no_url_are_rejected_and_the_octets_of_a_url_pass_as_they_came(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    wrong = [b"no url", b"ftp://example.com/", b"http://", b"http://a\tb/", b"\xff\xfe", b"http://127.0.0.1/\xe9"]
    wrong.append(b"[bold]x[/bold]")
    async with serving(Origin()) as origin:
        url = f"{origin.base}/café%C3%a9?q=\N{SNOWMAN}".encode()
        done = await politesse(
            "filter", "--rejected", str(rejected), stdin=b"\r\n".join([*wrong, b"", b" \t", b"  " + url + b"\t"])
        )
        assert done.code == 2
        assert done.out.encode("utf-8", "surrogateescape") == url + b"\n"
        assert set(rejected.read_bytes().splitlines()) == {line + b"\tinvalid-url" for line in wrong}

        long = f"{origin.base}/{'x' * 1_000_000}"  # it is cut off, also without an end
        stdin = f"{origin.base}/a\n{long}\n{origin.base}/b\n{long}".encode()
        done = await politesse("filter", "--rejected", str(rejected), stdin=stdin)
    assert (done.code, set(done.out.splitlines())) == (2, {f"{origin.base}/a", f"{origin.base}/b"})
    assert rejected.read_text().splitlines() == [f"{long[: MAX_LINE_BYTES + 1]}\tinvalid-url"] * 2


async def test_an_answer_comes_before_the_input_ends_whatever_another_server_does_and_ctrl_c_ends_it() -> None:
    async with serving(Origin(status=None)) as silent, serving(Origin(), "localhost") as origin:
        process = await start("filter", "--timeout", "100")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{silent.base}/\n{origin.base}".encode())
        for n in range(3):
            process.stdin.write(f"/{n}\n{origin.base}".encode())  # and a part of the next line
            assert await process.stdout.readline() == f"{origin.base}/{n}\n".encode()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        err = (await process.stderr.read()).decode()
        assert await process.wait() == 130
        process.stdin.close()
    [summary] = err.splitlines()
    assert summary.startswith("3 URLs in")
    assert summary.endswith("; interrupted")


@pytest.mark.full
async def test_closed_stdout_ends_it_quietly_while_the_input_goes_on() -> None:
    async def feed(stdin: asyncio.StreamWriter, line: bytes) -> None:
        while True:
            stdin.write(line * 1_000)
            await stdin.drain()

    async with serving(Origin()) as origin:
        process = await start("filter")
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(feed(process.stdin, f"{origin.base}/page\n".encode()))
        await process.stdout.readline()
        process.stdout._transport.close()  # type: ignore[attr-defined]  # as `| head -1` does
        err = (await process.stderr.read()).decode()
        assert await process.wait() == 141
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    [summary] = err.splitlines()
    assert summary.endswith("; stopped, because the output was closed")


def test_a_stream_that_is_closed_is_an_error() -> None:
    with pytest.raises(OSError, match="a standard stream is closed"):
        descriptor(None)


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="a shell's redirections")
@pytest.mark.parametrize("redirection", ["<&- >&-", "<&-", ">&-"])
def test_without_input_or_output_it_exits_2(redirection: str) -> None:
    command = " ".join([*COMMAND, "filter", redirection])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("stopped by an error: [Errno 9] a standard stream is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
async def test_a_full_disk_exits_2() -> None:
    async with serving(Origin()) as origin:
        done = await politesse("filter", "--rejected", "/dev/full", stdin=f"{origin.base}/private/\n".encode())
    assert (done.code, "No space left on device" in done.err) == (2, True)


# The streams.


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with suppress(OSError):
            os.close(fd)


async def test_output_writes_everything_in_order_and_delays_its_callers_while_nobody_reads(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    expected = [b"line %d%b" % (n, b"x" * 500) for n in range(5_000)]
    written = 0

    async def write() -> None:
        nonlocal written
        with closing(OutputWriter(writer)) as output:
            for line in expected:
                await output.write(line + b"\n")
                written += 1
            await output.flush()
        os.close(writer)

    writing = asyncio.create_task(write())
    before = -1
    while written > before:
        before = written
        await asyncio.sleep(0.01)
    assert written < 5_000
    assert [line async for line in lines(reader)] == expected
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

import asyncio
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import politesse as package
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Origin, politesse, serving, start


@pytest.mark.full
async def test_ten_thousand_urls_of_several_origins_are_all_sorted(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    async with AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(serving(Origin())) for _ in range(5)]
        allowed = [f"{origins[n % 5].base}/public/{n}" for n in range(8_000)]
        denied = [f"{origins[n % 5].base}/private/{n}" for n in range(2_000)]
        urls = [*allowed, *denied]
        urls.sort(key=lambda url: url[::-1])
        done = await politesse("filter", "--rejected", str(rejected), stdin="\n".join(urls).encode())
    assert done.code == 0
    assert sorted(done.out.splitlines()) == sorted(allowed)
    assert sorted(rejected.read_text().splitlines()) == sorted(f"{url}\tdisallow-rule" for url in denied)
    assert [len(origin.requests) for origin in origins] == [1] * 5
    assert {origin.requests[0].headers["User-Agent"] for origin in origins} == {
        f"politesse/{package.__version__} (robots.txt check)"
    }
    assert "10,000 URLs" in done.err
    assert "8,000 allowed, 2,000 disallowed, 0 could not be decided" in done.err


async def test_undecided_urls_exit_2_and_are_not_lost(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    async with serving(Origin()) as well, serving(Origin(status=503)) as ill, serving(Origin(status=429)) as busy:
        urls = [f"{well.base}/", f"{ill.base}/", f"{busy.base}/"]
        done = await politesse("filter", "--rejected", str(rejected), stdin="\n".join(urls).encode())
    assert done.code == 2
    assert done.out.splitlines() == urls[:1]
    assert set(rejected.read_text().splitlines()) == {f"{urls[1]}\tunreachable", f"{urls[2]}\ttoo-many-requests"}


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


async def test_lines_that_are_no_url_are_rejected_as_they_came(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    lines = [
        b"no url",
        b"ftp://example.com/",
        b"http://",
        b"http://a\tb/",
        b"\xff\xfe",
        b"http://127.0.0.1/\xe9",
        b"[bold]x[/bold]",
    ]
    async with serving(Origin()) as origin:
        url = f"{origin.base}/a".encode()
        done = await politesse("filter", "--rejected", str(rejected), stdin=b"\r\n".join([*lines, b"", url]))
    assert done.code == 2
    assert done.out.encode() == url + b"\n"
    assert set(rejected.read_bytes().splitlines()) == {line + b"\tinvalid-url" for line in lines}


async def test_a_line_without_end_is_cut_off_and_rejected(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.tsv"
    async with serving(Origin()) as origin:
        stdin = f"{origin.base}/{'x' * 1_000_000}\n{origin.base}/a\n".encode()
        done = await politesse("filter", "--rejected", str(rejected), stdin=stdin)
    assert done.code == 2
    assert done.out == f"{origin.base}/a\n"
    (line,) = rejected.read_text().splitlines()
    assert line.startswith(f"{origin.base}/xxx")
    assert line.endswith("\tinvalid-url")
    assert len(line) < 70_000


async def test_octets_of_an_allowed_url_are_passed_on_as_they_came() -> None:
    async with serving(Origin()) as origin:
        url = f"{origin.base}/café%C3%a9?q=\N{SNOWMAN}".encode()
        done = await politesse("filter", stdin=url)
    assert done.out.encode("utf-8", "surrogateescape") == url + b"\n"


async def test_an_answer_comes_before_the_input_ends() -> None:
    async with serving(Origin()) as origin:
        process = await start("filter")
        assert process.stdin is not None
        assert process.stdout is not None
        for n in range(3):
            process.stdin.write(f"{origin.base}/{n}\n".encode())
            assert await process.stdout.readline() == f"{origin.base}/{n}\n".encode()
        _, err = await process.communicate(b"")
    assert process.returncode == 0
    assert b"3 URLs" in err


@pytest.mark.realtime
async def test_a_server_that_never_answers_holds_up_its_own_urls_only() -> None:
    async with serving(Origin(status=None)) as silent, serving(Origin()) as origin:
        process = await start("filter", "--timeout", "2")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{silent.base}/\n{origin.base}/\n".encode())
        assert await process.stdout.readline() == f"{origin.base}/\n".encode()
        await process.communicate(b"")
    assert process.returncode == 2


@pytest.mark.full
async def test_closed_stdout_ends_it_quietly_while_the_input_goes_on() -> None:
    async with serving(Origin()) as origin:
        process = await start("filter")
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(_feed(process.stdin, f"{origin.base}/page\n".encode()))
        await process.stdout.readline()
        process.stdout._transport.close()  # type: ignore[attr-defined]  # as `| head -1` does
        err = (await process.stderr.read()).decode()
        assert await process.wait() == 141
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    (summary,) = err.splitlines()
    assert summary.endswith("; stopped, because the output was closed")


@pytest.mark.full
async def test_interrupt_ends_it_cleanly_while_it_waits_for_input() -> None:
    async with serving(Origin()) as origin:
        process = await start("filter")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{origin.base}/\n".encode())
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        err = (await process.stderr.read()).decode()
        assert await process.wait() == 130
        process.stdin.close()
    (summary,) = err.splitlines()
    assert summary.startswith("1 URL in")
    assert summary.endswith("; interrupted")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell's redirections")
@pytest.mark.parametrize("redirection", first_of(1, ["<&-", ">&-", "<&- >&-"]))
def test_without_input_or_output_it_exits_2(redirection: str) -> None:
    command = " ".join([*COMMAND, "filter", redirection])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("stopped by an error: [Errno 9] a standard stream is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
async def test_a_full_disk_exits_2() -> None:
    async with serving(Origin()) as origin:
        done = await politesse("filter", "--rejected", "/dev/full", stdin=f"{origin.base}/private/\n".encode())
    assert done.code == 2
    assert "No space left on device" in done.err


async def _feed(stdin: asyncio.StreamWriter, line: bytes) -> None:
    while True:
        stdin.write(line * 1_000)
        await stdin.drain()

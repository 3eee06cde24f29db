"""``politesse audit``: what it prints, and how it ends."""

import asyncio
import json
import os
import pty
import signal
from pathlib import Path

import pytest

from tests.tools.audit.conftest import ROBOTS, SITE, combined
from tests.tools.cli.command import COMMAND, Done, politesse, read_terminal, start

LINES = [combined(0, "/robots.txt"), combined(10, "/private/<b>"), combined(20, "/b"), combined(21, "/c")]
WHOLE = "logs with whole seconds (a pause is too short only if it lacks more than a second)"
LOG = ("\n".join(LINES) + "\n").encode()


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "robots.txt").write_text(ROBOTS)
    return ["--agent", "ExampleBot", "--site", SITE, "--robots", str(tmp_path / "robots.txt")]


async def test_findings_are_printed_the_worst_first(given: list[str], tmp_path: Path) -> None:
    (tmp_path / "access.log").write_bytes(LOG)
    done = await politesse("audit", str(tmp_path / "access.log"), *given)
    assert done == Done(1, done.out, "")
    assert done.out.splitlines() == [
        "ExampleBot at example.com: 2 findings in 4 requests, 1 for robots.txt",
        "  forbidden page requested: 1",
        f"    2026-11-26T10:00:10Z {SITE}/private/<b> (line 2: Disallow: /private), {tmp_path}/access.log:2",
        "  page requested too soon after the request before: 1",
        f"    2026-11-26T10:00:21Z {SITE}/c (1.0000 s after its end, not 5 (crawl-delay)), {tmp_path}/access.log:4",
        "2 findings in 4 requests, 4 lines, 1 host",
        f"{WHOLE}: 1, first {tmp_path}/access.log",
    ]


async def test_polite_log_from_standard_input_ends_with_0(given: list[str]) -> None:
    done = await politesse("audit", "-", *given, stdin=LINES[0].encode())
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("0 findings in 1 request, 1 line, 1 host\n")


async def test_json_has_findings_then_hosts_then_counts(given: list[str]) -> None:
    *findings, host, counts = (await politesse("audit", "-", "--json", *given, stdin=LOG)).records
    assert [(one["kind"], one["url"], one["started"], one["place"]) for one in findings] == [
        ("forbidden page requested", f"{SITE}/private/<b>", "2026-11-26T10:00:10Z", "-:2"),
        ("page requested too soon after the request before", f"{SITE}/c", "2026-11-26T10:00:21Z", "-:4"),
    ]
    assert (host["agent"], host["host"], host["found"], host["requests"]) == ("ExampleBot", "example.com", 2, 4)
    assert (counts["counts"]["lines"], len(counts["notes"])) == (4, 1)


async def test_log_or_option_that_cannot_be_used_ends_with_2() -> None:
    site = ["--site", SITE]
    for problem, stdin, arguments in (
        ("names no host", LOG, []),
        ("no request by OtherBot", LOG, [*site, "--agent", "OtherBot"]),
        ("is empty", b"", site),
        ("has the format", b"x", site),
        ("is unknown", LOG, ["--format", "x"]),
        ("--site", LOG, ["--robots", "robots.txt"]),
        ("/missing", LOG, [*site, "--robots", "/missing"]),
        ("no ledger", LOG, [*site, "--ledger", "/missing"]),
        ("cbcp", LOG, [*site, "--profile", "x"]),
        ("/missing/page.html", LOG, [*site, "--html", "/missing/page.html"]),
    ):
        agent = [] if "--agent" in arguments else ["--agent", "ExampleBot"]
        done = await politesse("audit", "-", *agent, *arguments, stdin=stdin, COLUMNS="200")
        assert (done.code, problem in done.err, "Traceback" in done.err) == (2, True, False), problem
    done = await politesse("audit", "/missing.log", "--agent", "ExampleBot", COLUMNS="200")
    assert (done.code, "/missing.log cannot be read" in done.err) == (2, True)


@pytest.mark.full
async def test_closed_standard_input_ends_with_2(given: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "audit", "-", *given), stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert (process.returncode, b"cannot be read" in err) == (2, True)


@pytest.mark.full
async def test_terminal_shows_the_progress(given: list[str], tmp_path: Path) -> None:
    (tmp_path / "access.log").write_bytes(LOG)
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "audit", str(tmp_path / "access.log"), *given), stdout=asyncio.subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = await asyncio.to_thread(read_terminal, ours, bytearray())
    assert await process.wait() == 1
    assert b"100%" in shown


@pytest.mark.full
async def test_ctrl_c_shows_the_findings_so_far(given: list[str]) -> None:
    process = await start("audit", "-", "--json", *given)
    assert process.stdin is not None
    assert process.stdout is not None
    # Newer lines, so that the first ones leave the window, and more than show the format.
    later = [combined(400 + 10 * n, "/d") for n in range(150)]
    process.stdin.write(LOG + "\n".join(later).encode() + b"\n")
    await process.stdin.drain()
    first = await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = await process.communicate()
    assert process.returncode == 130
    assert json.loads(first)["url"] == f"{SITE}/private/<b>"
    assert 5 <= json.loads(rest.splitlines()[-1])["counts"]["lines"] <= 154
    assert b"interrupted" in err

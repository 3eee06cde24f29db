"""``politesse guide``: the list, a guide in a pipe, and a guide in a terminal with and without a pager."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path
from typing import Final

import pytest

from politesse.cli import guide_command
from politesse.cli.guide_command import TOPICS
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Done, politesse, read_terminal, run_process

GUIDES: Final = Path(guide_command.__file__).parents[1] / "guides"
ELSEWHERE: Final = {"COLUMNS", "LESS", "LINES", "NO_COLOR", "PAGER"}  # settings of the terminal that runs the tests
STYLE = re.compile(r"\x1b\[[\d;]*m")


async def in_terminal(size: tuple[int, int], /, *arguments: str, **settings: str) -> str:
    """Return the output of the command in a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        | {"TERM": "xterm-256color"}
        | settings,
        start_new_session=True,
    )
    os.close(theirs)
    shown = await asyncio.to_thread(read_terminal, ours, bytearray())
    assert await process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


async def test_without_a_topic_each_has_a_line_with_the_title_of_its_guide() -> None:
    done = await politesse("guide")
    listed = dict(re.split(" {2,}", line, maxsplit=1) for line in done.out.splitlines())
    assert (done.code, done.err) == (0, "")
    assert tuple(listed) == TOPICS
    assert all((GUIDES / f"{topic}.md").read_text().startswith(f"# {title}\n\n") for topic, title in listed.items())


async def test_in_a_pipe_a_guide_is_its_markdown_with_commands_for_links() -> None:
    done = await run_process("guide", "clients")
    text = (GUIDES / "clients.md").read_text()
    assert (done.code, done.err) == (0, "")
    assert "[aiohttp](aiohttp.md)" in text
    assert "aiohttp (`politesse guide aiohttp`)" in done.out
    assert ".md)" not in done.out
    blocks = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
    assert blocks.findall(done.out) == blocks.findall(text)


@pytest.mark.full
async def test_in_a_terminal_the_list_keeps_to_its_width() -> None:
    lines = STYLE.sub("", await in_terminal((24, 60), "guide")).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(TOPICS)


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("see [pacing](pacing.md).", "see pacing (`politesse guide pacing`)."),
        ("([pacing](pacing.md))", "(`politesse guide pacing`)"),
        ("([the pace](pacing.md#host))", "(the pace (`politesse guide pacing`))"),
        ("(see [pacing](pacing.md), too)", "(see pacing (`politesse guide pacing`), too)"),
        ("see [the section](#a-section).", "see the section."),
        ("```text\n[pacing](#host)\n```\n", "```text\n[pacing](#host)\n```\n"),
        ("[a](https://example.com/a.md)", "[a](https://example.com/a.md)"),
        ("```text\n[pacing](pacing.md)\n```\n", "```text\n[pacing](pacing.md)\n```\n"),
    ],
)
async def test_link_to_a_guide_is_a_command(
    link: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guides").mkdir()
    (tmp_path / "guides" / "asking.md").write_text(f"# Asking\n\n{link}\n")
    monkeypatch.setattr(guide_command, "files", lambda _: tmp_path)
    assert await politesse("guide", "asking") == Done(0, f"# Asking\n\n{shown}\n", "")


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("pacng", "There is no guide 'pacng'. Did you mean pacing or pages? `politesse guide` lists all topics."),
        (
            "Private-address",
            "There is no guide 'Private-address'. Did you mean private-addresses? `politesse guide` lists all topics.",
        ),
        ("xyz", "There is no guide 'xyz'. `politesse guide` lists all topics."),
        ("../pacing", "There is no guide '../pacing'. Did you mean pacing? `politesse guide` lists all topics."),
        ("\x1b[31m", "There is no guide '\\x1b[31m'. `politesse guide` lists all topics."),
        ("", "There is no guide ''. `politesse guide` lists all topics."),
    ],
)
async def test_unknown_topic_names_the_nearest(topic: str, message: str) -> None:
    done = await politesse("guide", topic, COLUMNS="200")
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.replace("│", " ").split())


@pytest.mark.full
async def test_in_a_terminal_a_guide_is_the_same_markdown() -> None:
    piped = await run_process("guide", "clients")
    for size, settings in (((1000, 200), {"PAGER": "false"}), ((24, 80), {"PAGER": "cat"})):
        assert STYLE.sub("", await in_terminal(size, "guide", "clients", **settings)) == piped.out


@pytest.mark.full
async def test_guide_longer_than_the_screen_goes_to_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(
        f"#!{sys.executable}\nimport os, sys\nprint(os.environ['LESS'], *sys.argv[1:], len(sys.stdin.read()))"
    )
    pager.chmod(0o755)
    assert (await in_terminal((24, 80), "guide", "pacing", PAGER=f"{pager} -s")).startswith("FRX -s ")
    assert (await in_terminal((24, 80), "guide", "pacing", PAGER=f"{pager}", LESS="M")).startswith("M ")
    assert "Pacing" in await in_terminal((1000, 80), "guide", "pacing", PAGER=f"{pager}")


@pytest.mark.full
async def test_interrupt_is_left_to_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    interrupt = "os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); print(len(sys.stdin.read()) > 1000)"
    pager.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{interrupt}\n")
    pager.chmod(0o755)
    assert await in_terminal((24, 80), "guide", "pacing", PAGER=str(pager)) == "True\n"


@pytest.mark.full
@pytest.mark.parametrize(
    "settings", first_of(1, [{"PAGER": "no-such-pager"}, {"TERM": "dumb", "PAGER": "false"}, {"PAGER": "true"}])
)
async def test_without_a_pager_or_when_it_is_left_nothing_fails(settings: dict[str, str]) -> None:
    shown = await in_terminal((24, 80), "guide", "pacing", **settings)
    assert ("Crawl-delay" in shown) is (settings != {"PAGER": "true"})
    assert "Traceback" not in shown

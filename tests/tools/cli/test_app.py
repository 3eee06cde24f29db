"""The command as a whole, and ``politesse guide`` in a pipe and in a terminal with and without a pager."""

import asyncio
import fcntl
import itertools
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest

import politesse as package
from politesse.cli import guide_command
from politesse.cli.guide_command import TOPICS
from politesse.robots import IMPLEMENTATION
from tests.support.programs import run_code
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Done, politesse, read_terminal, run_process

URL: Final = "http://127.0.0.1/"
GUIDES: Final = Path(guide_command.__file__).parents[1] / "guides"
ELSEWHERE: Final = {"COLUMNS", "LESS", "LINES", "NO_COLOR", "PAGER"}  # settings of the terminal that runs the tests
STYLE: Final = re.compile(r"\x1b\[[\d;]*m")


async def test_a_mistake_in_the_options_exits_2_and_is_reported() -> None:
    for arguments in (
        ["check"],
        ["check", "--agent", "", URL],
        ["check", "--agent", "*", URL],
        ["check", "--agent", "naïve", URL],
        ["check", "--agent", "example:bot", URL],
        ["check", "--agent", "Mozilla/5.0 (compatible; ExampleBot/1.0)", URL],
        ["check", "--timeout", "0", URL],
        ["filter", "--agent", "Mozilla/5.0"],
        ["demo", "--pages", "10"],
        ["unknown"],
    ):
        done = await politesse(*arguments)
        assert (done.code, done.out, "Error" in done.err) == (2, "", True), arguments


async def test_without_a_command_the_help_is_shown_and_lines_of_help_are_filled() -> None:
    done = await politesse()
    assert done.code == 2
    assert all(command in done.out + done.err for command in ("check", "filter", "demo"))
    for command in ("check", "crawl", "demo", "explain", "filter", "guide", "lint"):
        done = await politesse(command, "--help", COLUMNS="80")
        text = done.out.partition("╭")[0].partition("[OPTIONS]")[2]
        for paragraph in re.split(r"\n\s*\n", text)[1:]:
            lines = [line.strip() for line in paragraph.strip().splitlines()]
            for line, following in itertools.pairwise(lines):
                assert len(line) + 1 + len(following.split()[0]) > 78, line


async def test_what_only_a_command_can_do_is_listed_before_the_options_of_its_gate() -> None:
    gate = ["--agent", "--timeout", "--store", "--fleet", "--fleet-prefix", "--config"]
    listed = {"filter": ["--rejected", *gate], "check": ["--page", "--host", *gate, "--json"]}
    for command, options in listed.items():
        done = await politesse(command, "--help", COLUMNS="120")
        assert re.findall(r"^│ (--\S+)", done.out, re.MULTILINE) == [*options, "--help"], command


async def test_version_and_implementation_are_those_of_the_package() -> None:
    version = f"politesse {package.__version__} (rules of robots.txt: {IMPLEMENTATION})\n"
    assert await politesse("--version") == Done(0, version, "")


_WITHOUT = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == sys.argv[1] else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from politesse.cli import main
main()
"""


def _main_without(module: str) -> CompletedProcess[str]:
    """Run the command as it is where ``module`` is not installed."""
    return run_code(_WITHOUT, module, check=False)


@pytest.mark.parametrize("missing", first_of(1, ["typer", "rich"]))
def test_without_its_extra_the_command_names_it(missing: str) -> None:
    done = _main_without(missing)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "politesse: the command needs the extra 'cli'; in a checkout of politesse, run: pip install '.[cli]' "
        f"(No module named {missing!r})\n"
    )


def test_a_fault_of_our_own_is_not_taken_for_a_missing_extra() -> None:
    assert "ModuleNotFoundError" in _main_without("politesse.cli.running").stderr


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
        env={one: os.environ[one] for one in os.environ.keys() - ELSEWHERE} | {"TERM": "xterm-256color"} | settings,
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
    done = await politesse("guide", "clients")
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


LINKS: Final = {
    "see [pacing](pacing.md).": "see pacing (`politesse guide pacing`).",
    "([pacing](pacing.md))": "(`politesse guide pacing`)",
    "([the pace](pacing.md#host))": "(the pace (`politesse guide pacing`))",
    "(see [pacing](pacing.md), too)": "(see pacing (`politesse guide pacing`), too)",
    "see [the section](#a-section).": "see the section.",
    "```text\n[pacing](#host)\n```": "```text\n[pacing](#host)\n```",
    "[a](https://example.com/a.md)": "[a](https://example.com/a.md)",
    "```text\n[pacing](pacing.md)\n```": "```text\n[pacing](pacing.md)\n```",
}


async def test_link_to_a_guide_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guides").mkdir()
    monkeypatch.setattr(guide_command, "files", lambda _: tmp_path)
    for link, shown in LINKS.items():
        (tmp_path / "guides" / "asking.md").write_text(f"# Asking\n\n{link}\n")
        assert await politesse("guide", "asking") == Done(0, f"# Asking\n\n{shown}\n", "")


async def test_unknown_topic_names_the_nearest() -> None:
    for topic, nearest in {
        "pacng": "'pacng'. Did you mean pacing or pages?",
        "Private-address": "'Private-address'. Did you mean private-addresses?",
        "xyz": "'xyz'.",
        "../pacing": "'../pacing'. Did you mean pacing?",
        "\x1b[31m": "'\\x1b[31m'.",
        "": "''.",
    }.items():
        done = await politesse("guide", topic, COLUMNS="200")
        assert (done.code, done.out) == (2, "")
        assert f"There is no guide {nearest} `politesse guide` lists all topics." in done.problem


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
async def test_without_a_pager_or_when_it_is_left_nothing_fails() -> None:
    for settings in ({"PAGER": "no-such-pager"}, {"TERM": "dumb", "PAGER": "false"}, {"PAGER": "true"}):
        shown = await in_terminal((24, 80), "guide", "pacing", **settings)
        assert ("Crawl-delay" in shown) is (settings != {"PAGER": "true"})
        assert "Traceback" not in shown

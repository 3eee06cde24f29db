import itertools
import re
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner

import politesse
from politesse.cli.app import app
from politesse.robots import IMPLEMENTATION
from tests.support.programs import run_code

AGENT = "http://127.0.0.1/"


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "--agent", "", AGENT],
        ["check", "--agent", "*", AGENT],
        ["check", "--agent", "naïve", AGENT],
        ["check", "--agent", "example:bot", AGENT],
        ["check", "--agent", "Mozilla/5.0 (compatible; ExampleBot/1.0)", AGENT],
        ["check", "--timeout", "0", AGENT],
        ["filter", "--agent", "Mozilla/5.0"],
        ["demo", "--pages", "10"],
        ["unknown"],
    ],
)
def test_a_mistake_in_the_options_exits_2_and_is_reported(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error" in done.stderr


def test_without_a_command_the_help_is_shown() -> None:
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 2
    assert all(command in done.output for command in ("check", "filter", "demo"))


def test_version_and_implementation_are_those_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    version = f"politesse {politesse.__version__} (rules of robots.txt: {IMPLEMENTATION})\n"
    assert (done.exit_code, done.stdout) == (0, version)


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


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_names_it(missing: str) -> None:
    done = _main_without(missing)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "politesse: the command needs the extra 'cli'; in a checkout of politesse, run: pip install '.[cli]' "
        f"(No module named {missing!r})\n"
    )


def test_a_fault_of_our_own_is_not_taken_for_a_missing_extra() -> None:
    assert "ModuleNotFoundError" in _main_without("politesse.cli.running").stderr


@pytest.mark.parametrize("command", ["check", "crawl", "demo", "explain", "filter", "guide", "lint"])
def test_lines_of_the_help_are_filled(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    text = done.stdout.partition("╭")[0].partition("[OPTIONS]")[2]
    for paragraph in re.split(r"\n\s*\n", text)[1:]:
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        for line, following in itertools.pairwise(lines):
            assert len(line) + 1 + len(following.split()[0]) > 78, line

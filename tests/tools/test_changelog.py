"""CHANGELOG is short, and names only commands, options, numbers and names that there are."""

import importlib
import re
from pathlib import Path
from typing import Final

from typer.main import get_command

from politesse.cli.app import app
from politesse.cli.guide_command import TOPICS
from politesse.robots import Dialect
from politesse.testing import FAULTS
from tests.support.modules import MODULES

CHANGELOG: Final = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
RELEASE: Final = CHANGELOG.partition("## [0.1.0]")[2]


def test_changelog_has_at_most_150_lines() -> None:
    assert len(CHANGELOG.splitlines()) <= 150


def test_numbers_commands_and_dialects_of_the_release_are_those_that_there_are() -> None:
    [faults] = re.findall(r"with (\d+) `FAULTS`", RELEASE)
    [guides] = re.findall(r"(\d+) guides", RELEASE)
    [commands] = re.findall(r"The command `politesse`: (.*?)\.", RELEASE, re.DOTALL)
    [dialects] = re.findall(r"`Dialect`: (.*?), chosen", RELEASE, re.DOTALL)
    assert (int(faults), int(guides)) == (len(FAULTS), len(TOPICS))
    assert set(re.findall(r"`([\w-]+)`", commands)) == set(getattr(get_command(app), "commands"))  # noqa: B009 - of a group
    assert set(re.findall(r"`(\w+)`", dialects)) == set(Dialect.__members__)


def test_each_class_of_the_release_can_be_imported() -> None:
    modules = ["politesse", *(name for name in MODULES if not re.search(r"\._", name))]
    public = {name for module in modules for name in dir(importlib.import_module(module))}
    assert set(re.findall(r"`(?:[\w.]+\.)?([A-Z][a-z]\w*)(?:\([^`]*\))?`", RELEASE)) - public == set()

"""Docstrings: each module has one, and their examples print what they show."""

import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Final, Literal, get_origin

import pytest

import politesse
from tests.support.modules import HOMES, MODULES


def test_each_module_has_a_docstring() -> None:
    assert [name for name in MODULES if not (importlib.import_module(name).__doc__ or "").strip()] == []


def _has_examples(name: str) -> bool:
    source = inspect.getsourcefile(importlib.import_module(name))  # that of C has none
    return source is not None and ">>> " in Path(source).read_text()


@pytest.mark.parametrize("name", [name for name in ["politesse", *MODULES] if _has_examples(name)])
def test_examples_print_what_they_show(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    printed: list[str] = []
    for examples in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(examples, out=printed.append)
    assert runner.failures == 0, "".join(printed)


def test_the_map_of_the_package_names_each_public_room() -> None:
    head = (politesse.__doc__ or "").split("_base/")[0]
    rooms = {name.split(".")[1] for name in MODULES if "._" not in name} - {"guides"}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", head)} == set()


NAMES: Final = [(module, name) for module in map(importlib.import_module, HOMES) for name in module.__all__]

# A constant has no docstring of its own, and neither has a Literal, which is callable.
PUBLIC: Final = {
    f"{module.__name__}.{name}": value
    for module, name in NAMES
    if callable(value := getattr(module, name)) and get_origin(value) is not Literal
}

# A protocol is what others write: no example of it can run alone.
CLASSES: Final = [
    name for name, value in PUBLIC.items() if isinstance(value, type) and not getattr(value, "_is_protocol", False)
]


def test_public_names_are_documented() -> None:
    assert [name for name, value in PUBLIC.items() if not (value.__doc__ or "").strip()] == []


def test_each_public_class_has_an_example() -> None:
    assert [name for name in CLASSES if ">>> " not in (PUBLIC[name].__doc__ or "")] == []

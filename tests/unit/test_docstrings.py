"""Docstrings: each module has one, and their examples print what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

import politesse
from tests.support.modules import MODULES


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_docstring(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", ["politesse", *MODULES])
def test_examples_print_what_they_show(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    printed: list[str] = []
    for examples in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(examples, out=printed.append)
    assert runner.failures == 0, "".join(printed)


def test_public_names_of_the_package_are_documented() -> None:
    undocumented = [
        name
        for name in politesse.__all__
        if name != "__version__" and not (getattr(politesse, name).__doc__ or "").strip()
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", [name for name in politesse.__all__ if isinstance(getattr(politesse, name), type)])
def test_public_class_has_an_example(name: str) -> None:
    assert ">>> " in (getattr(politesse, name).__doc__ or "")

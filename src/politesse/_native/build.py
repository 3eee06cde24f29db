"""The commands of setuptools that build the compiled core, with the limited API: one binary serves all versions.

A free-threaded Python has no limited API, and setuptools refuses it there, so that its binary serves one version.
``pyproject.toml`` names these commands, and what they build. Nothing else imports this module.
"""

from __future__ import annotations

from sysconfig import get_config_var
from typing import Final

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_IS_LIMITED: Final = not get_config_var("Py_GIL_DISABLED")


class BuildCore(build_ext):
    """Compiles the core."""

    def finalize_options(self) -> None:
        for core in self.distribution.ext_modules or ():
            if isinstance(core, Extension):
                core.py_limited_api = _IS_LIMITED
                core.define_macros = [("Py_LIMITED_API", "0x030b0000")] if _IS_LIMITED else []
        super().finalize_options()


class BuildWheel(bdist_wheel):
    """Names the wheel after the Python versions that it serves."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311" if _IS_LIMITED else False
        super().finalize_options()

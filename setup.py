"""Builds the compiled core of ``politesse.robots``; ``pyproject.toml`` has everything else.

Without a compiler the build goes on without the core, and the rules are decided in Python.
"""

from __future__ import annotations

from sysconfig import get_config_var

from setuptools import Extension, setup

_NATIVE = "src/politesse/_native"
# One binary serves all later versions. A free-threaded Python has no limited API (setuptools refuses it there), so that
# its binary serves one version.
_IS_LIMITED = not get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "politesse._native._core",
            sources=[f"{_NATIVE}/{name}.c" for name in ("forms", "module", "rules", "scan")],
            depends=[f"{_NATIVE}/{name}.h" for name in ("forms", "rules", "scan")],
            define_macros=[("Py_LIMITED_API", "0x030b0000")] if _IS_LIMITED else [],
            py_limited_api=_IS_LIMITED,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if _IS_LIMITED else {},
)

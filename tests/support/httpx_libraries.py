"""httpx and httpx2, for the tests of the behaviour that both must have.

In these tests, the types of httpx stand for those of either library, which have the same attributes.
"""

from importlib import import_module
from typing import Any, Final

LIBRARIES: Final = ("httpx", "httpx2")


class Library:
    """A library and its integration.

    Attributes:
        http: the module of the library.
        polite: the module of its integration.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.http: Any = import_module(name)
        self.polite: Any = import_module(f"politesse.integrations.{name}")

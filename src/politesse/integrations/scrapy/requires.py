"""The check that a suitable version of Scrapy is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from politesse._text import needs_extra

_OLDEST: Final = (2, 14)


def check_scrapy() -> None:
    """Raise ImportError, with the command to run, if Scrapy is missing or too old."""
    try:
        scrapy = import_module("scrapy")
    except ModuleNotFoundError as error:
        if error.name != "scrapy":
            raise
        raise ImportError(needs_extra("politesse.integrations.scrapy", "scrapy"), name="scrapy") from error
    if tuple(int(part) for part in scrapy.__version__.split(".")[:2]) < _OLDEST:
        raise ImportError(
            f"politesse.integrations.scrapy needs Scrapy 2.14 or newer, and {scrapy.__version__} is installed; "
            "run: pip install --upgrade scrapy",
            name="scrapy",
        )

"""The Lua scripts of the fleet, which Redis runs."""

from __future__ import annotations

from enum import StrEnum
from importlib.resources import files


class Script(StrEnum):
    """A script, by the name of its file."""

    RESERVE = "reserve"
    RELEASE = "release"
    CLOSE = "close"
    RENEW = "renew"
    PROBE = "probe"

    @property
    def source(self) -> str:
        """Its text, after that of the functions that all share."""
        return source_of(self.value)


def source_of(name: str) -> str:
    """Return the text of a script, after that of the functions that all share."""
    here = files(__name__)
    return "\n".join(here.joinpath(f"{one}.lua").read_text("utf-8") for one in ("state", name))

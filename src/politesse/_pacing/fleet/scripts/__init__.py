"""The Lua scripts of the fleet, which Redis runs."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from hashlib import sha1
from importlib.resources import files


class Script(StrEnum):
    """A script, by the name of its file."""

    RESERVE = "reserve"
    RELEASE = "release"
    CLOSE = "close"
    RENEW = "renew"
    MEMBER = "member"
    STATUS = "status"

    @cached_property
    def source(self) -> str:
        """The text of the script, after the functions that all scripts share."""
        here = files(__name__)
        return "\n".join(here.joinpath(f"{name}.lua").read_text("utf-8") for name in ("state", self.value))

    @cached_property
    def sha(self) -> str:
        """The name by which a server runs the script once it has loaded it."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()

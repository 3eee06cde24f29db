"""The Lua scripts of the fleet, which Redis runs."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from hashlib import sha1
from importlib.resources import files


class Script(StrEnum):
    """A script. Its value is the name of its file, without ``.lua``."""

    STEP = "step"
    MEMBER = "member"
    STATUS = "status"

    @cached_property
    def source(self) -> str:
        """The text of the script; of a script about a host, ``state.lua`` comes first."""
        names = [self.value] if self is Script.MEMBER else ["state", self.value]
        here = files(__name__)
        return "\n".join(here.joinpath(f"{name}.lua").read_text("utf-8") for name in names)

    @cached_property
    def sha(self) -> str:
        """The SHA-1 of the source, with which EVALSHA runs the script."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()

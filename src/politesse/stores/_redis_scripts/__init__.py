"""The Lua scripts of RedisStore, which Redis runs."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import cached_property
from importlib.resources import files
from typing import Final

_OF_LEASES: Final = ("release", "renew")  # these scripts read no record


class StoreScript(StrEnum):
    """A script; its value is the name of its file."""

    DELETE = "delete"
    LEASE = "lease"
    PUT = "put"
    RELEASE = "release"
    RENEW = "renew"

    @cached_property
    def sha(self) -> str:
        """The digest by which Redis knows the script after its first run."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def source(self) -> str:
        """The text of the script. If it reads records, the text begins with the functions of ``record.lua``."""
        here = files(__name__)
        parts = (self.value,) if self in _OF_LEASES else ("record", self.value)
        return "\n".join(here.joinpath(f"{part}.lua").read_text("utf-8") for part in parts)

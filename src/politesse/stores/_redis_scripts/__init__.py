"""The Lua scripts of RedisStore, which Redis runs."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final

_OF_LEASES: Final = ("release", "renew")  # they look at no record


class StoreScript(StrEnum):
    """A script, by the name of its file."""

    DELETE = "delete"
    LEASE = "lease"
    PUT = "put"
    RELEASE = "release"
    RENEW = "renew"

    @property
    def source(self) -> str:
        """Its text, after that of the functions of records."""
        return _source(self.value)

    @property
    def sha(self) -> str:
        """The name by which Redis knows it once it has run."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


@cache
def _source(name: str) -> str:
    here = files(__name__)
    parts = (name,) if name in _OF_LEASES else ("record", name)
    return "\n".join(here.joinpath(f"{part}.lua").read_text("utf-8") for part in parts)

"""Keeping what was got: the record's codec, and the stores that hold records."""

from politesse.stores.memory import MemoryStore

__all__ = ["MemoryStore"]

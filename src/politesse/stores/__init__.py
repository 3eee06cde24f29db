"""Stores, which keep records of robots.txt beyond the cache; a record is a string of bytes."""

from politesse.stores.memory import MemoryStore

__all__ = ["MemoryStore"]

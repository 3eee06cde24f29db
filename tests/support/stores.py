"""Stores that outlive a gate, and stores that fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock


class KeptStore:
    """Keeps records in a dict that outlives it, as a file outlives a process.

    Args:
        records: what is in the store.
        delay_s: how long each call takes, by ``clock``.
        clock: for that.
    """

    def __init__(self, records: dict[str, bytes], delay_s: float = 0.0, clock: Clock | None = None) -> None:
        self.records = records
        self.delay_s = delay_s
        self.clock = clock
        self.calls: list[tuple[str, str]] = []
        self.closed = False

    async def get(self, key: str, /) -> bytes | None:
        await self.call("get", key)
        return self.records.get(key)

    async def put(self, key: str, record: bytes, /) -> None:
        await self.call("put", key)
        self.records[key] = record

    async def delete(self, key: str, /) -> None:
        await self.call("delete", key)
        self.records.pop(key, None)

    async def aclose(self) -> None:
        await self.call("aclose", "")
        self.closed = True

    async def call(self, method: str, key: str) -> None:
        """Do what a call does before it succeeds."""
        self.calls.append((method, key))
        if self.delay_s and self.clock is not None:
            await self.clock.sleep(self.delay_s)

    def count(self, method: str, start: str = "") -> int:
        """Return how often a method was called with a key that starts like this."""
        return sum(called == method and key.startswith(start) for called, key in self.calls)


class FailingStore(KeptStore):
    """A KeptStore of which some methods fail while ``fails`` says so.

    Args:
        records: what is in the store.
        methods: those that fail.
        fail: raises, returns or hangs instead of the call; None hangs until ``release`` is set.
        stubborn: whether a call that hangs ignores its cancellation.
    """

    def __init__(
        self,
        records: dict[str, bytes],
        *methods: str,
        fail: Callable[[], object] | None = None,
        stubborn: bool = False,
    ) -> None:
        super().__init__(records)
        self.methods = set(methods)
        self.fail = fail
        self.stubborn = stubborn
        self.release = asyncio.Event()

    async def get(self, key: str, /) -> bytes | None:
        returned = await self.called("get", key)
        return self.records.get(key) if returned is None else returned  # type: ignore[return-value]

    async def called(self, method: str, key: str) -> object:
        self.calls.append((method, key))
        if method not in self.methods:
            return None
        if self.fail is not None:
            return self.fail()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        return None

    async def call(self, method: str, key: str) -> None:
        await self.called(method, key)

"""Where a robots.txt is read: a file that would be felt by the other tasks of the loop, elsewhere."""

from __future__ import annotations

import threading

import pytest

from politesse import Gatekeeper, RobotsTxt
from politesse.testing import ScriptedFetcher

LINES = "a\n" * 32_000
"""Just under 64 KiB, and 35 ms of parsing."""


@pytest.mark.parametrize(
    ("body", "in_the_loop"),
    [("User-agent: *\nDisallow: /a\n", True), ("Disallow: /abc/def/ghi\n" * 300, True), (LINES, False)],
)
async def test_only_a_file_that_is_read_in_some_milliseconds_is_read_in_the_loop(
    monkeypatch: pytest.MonkeyPatch, body: str, *, in_the_loop: bool
) -> None:
    parse, readers = RobotsTxt.parse, []

    def parse_told(*args: object, **options: object) -> RobotsTxt:
        readers.append(threading.current_thread())
        return parse(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(RobotsTxt, "parse", parse_told)
    fetcher = ScriptedFetcher({"https://h.example": body.encode()})
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher) as gate:
        assert await gate.check("https://h.example/")
    assert [reader is threading.current_thread() for reader in readers] == [in_the_loop]

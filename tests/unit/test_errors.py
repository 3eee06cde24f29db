"""Errors go from one process to another, as those of workers do."""

from __future__ import annotations

import pickle

from politesse import Bound, Disallowed, Gatekeeper, NotYet, TooFar
from politesse.integrations.httpx import RequestTooFar
from politesse.testing import ScriptedFetcher


def test_what_comes_too_late_survives_a_pickle() -> None:
    error = TooFar("example.com", NotYet(1_800_000_000.0, Bound.CRAWL_DELAY), 5.0)
    for one in (error, RequestTooFar(error)):
        again = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own octets
        assert type(again) is type(one)
        assert str(again) == str(one)
        assert (again.host, again.max_wait_s) == ("example.com", 5.0)
        assert (again.not_yet.not_before, again.not_yet.bound_by) == (1_800_000_000.0, Bound.CRAWL_DELAY)


async def test_a_refusal_survives_a_pickle() -> None:
    fetcher = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private\n"})
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher) as gate:
        error = Disallowed(await gate.check("https://example.com/private"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own octets
    assert str(again) == str(error)
    assert again.verdict.rule is not None
    assert again.verdict.rule.line == 2

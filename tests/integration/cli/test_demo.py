"""The demo as it is run, and proof that it can fail: crawls through gates that are broken on purpose."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from politesse import Gatekeeper, Match, Reason, Verdict
from politesse.cli.demo import Plan, run, view
from tests.integration.cli.command import politesse

pytestmark = pytest.mark.realtime  # a Retry-After and a black hole are waited for

ORIGINS = ["wildcards", "not found", "forbidden", "recovers", "slow down", "redirects", "black hole", "html"]
GOOD = "no forbidden page was requested, none before its robots.txt, and every allowed page was served"
SMALL = Plan(pages=200, tasks=20, seed=1)


def _table(out: str) -> dict[str, list[str]]:
    """The rows of the table by origin: fetches, statuses, access result, and the numbers."""
    names = [*ORIGINS, "all"]
    rows = {
        name: line.removeprefix(f" {name}")
        for line in out.splitlines()
        for name in names
        if line.startswith(f" {name} ")
    }
    return {name: row.replace(",", "").split() for name, row in rows.items()}


async def test_the_whole_demo_exits_0_and_shows_what_it_promises() -> None:
    done = await politesse("demo")
    assert (done.code, done.err) == (0, "")
    assert GOOD in done.out
    table = _table(done.out)
    assert list(table) == [*ORIGINS, "all"]
    _, offered, served, missed, forbidden, *wrong = map(int, table["all"])
    assert offered == served >= 2_000
    assert forbidden >= 200
    assert [missed, *wrong] == [0, 0, 0, 0]
    assert max(map(len, done.out.splitlines())) <= 100


async def test_each_origin_is_asked_for_robots_txt_as_often_as_it_takes() -> None:
    done = await politesse("demo", "--pages", "300", "--tasks", "7", "--seed", "4")
    assert done.code == 0
    told = {name: " ".join(row) for name, row in _table(done.out).items()}
    assert told["wildcards"].startswith("1: 200 successful")
    assert told["not found"].startswith("1: 404 unavailable")
    assert told["forbidden"].startswith("1: 403 unavailable")
    assert told["recovers"].startswith("3: 503 503 200 successful")
    assert told["slow down"].startswith("2: 429 200 successful")
    assert told["redirects"].startswith("1: 301 redirect")
    assert told["black hole"].startswith("1: no answer unreachable 0 0 0")
    assert told["html"].startswith("1: 200 successful")


class OpenGate(Gatekeeper):
    """Asks for robots.txt, and allows everything all the same."""

    __slots__ = ()

    async def check(self, url: str) -> Verdict:
        await super().check(url)
        return _allowed(url)


class LateGate(Gatekeeper):
    """Lets the first page of an origin through before it asks."""

    __slots__ = ()

    async def check(self, url: str) -> Verdict:
        return _allowed(url) if url.count("/") == 3 and url.endswith("/") else await super().check(url)


class HastyGate(Gatekeeper):
    """Takes a robots.txt that cannot be had now for one that allows everything."""

    __slots__ = ()

    async def check(self, url: str) -> Verdict:
        verdict = await super().check(url)
        return _allowed(url) if verdict.reason is Reason.TOO_MANY_REQUESTS else verdict


class ClosedGate(Gatekeeper):
    """Denies everything."""

    __slots__ = ()

    async def check(self, url: str) -> Verdict:
        await super().check(url)
        return Verdict(url, "test", allowed=False, match=Match(Reason.DISALLOW_RULE))


class TimidGate(Gatekeeper):
    """Denies one sort of pages that are allowed."""

    __slots__ = ()

    async def check(self, url: str) -> Verdict:
        verdict = await super().check(url)
        if "/private/press/" in url:
            return Verdict(url, "test", allowed=False, match=Match(Reason.DISALLOW_RULE))
        return verdict


def _allowed(url: str) -> Verdict:
    return Verdict(url, "test", allowed=True, match=Match(Reason.NO_RULE))


async def _demo(gate: type[Gatekeeper], *, terminal: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    code = await run(Console(file=out, width=100, force_terminal=terminal), SMALL, gate)
    return code, out.getvalue()


async def test_the_gate_as_it_comes_passes() -> None:
    code, out = await _demo(Gatekeeper)
    assert code == 0
    assert GOOD in out


async def test_in_a_terminal_the_table_fills_while_it_runs() -> None:
    code, out = await _demo(Gatekeeper, terminal=True)
    assert code == 0
    assert "allowed pages" in out.partition("black hole")[0]
    assert out.count("black hole") > 2


@pytest.mark.parametrize(
    ("gate", "violation"),
    [
        (OpenGate, "forbidden page requested: http://127.0.0.1:"),
        (LateGate, "page requested before robots.txt was asked for: http://127.0.0.1:"),
        (HastyGate, "page requested before robots.txt was got: http://127.0.0.1:"),
        (ClosedGate, "0 violations"),
        (TimidGate, "0 violations"),
    ],
)
async def test_a_broken_gate_fails_and_its_violations_are_shown(gate: type[Gatekeeper], violation: str) -> None:
    code, out = await _demo(gate)
    assert code == 1
    assert violation in out
    assert GOOD not in out
    _, _, _, missed, _, forbidden, early, violations = map(int, _table(out)["all"])
    assert (missed > 0) is (gate in {ClosedGate, TimidGate})
    assert (forbidden > 0) is (gate in {OpenGate, LateGate, HastyGate})
    assert (early > 0) is (gate in {OpenGate, LateGate, HastyGate})
    assert (violations > 0) is (gate not in {ClosedGate, TimidGate})


async def test_a_crawler_that_dies_is_no_success() -> None:
    class DyingGate(Gatekeeper):
        __slots__ = ()

        async def check(self, url: str) -> Verdict:
            raise ZeroDivisionError(url)

    with pytest.raises(ExceptionGroup) as died:
        await _demo(DyingGate)
    assert died.group_contains(ZeroDivisionError)


async def test_a_crawl_that_stands_still_is_ended_and_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    class SilentGate(Gatekeeper):
        __slots__ = ()

        async def check(self, url: str) -> Verdict:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    monkeypatch.setattr(view, "_STALLED_S", 0.2)
    code, out = await _demo(SilentGate)
    assert code == 1
    assert "saw no request" in out
    assert "0 violations, 157 allowed pages not served" in out

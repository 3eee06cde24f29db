"""Proof that the demo can fail: crawls through gates that cheat, each in one way."""

import asyncio
import io

import pytest
from rich.console import Console

from politesse import FetchOptions
from politesse.cli import demo
from politesse.cli.demo import run
from tests.support.violations import FORBIDDEN, GAP
from tests.tools.cli.demo_output import ORIGINS, PACES, kinds_in, table_of
from tests.tools.cli.sabotages import SABOTAGES, UNFETCHED

pytestmark = [
    pytest.mark.realtime,  # a Retry-After, a black hole and a pace are waited for
    pytest.mark.filterwarnings("ignore:none of the product tokens"),  # a gate that takes another agent's group
]

SMALL = 200  # pages
_AT_ONCE = 5
TOO_SLOW_HERE = 5  # so many runs, on a busy machine that makes each pause long enough


def sabotaged_runs() -> dict[str, tuple[int, str]]:
    """Exit code and output of the demo through each gate that cheats; several at once, since each mostly waits.

    A gate whose pauses are too short runs alone, and again while the machine is so slow that no gap was too short.
    """
    free = asyncio.Semaphore(_AT_ONCE)

    async def run_one(name: str) -> tuple[int, str]:
        async with free:
            out = io.StringIO()
            code = await run(Console(file=out, width=80), SMALL, SABOTAGES[name][0])
            return code, out.getvalue()

    async def run_hasty(name: str) -> tuple[int, str]:
        code, out = await run_one(name)
        for _ in range(TOO_SLOW_HERE - 1):
            if any((table_of(out)[origin].gap_ms or 0) < pace_ms for origin, (pace_ms, _) in PACES.items()):
                break
            code, out = await run_one(name)
        return code, out

    async def run_all() -> list[tuple[int, str]]:
        hasty = [name for name, (_, found) in SABOTAGES.items() if GAP in found]
        others = dict.fromkeys(SABOTAGES.keys() - set(hasty))
        found = dict(zip(others, await asyncio.gather(*map(run_one, others)), strict=True))
        for name in hasty:
            found[name] = await run_hasty(name)
        return [found[name] for name in SABOTAGES]

    with pytest.MonkeyPatch.context() as patched:
        # A shorter wait for a robots.txt that never comes changes no result.
        patched.setattr(demo, "FETCH", FetchOptions(connect_timeout_s=1.2, total_timeout_s=1.2))
        patched.setattr(demo, "UNREACHABLE_S", 5.0)
        patched.setattr(demo, "_PAGE_TIMEOUT_S", 10.0)  # on a busy machine, too, no page is missed for a timeout
        return dict(zip(SABOTAGES, asyncio.run(run_all()), strict=True))


def check_report(name: str, code: int, out: str) -> None:
    """Assert that the demo failed, and reported the offences of the gate."""
    _, found = SABOTAGES[name]
    kinds = found - {UNFETCHED}
    whole = table_of(out)["all"]
    assert code == 1
    assert "✓" not in out
    assert kinds_in(out) >= kinds
    assert (whole.broken > 0) is bool(kinds)
    assert (FORBIDDEN in kinds_in(out)) is (FORBIDDEN in kinds)
    assert (whole.left > 0) is (UNFETCHED in found)
    assert all(f"{kind}: http://127.0.0." in out for kind in kinds if len(kinds_in(out)) == 1)


@pytest.mark.full
def test_gates_that_cheat_fail_and_their_offences_are_reported() -> None:
    # One test, because the runs share the time in which each of them waits.
    runs = sabotaged_runs()
    failures = {}
    for name, (code, out) in runs.items():
        try:
            check_report(name, code, out)
        except AssertionError as error:
            failures[name] = f"{error}\n{out}"
    assert failures == {}

    # A fault of one kind is reported as no other; at the floor, only origins with a slower pace are crawled too fast.
    assert kinds_in(runs["no Crawl-delay"][1]) == {GAP}
    table = table_of(runs["no Crawl-delay"][1])
    assert {name for name in ORIGINS if table[name].broken} == set(PACES)
    assert all(15 <= (table[name].gap_ms or 0) < pace_ms for name, (pace_ms, _) in PACES.items())

    # Requests that overlap are seen in the gaps.
    table = table_of(runs["eight at once"][1])
    assert all((table[name].gap_ms or 0) < 0 for name in ("wildcards", "not found", "forbidden"))

"""The demo as it is run; test_demo_sabotages has the proof that it can fail."""

import asyncio
import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from politesse import FetchOptions, Gatekeeper
from politesse.cli import demo
from politesse.cli.demo import run, view
from politesse.cli.demo.view import SHOWN
from politesse.ports import FetchRequest, FetchResult
from tests.tools.cli.command import run_process
from tests.tools.cli.demo_output import FLOOR, ORIGINS, PACES, kinds_in, table_of

pytestmark = pytest.mark.realtime  # a Retry-After, a black hole and a pace are waited for

SMALL = 200  # pages


def _says_it_was_polite(out: str) -> bool:
    """Whether the output ends with the verdict, in two lines."""
    *_, first, second = out.splitlines()
    return f"{first} {second}" == f"✓ {SHOWN}"


@pytest.mark.full
async def test_the_whole_demo_fetches_each_robots_txt_until_it_is_usable_and_keeps_the_paces() -> None:
    done = await run_process("demo")
    assert (done.code, done.err) == (0, ""), done.out
    assert _says_it_was_polite(done.out)
    table = table_of(done.out)
    assert list(table) == [*ORIGINS, "all"]
    whole = table["all"]
    assert whole.fetched >= 2_000
    assert whole.disallowed >= 200
    assert (whole.left, whole.broken) == (0, 0)
    assert max(map(len, done.out.splitlines())) <= 80
    for line in table.values():
        assert line.pages == line.fetched + line.disallowed + line.given_up + line.left
    assert "\nms to keep: own = our floor, site = its robots.txt. 403 allows all (RFC 9309).\n" in done.out
    answers = {name: line.answers for name, line in table.items()}
    assert re.fullmatch(r"\d+x200", answers.pop("expires"))
    assert re.fullmatch(r"\d+x none", answers.pop("black hole"))
    assert {name: answers[name] for name in ORIGINS if name in answers} == {
        "wildcards": "200",
        "not found": "404",
        "forbidden": "403",
        "recovers": "2x503 200",
        "slow down": "429 200",
        "redirects": "2x301",
        "html": "200",
    }
    assert {name: table[name].pace for name in ORIGINS} == dict.fromkeys(ORIGINS, FLOOR) | PACES
    gaps_ms = {name: table[name].gap_ms for name in ORIGINS}
    assert gaps_ms.pop("black hole") is None
    assert all(gap_ms is not None and gap_ms >= table[name].pace[0] for name, gap_ms in gaps_ms.items())
    assert "2 requests answered with 429 were repeated" in done.out


@pytest.fixture(autouse=True, scope="module")
def _short_black_hole() -> Iterator[None]:
    """Shorten the timeout of a robots.txt that never comes: no result depends on it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(demo, "FETCH", FetchOptions(connect_timeout_s=0.5, total_timeout_s=0.5))
        yield


async def _demo(gate: type[Gatekeeper], pages: int = SMALL) -> tuple[int, str]:
    out = io.StringIO()
    code = await run(Console(file=out, width=80), pages, gate)
    return code, out.getvalue()


async def test_the_gate_as_it_comes_passes() -> None:
    code, out = await _demo(Gatekeeper)
    assert code == 0
    assert _says_it_was_polite(out)
    assert kinds_in(out) == set()
    assert "share" not in out
    assert re.search(r"^ *\d+\.\d s: [\d,]+ of [\d,]+ allowed pages fetched, 0 rules broken$", out, re.MULTILINE)


@pytest.mark.full
async def test_origins_without_an_address_of_their_own_share_one_and_are_crawled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # RFC 5737: an address of no machine.
    monkeypatch.setattr(demo, "ADDRESSES", ("127.0.0.1", *["192.0.2.1"] * 8))
    code, out = await _demo(Gatekeeper, pages=60)
    assert code == 0
    assert "8 of the sites share 127.0.0.1 with another, and its pace" in out
    assert _says_it_was_polite(out)


async def test_a_crawl_that_stands_still_is_ended_and_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def fetch(self, _: FetchRequest, /) -> FetchResult:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def aclose(self) -> None:
            pass

    class SilentGate(Gatekeeper):
        __slots__ = ()

        def __init__(self, user_agent: str, *, fetch: object, **options: Any) -> None:
            super().__init__(user_agent, fetcher=Silent(), **options)

    monkeypatch.setattr(view, "_STALLED_S", 0.2)
    monkeypatch.setattr(view, "_LINE_EVERY_S", 0.1)
    code, out = await _demo(SilentGate)
    assert code == 1
    assert "saw no request" in out
    whole = table_of(out)["all"]
    assert (whole.fetched, whole.broken) == (0, 0)
    (missed,) = re.findall(r"0 rules broken, (\d+) allowed pages not fetched", out)
    assert int(missed) > 100

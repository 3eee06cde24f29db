"""The demo as it is run, and the proof that it can fail: crawls through gates that cheat, each in one way."""

import asyncio
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from politesse import FetchOptions, Gatekeeper
from politesse.cli import demo
from politesse.cli.demo import CACHE, PACING, report, run, web
from politesse.cli.demo.report import SHOWN
from politesse.fetch import AiohttpFetcher
from politesse.options import SharedPacer
from politesse.ports import FetchFault, FetchRequest, FetchResponse, FetchResult
from tests.support.violations import FORBIDDEN, GAP, OVERLAP, REFETCHED, RETRIED_EARLY, RETRY_AFTER, STALE, WHILE_CLOSED
from tests.tools.cli.command import run_process

pytestmark = [
    pytest.mark.realtime,  # a Retry-After, a black hole and a pace are waited for
    pytest.mark.filterwarnings("ignore:none of the product tokens"),  # a gate that takes another agent's group
]

SMALL = 200  # pages
ORIGINS = [
    "wildcards", "not found", "forbidden", "recovers", "slow down", "redirects", "expires", "html", "black hole"
]  # fmt: skip
PACES = {"slow down": (40, "site"), "redirects": (25, "site")}
FLOOR = (15, "own")
# Of an origin: name, answers for robots.txt, pages, fetched, disallowed, given up, left, gap, pace, by whom, broken.
ROW = re.compile(
    rf"(?P<name>{'|'.join(ORIGINS)}|all) +(?P<answers>.*?) +(?P<pages>\d+) +(?P<fetched>\d+) +(?P<disallowed>\d+)"
    r" +(?P<given_up>\d+) +(?P<left>\d+)(?: +(?P<gap_ms>-?[\d.]+|-) (?P<pace_ms>[\d.]+) (?P<pace_by>own|site))?"
    r" +(?P<broken>\d+)"
)


COUNTS = ("pages", "fetched", "disallowed", "given_up", "left")


class Line(NamedTuple):
    answers: str
    pages: int
    fetched: int
    disallowed: int
    given_up: int
    left: int
    gap_ms: float | None
    pace: tuple[float, str]
    broken: int


def table_of(out: str) -> dict[str, Line]:
    """The rows of the table by origin."""
    table = {}
    for row in filter(None, (ROW.fullmatch(line.replace(",", "").rstrip()) for line in out.splitlines())):
        pages, fetched, disallowed, given_up, left = map(int, row.group(*COUNTS))
        gap_ms = None if row["gap_ms"] in {None, "-"} else float(row["gap_ms"])
        pace = float(row["pace_ms"] or 0), row["pace_by"] or ""
        table[row["name"]] = Line(
            row["answers"], pages, fetched, disallowed, given_up, left, gap_ms, pace, int(row["broken"])
        )
    return table


def kinds_in(out: str) -> set[str]:
    """The kinds of violations that it reports."""
    return set(re.findall(r"^[\d,]+ x (.+)$", out, re.MULTILINE))


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
    monkeypatch.setattr(web, "ADDRESSES", ("127.0.0.1", *["192.0.2.1"] * 8))
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

    monkeypatch.setattr(report, "_STALLED_S", 0.2)
    monkeypatch.setattr(report, "_LINE_EVERY_S", 0.1)
    code, out = await _demo(SilentGate)
    assert code == 1
    assert "saw no request" in out
    whole = table_of(out)["all"]
    assert (whole.fetched, whole.broken) == (0, 0)
    (missed,) = re.findall(r"0 rules broken, (\d+) allowed pages not fetched", out)
    assert int(missed) > 100


# Gates that cheat, each by one option or by a fetcher that tampers with robots.txt.


def _with(**changes: object) -> type[Gatekeeper]:
    """Other options than those of the demo."""

    class Gate(Gatekeeper):
        """Has other options."""

        __slots__ = ()

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **_apart(options | changes))

    return Gate


def _apart(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with a pace that no other run of the demo in this process shares."""
    return options | {"pacer": SharedPacer(options["pacing"])}


def _reading(tamper: Callable[[FetchResult], FetchResult], **changes: object) -> type[Gatekeeper]:
    """A gate that reads each answer for robots.txt as another one."""

    class Fetcher(AiohttpFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            return tamper(await super().fetch(request))

    class Gate(Gatekeeper):
        """Has another fetcher."""

        __slots__ = ()

        def __init__(self, user_agent: str, *, fetch: Any, **options: Any) -> None:
            super().__init__(user_agent, fetcher=Fetcher(user_agent, fetch), **_apart(options | changes))

    return Gate


def _absent(*statuses: int) -> Callable[[FetchResult], FetchResult]:
    return lambda result: FetchResponse(404, result.final_url) if result.status in statuses else result


def _redirect_is_absent(result: FetchResult) -> FetchResult:
    return FetchResponse(404, result.final_url) if isinstance(result, FetchFault) and result.location else result


def _without_header(name: str) -> Callable[[FetchResult], FetchResult]:
    def tamper(result: FetchResult) -> FetchResult:
        if not isinstance(result, FetchResponse):
            return result
        return replace(result, headers={field: value for field, value in result.headers.items() if field != name})

    return tamper


def _with_max_age_0(result: FetchResult) -> FetchResult:
    if not isinstance(result, FetchResponse):
        return result
    return replace(result, headers={**result.headers, "cache-control": "max-age=0"})


def _body(change: Callable[[bytes], bytes]) -> Callable[[FetchResult], FetchResult]:
    return lambda result: replace(result, body=change(result.body)) if isinstance(result, FetchResponse) else result


def _without_lines(start: bytes) -> Callable[[FetchResult], FetchResult]:
    return _body(lambda body: b"\n".join(line for line in body.split(b"\n") if not line.startswith(start)))


UNFETCHED = "allowed pages not fetched"
"""Beside the kinds of violations: a gate that denies what is allowed is no success."""

CLOSED = {FORBIDDEN, WHILE_CLOSED}
SABOTAGES: dict[str, tuple[type[Gatekeeper], set[str]]] = {
    # permission
    "open": (_reading(_absent(200)), {FORBIDDEN}),
    "closed": (_reading(_body(lambda _: b"User-agent: *\nDisallow: /")), {UNFETCHED}),
    "opens on 5xx": (_reading(_absent(503)), {*CLOSED}),
    "another agent's group": (_with(token="OtherBot"), {FORBIDDEN, UNFETCHED}),
    "no wildcards": (_reading(_without_lines(b"Disallow: /*")), {FORBIDDEN}),
    "decodes %2F": (_reading(_body(lambda body: body.replace(b"%2F", b"/"))), {FORBIDDEN, UNFETCHED}),
    "no redirect of robots.txt": (_reading(_redirect_is_absent), {FORBIDDEN}),
    "expired copy": (_reading(_without_header("cache-control")), {STALE}),
    "fetches robots.txt each time": (_reading(_with_max_age_0, cache=replace(CACHE, min_lifetime_s=0.0)), {REFETCHED}),
    "no Retry-After of robots.txt": (_reading(_without_header("retry-after")), {RETRIED_EARLY}),
    # pace
    "no pause": (_with(pacing=replace(PACING, min_delay_s=0.0)), {GAP}),
    "eight at once": (_with(pacing=replace(PACING, max_concurrent=8, min_delay_s=0.0)), {OVERLAP}),
    "no Crawl-delay": (_with(pacing=replace(PACING, on_long_crawl_delay="cap", max_crawl_delay_s=0.001)), {GAP}),
    "waits half of Retry-After": (_with(pacing=replace(PACING, backoff_max_s=1.0)), {RETRY_AFTER}),
}


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
@pytest.mark.timeout(600)  # a busy machine runs the slow ones again
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

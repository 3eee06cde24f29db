"""The demo as it is run, and proof that it can fail: crawls through gates that are broken on purpose."""

from __future__ import annotations

import asyncio
import io
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pytest
from rich.console import Console

from politesse import ClosedError, FetchOptions, Gatekeeper, Reason, Verdict
from politesse._gate.agent import Agent
from politesse._pacing import sharing
from politesse._pacing.local import LocalPacer
from politesse.cli import demo
from politesse.cli.demo import Plan, run, server, view
from politesse.cli.demo.view import SHOWN
from politesse.testing.violations import Kind
from politesse.verdict import Match
from tests.integration.cli.command import politesse, run_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from politesse._pacing.permit import LocalPermit
    from politesse._pacing.slot import Slot
    from politesse.ports import TurnRequest
    from politesse.verdict import NotYet

pytestmark = pytest.mark.realtime  # a Retry-After, a black hole and a pace are waited for

ORIGINS = [
    "wildcards", "not found", "forbidden", "recovers", "slow down", "redirects", "expires", "html", "black hole"
]  # fmt: skip
PACES = {"slow down": (40, "site"), "redirects": (25, "site")}
FLOOR = (15, "own")
SMALL = Plan(pages=200, tasks=20, seed=1)
# Of an origin: name, answers for robots.txt, pages, fetched, disallowed, given up, left, gap, pace, by whom, broken.
ROW = re.compile(
    rf"(?P<name>{'|'.join(ORIGINS)}|all) +(?P<answers>.*?) +(?P<pages>\d+) +(?P<fetched>\d+) +(?P<disallowed>\d+)"
    r" +(?P<given_up>\d+) +(?P<left>\d+)(?: +(?P<gap_ms>-?[\d.]+|-) (?P<pace_ms>[\d.]+) (?P<pace_by>own|site))?"
    r" +(?P<broken>\d+)"
)


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


def _table(out: str) -> dict[str, Line]:
    """The rows of the table by origin."""
    rows = filter(None, (ROW.fullmatch(line.replace(",", "").rstrip()) for line in out.splitlines()))
    return {
        row["name"]: Line(
            row["answers"],
            int(row["pages"]),
            int(row["fetched"]),
            int(row["disallowed"]),
            int(row["given_up"]),
            int(row["left"]),
            None if row["gap_ms"] in {None, "-"} else float(row["gap_ms"]),
            (float(row["pace_ms"] or 0), row["pace_by"] or ""),
            int(row["broken"]),
        )
        for row in rows
    }


def _says_it_was_polite(out: str) -> bool:
    """Whether the output ends with the sentence that says what was shown, in two lines."""
    *_, first, second = out.splitlines()
    return f"{first} {second}" == f"✓ {SHOWN}"


async def test_the_whole_demo_exits_0_and_shows_what_it_promises() -> None:
    done = await run_process("demo")
    assert (done.code, done.err) == (0, "")
    assert _says_it_was_polite(done.out)
    table = _table(done.out)
    assert list(table) == [*ORIGINS, "all"]
    whole = table["all"]
    assert whole.fetched >= 2_000
    assert whole.disallowed >= 200
    assert (whole.left, whole.broken) == (0, 0)
    assert max(map(len, done.out.splitlines())) <= 80
    for line in table.values():
        assert line.pages == line.fetched + line.disallowed + line.given_up + line.left
    parts = f"{whole.fetched:,} fetched + {whole.disallowed:,} disallowed + {whole.given_up:,} given up"
    assert f"{parts} = {whole.pages:,} pages" in done.out


async def test_robots_txt_of_each_origin_is_fetched_until_it_is_usable_and_its_pace_is_kept() -> None:
    done = await politesse("demo", "--pages", "300", "--tasks", "7", "--seed", "4")
    assert done.code == 0
    table = _table(done.out)
    answers = {name: line.answers for name, line in table.items()}
    assert re.fullmatch(r"\dx200", answers.pop("expires"))
    assert {name: answers[name] for name in ORIGINS if name in answers} == {
        "wildcards": "200",
        "not found": "404",
        "forbidden": "403",
        "recovers": "2x503 200",
        "slow down": "429 200",
        "redirects": "301",
        "html": "200",
        "black hole": "5xnone",
    }
    assert {name: table[name].pace for name in ORIGINS} == dict.fromkeys(ORIGINS, FLOOR) | PACES
    gaps_ms = {name: table[name].gap_ms for name in ORIGINS}
    assert gaps_ms.pop("black hole") is None
    assert all(gap_ms is not None and gap_ms >= table[name].pace[0] for name, gap_ms in gaps_ms.items())
    assert "2 requests answered with 429 were repeated" in done.out


class WrongAgent(Agent):
    """Judges as its gate says; it is what a queue asks."""

    __slots__ = ("say",)

    say: Callable[[str, Verdict | None], Verdict | None]

    def judged(self, url: str) -> Verdict | None:
        return self.say(url, super().judged(url))

    async def learn(self, url: str) -> Verdict:
        verdict = await super().learn(url)
        said = self.say(url, verdict)
        return verdict if said is None else said


class WrongGate(Gatekeeper):
    """Says something else than it should."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._agent = WrongAgent(self._agent.state, self._agent.identity)
        self._agent.say = self.say

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        """Return what to say instead; ``verdict`` is None while robots.txt was not asked for."""
        raise NotImplementedError


class OpenGate(WrongGate):
    """Asks for robots.txt, and allows everything all the same."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return None if verdict is None else _allowed(url)


class LateGate(WrongGate):
    """Lets the first page of an origin through before it asks."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return _allowed(url) if url.count("/") == 3 and url.endswith("/") else verdict


class HastyGate(WrongGate):
    """Takes a robots.txt that cannot be had now for one that allows everything."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        unknown = {Reason.TOO_MANY_REQUESTS, Reason.UNREACHABLE}
        return _allowed(url) if verdict is not None and verdict.reason in unknown else verdict


class ClosedGate(WrongGate):
    """Denies everything."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return None if verdict is None else _denied(url)


class TimidGate(WrongGate):
    """Denies one sort of pages that are allowed."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return verdict if verdict is None or "/private/press/" not in url else _denied(url)


def _allowed(url: str) -> Verdict:
    return Verdict(url, "test", allowed=True, match=Match(Reason.NO_RULE))


def _denied(url: str) -> Verdict:
    return Verdict(url, "test", allowed=False, match=Match(Reason.DISALLOW_RULE))


class PushyPacer(LocalPacer):
    """Grants at once."""

    def try_start(self, request: TurnRequest, /) -> LocalPermit | NotYet:
        now_mono = self._clock.monotonic()
        return self._stamp(*self._enter(request, now_mono), request.url, now_mono)

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        self._clock.call_later(0, callback)


class FloorPacer(LocalPacer):
    """Ignores what robots.txt states about pace."""

    def _enter(self, request: TurnRequest, now_mono: float) -> Any:
        return super()._enter(request._replace(pace=None), now_mono)


class FromStartPacer(LocalPacer):
    """Counts the pause from the start of a request."""

    def ended(self, permit: LocalPermit, slot: Slot) -> None:
        super().ended(permit, slot)
        slot.last_mono = permit.started_mono
        slot.ready_for = None
        self._arm(slot)


class DeafPacer(LocalPacer):
    """Ignores that a server wants to be left alone."""

    def answered(self, permit: LocalPermit, slot: Slot, status: int | None, headers: Mapping[str, str]) -> None:
        pass


def _paced_by(pacer_class: type[LocalPacer]) -> type[Gatekeeper]:
    class Gate(Gatekeeper):
        """Paces by another pacer, robots.txt too."""

        __slots__ = ()

        def __init__(self, *args: Any, **options: Any) -> None:
            with patch.object(sharing, "LocalPacer", pacer_class):
                super().__init__(*args, **options)

    return Gate


BROKEN: dict[str, tuple[type[Gatekeeper], set[Kind]]] = {
    "open": (OpenGate, {Kind.FORBIDDEN, Kind.WHILE_CLOSED}),
    "late": (LateGate, {Kind.FORBIDDEN, Kind.BEFORE_ROBOTS}),
    "hasty": (HastyGate, {Kind.FORBIDDEN, Kind.WHILE_CLOSED}),  # the pacer keeps to Retry-After all the same
    "closed": (ClosedGate, set()),
    "timid": (TimidGate, set()),
    "pushy": (_paced_by(PushyPacer), {Kind.OVERLAP, Kind.RETRY_AFTER}),
    "floor": (_paced_by(FloorPacer), {Kind.GAP}),
    "from start": (_paced_by(FromStartPacer), {Kind.GAP}),
    "deaf": (_paced_by(DeafPacer), {Kind.RETRY_AFTER}),
}


@pytest.fixture(autouse=True, scope="module")
def _short_black_hole() -> Iterator[None]:
    """Shorten the timeout of a robots.txt that never comes: what is proved here does not depend on it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(demo, "FETCH", FetchOptions(connect_timeout_s=0.5, total_timeout_s=0.5))
        yield


async def _demo(gate: type[Gatekeeper], *, terminal: bool = False, plan: Plan = SMALL) -> tuple[int, str]:
    out = io.StringIO()
    code = await run(Console(file=out, width=80, force_terminal=terminal), plan, gate)
    return code, out.getvalue()


@pytest.fixture(scope="module")
def broken_runs() -> dict[str, tuple[int, str]]:
    """Exit code and output of the demo through each broken gate; at once, because each waits for the most part."""

    async def run_all() -> list[tuple[int, str]]:
        return await asyncio.gather(*(_demo(gate) for gate, _ in BROKEN.values()))

    return dict(zip(BROKEN, asyncio.run(run_all()), strict=True))


@pytest.fixture(scope="module")
def sound_runs() -> dict[str, tuple[int, str]]:
    """Exit code and output of the demo as it is, in a file and in a terminal; at once, for the same reason."""

    async def run_both() -> list[tuple[int, str]]:
        return list(await asyncio.gather(_demo(Gatekeeper), _demo(Gatekeeper, terminal=True)))

    return dict(zip(("file", "terminal"), asyncio.run(run_both()), strict=True))


def _kinds(out: str) -> set[Kind]:
    return {kind for kind in Kind if re.search(rf"^[\d,]+ x {kind.value}$", out, re.MULTILINE)}


def test_the_gate_as_it_comes_passes(sound_runs: dict[str, tuple[int, str]]) -> None:
    code, out = sound_runs["file"]
    assert code == 0
    assert _says_it_was_polite(out)
    assert _kinds(out) == set()
    assert "share" not in out


async def test_origins_without_an_address_of_their_own_share_one_and_are_crawled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # RFC 5737: an address of no machine.
    monkeypatch.setattr(server, "ADDRESSES", ("127.0.0.1", *["192.0.2.1"] * 8))
    code, out = await _demo(Gatekeeper, plan=Plan(pages=60, tasks=20, seed=1))
    assert code == 0
    assert "8 of the sites share 127.0.0.1 with another, and its pace" in out
    assert _says_it_was_polite(out)


def test_in_a_terminal_the_table_fills_while_it_runs(sound_runs: dict[str, tuple[int, str]]) -> None:
    code, out = sound_runs["terminal"]
    assert code == 0
    assert "allowed pages" in out.partition("black hole")[0]
    assert out.count("black hole") > 2


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_gate_fails_and_its_violations_are_reported(
    name: str, broken_runs: dict[str, tuple[int, str]]
) -> None:
    code, out = broken_runs[name]
    _, kinds = BROKEN[name]
    whole = _table(out)["all"]
    assert code == 1
    assert "✓" not in out
    assert _kinds(out) >= kinds
    assert (whole.broken > 0) is bool(kinds)
    assert (Kind.FORBIDDEN in _kinds(out)) is (Kind.FORBIDDEN in kinds)
    assert (whole.left > 0) is (name in {"closed", "timid"})
    assert all(f"{kind.value}: http://127.0.0." in out for kind in kinds if len(kinds) == 1)


@pytest.mark.parametrize("name", ["floor", "from start", "deaf"])
def test_a_fault_of_one_kind_is_reported_as_no_other(name: str, broken_runs: dict[str, tuple[int, str]]) -> None:
    assert _kinds(broken_runs[name][1]) == BROKEN[name][1]


def test_only_origins_with_a_pace_slower_than_the_floor_are_crawled_too_fast_at_the_floor(
    broken_runs: dict[str, tuple[int, str]],
) -> None:
    table = _table(broken_runs["floor"][1])
    assert {name for name in ORIGINS if table[name].broken} == set(PACES)
    assert all(15 <= (table[name].gap_ms or 0) < pace_ms for name, (pace_ms, _) in PACES.items())


def test_a_gate_that_grants_at_once_is_seen_to_in_the_gaps(broken_runs: dict[str, tuple[int, str]]) -> None:
    table = _table(broken_runs["pushy"][1])
    assert all((table[name].gap_ms or 0) < 0 for name in ("wildcards", "not found", "forbidden"))


async def test_a_crawler_that_dies_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    async def learn(_agent: Agent, url: str) -> Verdict:
        raise ZeroDivisionError(url)

    monkeypatch.setattr(Agent, "learn", learn)
    with pytest.raises(ExceptionGroup) as died:
        await _demo(Gatekeeper)
    assert died.group_contains(ClosedError)
    assert {type(error.__cause__) for error in died.value.exceptions} == {ZeroDivisionError}


async def test_a_crawl_that_stands_still_is_ended_and_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    async def learn(_agent: Agent, _url: str) -> Verdict:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    monkeypatch.setattr(Agent, "learn", learn)
    monkeypatch.setattr(view, "_STALLED_S", 0.2)
    code, out = await _demo(Gatekeeper)
    assert code == 1
    assert "saw no request" in out
    whole = _table(out)["all"]
    assert (whole.fetched, whole.broken) == (0, 0)
    (missed,) = re.findall(r"0 rules broken, (\d+) allowed pages not fetched", out)
    assert int(missed) > 100

"""What a watcher reads beside the hosts: counts, the last refusals, and the explanation of a URL."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self

from politesse import __version__
from politesse._base.text import shortened
from politesse.robots.explain import matching_alone
from politesse.watch._table import plain

if TYPE_CHECKING:
    from politesse._gate.gatekeeper import Gatekeeper
    from politesse.queue import PoliteQueue
    from politesse.verdict import Rule, Verdict

_COUNTS: Final = ("allowed", "fetches", "in_flight", "origins", "entries_bytes", "waiting", "turns")
_MAX_REFUSALS: Final = 50
_MAX_URL: Final = 2_000
_MAX_RULES: Final = 1_000


def statistics(gate: Gatekeeper, queue: PoliteQueue[Any] | None, *, can_steer: bool) -> dict[str, Any]:
    """Return the counts, as ``/statistics`` answers."""
    counts, crawl = gate.statistics(), None
    if queue is not None:
        queued = queue.statistics()
        crawl = {name: getattr(queued, name) for name in ("queued", "under_way", "hosts")}
        crawl |= {"paused": queue.is_paused, "stopping": queue.is_stopping}
    about = {"time": plain(gate.clock.wall()), "agent": gate.identity.user_agent, "version": __version__}
    numbers = {name: getattr(counts, name) for name in _COUNTS}
    return about | numbers | {"denied": counts.denied, "can_steer": can_steer, "crawl": crawl}


class Refusals:
    """The last refusals. The gate tells of them only within ``with``, which several readers may enter."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._listeners = gate.state.on_denied
        self._last: deque[Verdict] = deque(maxlen=_MAX_REFUSALS)
        self._count = self._readers = 0

    def __enter__(self) -> Self:
        if not self._readers:
            self._listeners.append(self._note)
        self._readers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._readers -= 1
        if not self._readers:
            self._listeners.remove(self._note)

    def _note(self, verdict: Verdict) -> None:
        self._count += 1
        self._last.append(verdict)

    def since(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of the last refusal, and the refusals after ``number``, the newest first."""
        return self._count, [
            {
                "time": plain(one.decided_wall),
                "url": shortened(one.url, _MAX_URL),
                "reason": one.reason,
                "rule": _rule(one.rule),
            }
            for one in islice(reversed(self._last), self._count - number)
        ]


async def explanation(gate: Gatekeeper, url: str, *, fetches: bool) -> dict[str, Any] | None:
    """Return the explanation of a URL, as ``/explain`` answers; None if a file has to be fetched first.

    The verdict is not counted. Raises InvalidURL.
    """
    judged = gate.judged(url) or (await gate.fetched(url) if fetches else None)
    if judged is None:
        return None
    verdict, _, copy = judged
    rule, rules, lines = verdict.rule, None if copy is None else copy.rules.get(gate.name), []
    text = verdict.explain()
    if rules is not None:
        lines = await asyncio.to_thread(matching_alone, rules, url, _MAX_RULES)
        if rule is not None and all(one != rule for one, _ in lines):
            lines.append((rule, True))
        matching = sum(matches for _, matches in lines)
        text += f"\n  of {matching} matches: {rules.precedence}" if matching > 1 else ""
        text += f"\n  {_MAX_RULES:,} of {len(rules):,} rules are shown" if len(rules) > _MAX_RULES else ""
    return {
        "url": shortened(verdict.url, _MAX_URL),
        "allowed": verdict.allowed,
        "reason": verdict.reason,
        "text": text,
        "rule": _rule(rule),
        "line": None if rule is None else rule.line,
        "lines": [
            {"line": one.line, "text": _rule(one), "matches": matches, "wins": one == rule} for one, matches in lines
        ],
    }


def _rule(rule: Rule | None) -> str | None:
    return None if rule is None else shortened(str(rule))

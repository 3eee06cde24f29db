"""Writes events to the standard logger ``politesse``.

Theory of operation. The gate's Publisher calls an EventLog with each event. The EventLog writes at most one line for an
event. The logger is the child of ``politesse`` with the name of the publisher's package. The levels:

    WARNING   a site is closed for a long time, or refuses this crawler; a turn is held while others wait; a turn was
              dropped or has expired; a bound was reached; a fleet loses its Redis or has it back
    INFO      a host closes and opens again; robots.txt is unreachable, and reachable again; a wait of over a minute
    DEBUG     each denial, each fetch
    ERROR     a component raised an unexpected exception

Some events repeat while the state of a site lasts: a hostile robots.txt reaches its bound with each decision, and an
unreachable robots.txt is fetched again with each retry. The log has one line when such a state begins, and one when it
ends. The EventLog remembers the latest 10,000 sites only, so its memory is bounded.

Text of a server is escaped and shortened: a hostile URL or header cannot forge a line, control a terminal or fill a
disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from politesse import events
from politesse._base.text import printable_traceback, shortened
from politesse.verdict import CLOSED, AccessResult, Bound, Verdict, utc

if TYPE_CHECKING:
    from collections.abc import Hashable

    from politesse.origin import Origin

GATE: Final = logging.getLogger("politesse.gate")
"""The logger of decisions; the level of this logger decides whether the event of a denial is made."""

PACING: Final = logging.getLogger("politesse.pacing")
"""The logger of pacers."""

_ROOT: Final = logging.getLogger("politesse")
_CACHE: Final = logging.getLogger("politesse.cache")
_ROOT.addHandler(logging.NullHandler())  # so that the library prints no messages unless the program configures logging

_LONG_S: Final = 900.0  # if a host or site is closed for at least this time, the line is a WARNING
_MAX_FAULT: Final = 500  # the name of a key may take 200 of these characters
_MAX_SITES: Final = 10_000  # at most this many sites are remembered
_DONE: Final = {"obey": "it is obeyed", "cap": "it is capped", "skip": "the site is skipped"}


class EventLog:
    """Writes the events of one gate, or of a pacer that gates share, to the standard logger.

    >>> from politesse.events import HostOpened
    >>> EventLog()(HostOpened("example.com"))  # a line for logging.basicConfig(level="INFO")
    """

    __slots__ = ("_known", "_troubled")

    def __init__(self) -> None:
        # The sites whose robots.txt cannot be fetched: the Unix times at which the states "closed", "long" and "kept"
        # were logged.
        self._troubled: LRUCache[Origin, dict[str, float]] = LRUCache(_MAX_SITES)
        self._known: LRUCache[Hashable, None] = LRUCache(_MAX_SITES)

    def __call__(self, event: events.Event) -> None:
        """Write the line of an event, if the event has a line."""
        match event:
            case events.Decided(verdict):
                self._decided(verdict)
            case events.RobotsFetched():
                self._robots_fetched(event)
            case events.SiteFileFetched(url, status, fault, outcome):
                got = shortened(fault) if fault else status
                _CACHE.debug("%s was fetched: %s, %s", shortened(url), got, outcome)
            case events.ComponentFailed(_, "pacer", error):  # of one host, which is closed for a time
                PACING.warning("%s", shortened(str(error), _MAX_FAULT))
            case events.ComponentFailed(origin, component, error):
                scope = origin or "the whole crawl"
                # exc_info would quote remote text without escapes.
                _CACHE.error("The %s failed for %s\n%s", component, scope, printable_traceback(error))
            case events.MatchingBounded() | events.LongDelay():
                self._bound_reached(event)
            case events.FleetAway(server, error):
                text = "%s is away: no request starts until it is back (%s)"
                PACING.warning(text, shortened(server), shortened(error))
            case events.FleetBack(server, away_s):
                PACING.warning("%s is back after %.1f s", shortened(server), away_s)
            case _:
                self._paced(event)

    def _decided(self, verdict: Verdict) -> None:
        if not verdict.denied_by_reason or not GATE.isEnabledFor(logging.DEBUG):
            return
        rule, source = verdict.rule, verdict.source
        why = verdict.note or ("" if source is None else source.fault)
        if rule is not None:
            why = f"line {rule.line}, {rule}"
        answer = "would be disallowed" if verdict.allowed else "is disallowed"
        url, reason = shortened(verdict.url), verdict.reason
        GATE.debug("%s %s for %s: %s (%s)", url, answer, verdict.agent, reason, shortened(why))

    def _robots_fetched(self, event: events.RobotsFetched) -> None:
        origin, source, got = event.origin, event.source, shortened(event.fault) if event.fault else event.status
        if source.result in CLOSED:
            self._robots_closed(event)
        elif event.fault and source.result is AccessResult.SUCCESSFUL:
            trouble = self._troubled.setdefault(origin, {})
            level = logging.DEBUG if "kept" in trouble else logging.INFO
            trouble["kept"] = source.fetched_wall
            text = "robots.txt of %s cannot be fetched: %s; the copy of %s still holds"
            _CACHE.log(level, text, origin, shortened(event.fault), utc(source.fetched_wall))
        elif self._troubled.pop(origin, None) is not None:
            text = "All of %s is no longer disallowed" if event.fault else "robots.txt of %s is reachable again"
            _CACHE.info(f"{text}: %s, %s", origin, got, source.result)
        elif event.truncated and self._is_new(origin, "truncated"):
            _CACHE.warning("robots.txt of %s is longer than the fetcher reads: its last lines do not count", origin)
        else:
            _CACHE.debug("robots.txt of %s was fetched in %.3g s: %s, %s", origin, event.elapsed_s, got, source.result)

    def _robots_closed(self, event: events.RobotsFetched) -> None:
        """Write that a whole site is disallowed, when the state begins and again if it lasts."""
        origin, source = event.origin, event.source
        trouble = self._troubled.setdefault(origin, {})
        is_first = "closed" not in trouble
        since_wall = trouble.setdefault("closed", source.fetched_wall)
        until_wall = source.fresh_until_wall if source.not_before is None else source.not_before
        is_long = until_wall - since_wall >= _LONG_S and "long" not in trouble
        if is_long:
            trouble["long"] = until_wall
        level = logging.WARNING if is_long else logging.INFO if is_first else logging.DEBUG
        text = "All of %s is disallowed: %s, since %s; robots.txt is fetched again after %s"
        _CACHE.log(level, text, origin, shortened(event.fault), utc(since_wall), utc(until_wall))

    def _bound_reached(self, event: events.MatchingBounded | events.LongDelay) -> None:
        """Write that a robots.txt exceeds a bound, once for each file."""
        if isinstance(event, events.LongDelay):
            if self._is_new(event.origin, event.delay_s):
                text = "%s wants %g s between requests, more than max_crawl_delay_s: %s"
                GATE.warning(text, event.origin, event.delay_s, _DONE[event.done])
            return
        verdict = event.verdict
        robots_url = "" if verdict.source is None else verdict.source.robots_url
        if self._is_new(robots_url, "bounded"):
            text = "The rules of %s take too much work to compare them all: the remaining rules count against %s"
            GATE.warning(text, shortened(robots_url), shortened(verdict.url))

    @staticmethod
    def _host_closed(event: events.HostClosed) -> None:
        is_long = event.closed_s >= _LONG_S or event.bound_by is Bound.REFUSED
        level = logging.WARNING if is_long else logging.INFO
        closed = shortened(event.host), utc(event.until_wall), event.closed_s
        if event.status is None or not event.url:
            PACING.log(level, "%s is closed until %s, for %.0f s: %s", *closed, event.bound_by)
        else:
            text = "%s is closed until %s, for %.0f s, by %d for %s (%s)"
            why = event.bound_by if event.refusal is None else event.refusal
            PACING.log(level, text, *closed, event.status, shortened(event.url), why)

    def _header_overruled(self, event: events.HeaderOverruled) -> None:
        if not self._is_new(event.host, event.field):
            return
        why, applied_s, asked_s = "unreadable", event.applied_s, event.asked_s
        if asked_s is not None:
            is_short = applied_s is not None and asked_s < applied_s
            why = "too short, because the own backoff is longer" if is_short else "too long"
        done = "it is ignored" if applied_s is None else f"waiting {applied_s:.0f} s"
        text = "%s: %s from %s is %s; %s"
        PACING.info(text, event.field, shortened(event.value), shortened(event.host), why, done)

    def _paced(self, event: events.Event) -> None:
        match event:
            case events.HostClosed():
                self._host_closed(event)
            case events.HostOpened(host):
                PACING.info("%s is open again", shortened(host))
            case events.LongWait(host, url, wait_s, bound_by, held_by):
                held = f", held by {shortened(held_by)}" if held_by else ""
                level = logging.WARNING if bound_by is Bound.IN_FLIGHT else logging.INFO
                text = "%s waits for a turn at %s, for %.0f s or longer: %s%s"
                PACING.log(level, text, shortened(url), shortened(host), wait_s, bound_by, held)
            case events.TurnExpired(host, url, held_s):
                text = "The turn of %s has ended after max_turn_s, %.0f s: %s serves the next request"
                PACING.warning(text, shortened(url), held_s, shortened(host))
            case events.TurnDropped(host, url):
                text = "The turn of %s was dropped before its end: use it with `async with`. %s serves the next request"
                PACING.warning(text, shortened(url), shortened(host))
            case events.HeaderOverruled():
                self._header_overruled(event)
            case events.AddressNotFound(host, error):
                if self._is_new(host, "address"):
                    PACING.info("%s is paced by its name: it has no address (%s)", shortened(host), shortened(error))
            case _:
                pass  # a program may publish its own events

    def _is_new(self, *state: Hashable) -> bool:
        """Return whether ``state`` is new, and remember it."""
        is_new = state not in self._known
        self._known[state] = None
        return is_new

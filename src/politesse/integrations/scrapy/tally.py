"""What politesse has done in a crawl: the stats ``politesse/...``, and one summary in the log at its end."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from politesse._text import printable, shortened
from politesse.events import Decided, Event, FleetAway, FleetBack, HostClosed, RobotsFetched
from politesse.integrations.scrapy.engine import count

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_MAX_NAMED: Final = 10  # sites in the summary
_MAX_SHOWN: Final = 200  # characters of remote text


class CrawlTally:
    """Counts what happens in one crawl.

    Args:
        crawler: has the stats.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._closed: set[str] = set()
        self._given_up: dict[str, str] = {}  # hosts and origins, and why
        self._hosts_given_up: set[str] = set()
        self._left: Counter[str] = Counter()
        self._kept = 0
        self._waited_s = 0.0
        self._fleet_away_s = 0.0

    def heard(self, event: Event) -> None:
        """Count an event of the gate."""
        match event:
            case Decided(verdict):
                self._add(f"decisions/{verdict.reason}")
            case RobotsFetched():
                self._add(f"robots_txt/{event.source.result}")
            case HostClosed(host):
                self.closed(host)
            case FleetAway():
                self._add("fleet/away")
            case FleetBack(away_s=away_s):
                self._fleet_away_s += away_s
                self._set("fleet/seconds_away", self._fleet_away_s)
            case _:
                pass

    def closed(self, host: str) -> None:
        """Count a host that is closed for a time, itself or one of its origins; once."""
        if host not in self._closed:
            self._closed.add(host)
            self._add("hosts/closed")

    def given_up(self, site: str, host: str, why: str) -> bool:
        """Count a host that is given up, itself or one of its origins, once; return whether it is the first time."""
        is_new = site not in self._given_up
        self._given_up[site] = why
        if host not in self._hosts_given_up:
            self._hosts_given_up.add(host)
            self._add("hosts/given_up")
        return is_new

    def deferred(self) -> None:
        """Count a request that was put back into the scheduler."""
        self._add("requests/deferred")

    def waited(self, seconds: float) -> None:
        """Count how long a site was closed while requests of it waited."""
        self._waited_s += seconds
        self._set("seconds_waited", self._waited_s)

    def left(self, site: str, number: int, *, on_disk: bool) -> None:
        """Count requests that are not made because their site was given up; those on disk are for the next run."""
        self._add("requests/given_up", number)
        self._left[site] += number
        if on_disk:
            self._add("requests/kept", number)
            self._kept += number

    def log_summary(self) -> None:
        """Log in one line what was closed, and what was not fetched for that reason."""
        left = self._left
        if not left:
            logger.info("Hosts closed for a time: %d; no request was given up for that", len(self._closed))
            return
        named = [
            f"{site} ({number}: {shortened(printable(self._given_up.get(site, '')), _MAX_SHOWN)})"
            for site, number in left.most_common(_MAX_NAMED)
        ]
        more = f", and {len(left) - _MAX_NAMED} more" if len(left) > _MAX_NAMED else ""
        logger.warning(
            "Hosts closed for a time: %d. Not fetched for that reason: %d requests, of which %d stay in JOBDIR for the "
            "next run: %s%s",
            len(self._closed),
            left.total(),
            self._kept,
            ", ".join(named),
            more,
        )

    def _set(self, name: str, seconds: float) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.set_value(f"politesse/{name}", round(seconds, 1))

    def _add(self, name: str, number: int = 1) -> None:
        count(self._crawler, f"politesse/{name}", number)

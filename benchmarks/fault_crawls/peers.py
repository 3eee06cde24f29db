"""The crawlers that are compared, and what explains what they do."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse.testing import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Attributes:
    package: that is imported, and whose version is told.
    module: of the crawler.
    means: what of the package is asked.
    cannot: whether a fault cannot be shown to it at all.
    notes: what explains it, by a prefix of names of faults.
    """

    package: str
    module: str
    means: str
    cannot: Callable[[Fault], bool] = lambda _: False
    notes: Mapping[tuple[str, ...], str]

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None

    @property
    def title(self) -> str:
        return f"{self.package} {version(self.package)}"


POLITESSE: Final = Peer(
    package="politesse",
    module="benchmarks.fault_crawls.politesse",
    means="PoliteSession",
    notes={},
)
SCRAPY: Final = Peer(
    package="scrapy",
    module="benchmarks.fault_crawls.scrapy",
    means="ROBOTSTXT_OBEY = True",
    notes={},
)
CRAWLEE: Final = Peer(
    package="crawlee",
    module="benchmarks.fault_crawls.crawlee",
    means="HttpCrawler(respect_robots_txt_file=True)",
    # Its client takes neither a resolver nor an authority.
    cannot=lambda fault: bool(fault.host) or fault.name == "certificate-good",
    notes={},
)
PEERS: Final = (POLITESSE, SCRAPY, CRAWLEE)

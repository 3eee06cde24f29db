"""The crawlers that are compared, and explanations of their requests."""

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
    package: the package that is imported, for its version.
    module: of the crawler.
    means: the part of the package that crawls.
    cannot: whether a fault cannot be shown to it at all.
    notes: explanations, by a prefix of names of faults.
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
AIOHTTP: Final = Peer(
    package="aiohttp",
    module="benchmarks.fault_crawls.aiohttp_protego",
    means="ClientSession with Protego; without a 2xx, everything is allowed",
    notes={
        ("refuses-", "never-", "closes-", "resets-", "drips-", "stalls-", "chunk-", "429-", "status-50"): (
            "A robots.txt that cannot be fetched counts as an empty one, as most crawlers of this kind have it."
        ),
    },
)
SCRAPY: Final = Peer(
    package="scrapy",
    module="benchmarks.fault_crawls.scrapy",
    means="ROBOTSTXT_OBEY = True",
    notes={
        ("refuses-", "never-", "closes-", "resets-", "drips-", "stalls-", "chunk-", "429-", "status-50"): (
            "RetryMiddleware asks three times in all (RETRY_TIMES = 2). Whatever RobotsTxtMiddleware still cannot "
            "download leaves no parser, and no parser denies nothing; each attempt has a DOWNLOAD_TIMEOUT of its own, "
            "180 s by default."
        ),
        ("status-", "redirect-without-", "redirect-to-file", "redirect-to-ftp"): (
            "The body is parsed whatever the status. Here the body of an error is the file: a 404 closes /private "
            "and a 500 opens /page. The usual error page has no rules, and opens all."
        ),
        ("redirect-",): (
            "RedirectMiddleware follows up to 20 (REDIRECT_MAX_TIMES), to whatever http or https address; a target of "
            "another scheme is not followed, and the body of the redirect is the file."
        ),
        ("endless-body", "100-mb-line", "million-groups", "gzip-bomb-"): (
            "Whatever comes up to DOWNLOAD_MAXSIZE, 1 GiB by default, also when decoded, is kept and parsed whole; "
            "a larger or slower file counts as not downloaded, which opens all."
        ),
        ("gzip-cut", "gzip-in-gzip"): "The decoded part is taken for the whole file.",
        ("certificate-",): "DOWNLOAD_VERIFY_CERTIFICATES is False by default.",
    },
)
CRAWLEE: Final = Peer(
    package="crawlee",
    module="benchmarks.fault_crawls.crawlee",
    means="HttpCrawler(respect_robots_txt_file=True)",
    # Its client takes neither a resolver nor an authority.
    cannot=lambda fault: bool(fault.host) or fault.name == "certificate-good",
    notes={
        ("never-", "drips-", "stalls-", "endless-continue", "chunk-size-endless"): (
            "RobotsTxtFile.load gives no timeout, ImpitHttpClient hands impit the None, and None there means none at "
            "all, even if the client has a timeout: the crawl waits for robots.txt until it is killed, "
            "and that of every other host with it, for there is one lock."
        ),
        ("closes-", "resets-", "not-http", "content-length-", "chunk-", "gzip-", "certificate-", "utf-16"): (
            "RobotsTxtFile.load takes any exception for a file that allows everything; one of decoding, of UTF-8 "
            "and of too many redirects, too."
        ),
        ("endless-body", "100-mb-line", "million-groups", "gzip-bomb-"): (
            "The body has no limit, is kept whole, and parsed whole in the event loop. Where it dies, impit has come "
            "to the memory that a crawl may take here, and aborts the process."
        ),
        ("redirect-",): (
            "ImpitHttpClient follows up to 20, to whatever http or https address; a target of another scheme is not "
            "followed, and the body of the redirect is the file."
        ),
        ("status-",): "Any status of 500 or more denies, any of 400 to 499 allows, and 206, 304 and 3xx are files.",
        ("certificate-", "redirect-to-loopback-"): (
            "impit takes no authority and no resolver, so that a good certificate and a public name cannot be shown to "
            "it. Bad certificates are refused, which opens the gate; then the page is refused for the same reason."
        ),
    },
)
PEERS: Final = (POLITESSE, AIOHTTP, SCRAPY, CRAWLEE)

"""The politeness layer for async crawlers: may this URL be requested, and why?

::

    origin, verdict, errors, events, status, clock, ports   the types and ports that all packages share
    usage/          usage preferences of sites, reported beside the verdict
    robots/         robots.txt: lexer, groups, rules (pure)
    page/           statements in a page: META robots, X-Robots-Tag, links (pure)
    fetch/, stores/ fetching bytes; keeping bytes
    queue/          the frontier: URLs in, turns at ready hosts out
    integrations/   aiohttp, httpx, httpx2, requests, Crawlee, Playwright and Scrapy
    options, sites  the options of a gatekeeper; files beside robots.txt
    ledger/, audit/ a record of each decision; which requests in a log broke the rules
    signing/        signed requests, by which a site can tell who a crawler is
    metrics, watch  figures of gates for Prometheus; a page that shows and steers a crawl
    sync            the gate for threads
    testing/, cli/  for the tests of a crawler; the command ``politesse``
    robotrules      the interface of Perl's WWW::RobotRules

    _base/          texts, constants, checks and reasons that all packages share; it imports no other package
    _http/          HTTP: dates, freshness, rate limits, redirects, bodies, signatures (pure)
    _native/        the compiled core of robots/
    _judge          judges a log, for audit/, testing/ and the demo
    _cache/         the copy of each robots.txt, fetched once and kept while fresh
    _pacing/        when the next request to a host may start
    _sites/         files that are fetched like pages: data.txt, tdmrep.json
    _gate/          permission and turn for one URL

This package exports the names that most programs need; the modules above export all other public names. The names are
loaded at their first use, so that the command ``politesse`` handles Ctrl-C from its first moment.
"""

from politesse._base import __version__

TYPE_CHECKING = False  # replaces ``typing.TYPE_CHECKING``, because typing takes time to load

if TYPE_CHECKING:
    from politesse._gate.gatekeeper import Gatekeeper
    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView
    from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL, PolitesseError, TooFar
    from politesse.integrations.aiohttp import PoliteSession
    from politesse.options import CacheOptions, FetchOptions, HostPolicy, PacingOptions
    from politesse.origin import Origin
    from politesse.queue import CrawlPage, PoliteQueue, QueueClosed
    from politesse.robots import Dialect, RobotsTxt
    from politesse.verdict import Bound, NotYet, Reason, Verdict

_HOMES = (
    "_gate.gatekeeper",
    "_gate.turn",
    "_gate.view",
    "errors",
    "integrations.aiohttp",
    "options",
    "origin",
    "queue",
    "robots",
    "verdict",
)

__all__ = [
    "AgentView",
    "Bound",
    "CacheOptions",
    "ClosedError",
    "ConfigurationError",
    "CrawlPage",
    "Dialect",
    "Disallowed",
    "FetchOptions",
    "Gatekeeper",
    "HostPolicy",
    "InvalidURL",
    "NotYet",
    "Origin",
    "PacingOptions",
    "PoliteQueue",
    "PoliteSession",
    "PolitesseError",
    "QueueClosed",
    "Reason",
    "RobotsTxt",
    "TooFar",
    "Turn",
    "Verdict",
    "__version__",
]


if not TYPE_CHECKING:  # so that a type checker reports unknown names

    def __getattr__(name: str) -> object:
        """Load all names, and return the requested name (PEP 562)."""
        if name in __all__:
            from importlib import import_module  # noqa: PLC0415 - see above

            for home in _HOMES:
                module = import_module(f"politesse.{home}")
                globals().update({each: getattr(module, each) for each in __all__ if hasattr(module, each)})
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module 'politesse' has no attribute {name!r}{_hint(name)}", name=name) from None

    def _hint(name: str) -> str:
        """Return where a public name of a submodule is, to append to a message; read from the text of the modules."""
        import re  # noqa: PLC0415 - see above
        from pathlib import Path  # noqa: PLC0415 - see above

        folder = Path(__file__).parent
        if name.startswith("_") or any((folder / place).exists() for place in (name, f"{name}.py")):
            return ""  # ``from politesse import stores`` looks for an attribute first
        homes = [folder.glob(pattern) for pattern in ("*.py", "integrations/*.py", "stores/*.py", "**/__init__.py")]
        for path in sorted({path for home in homes for path in home}):
            module = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
            text = "" if "._" in module else path.read_text("utf-8")
            names = re.search(r"^__all__ = \[[^]]*", text, re.MULTILINE)
            if f'"{name}"' in names[0] if names else re.search(rf"^(class|(async )?def) {name}\b", text, re.MULTILINE):
                return f": write 'from {module} import {name}'"
        return ""


del TYPE_CHECKING

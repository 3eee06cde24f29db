"""The options of ``politesse crawl``: their types and their help."""

from pathlib import Path
from typing import Annotated, Final

import typer

from politesse import __version__
from politesse.cli.crawl_command import DEFAULT_MAX_PAGES
from politesse.errors import ConfigurationError

CRAWLER: Final = f"politesse/{__version__} (crawl)"

Sent = Annotated[
    str,
    typer.Option(
        metavar="UA",
        help="The User-Agent of your crawler: it is sent with every request, and its product token selects the "
        "rules. Name a way to reach you, as in 'ExampleBot/1.0 (+https://example.com/bot)'.",
    ),
]
Sitemaps = Annotated[
    list[str] | None,
    typer.Option(
        "--sitemaps",
        metavar="URL",
        help="Start from the pages in the sitemaps of this site, too: the sitemaps that its robots.txt lists, or "
        "/sitemap.xml. A URL with a path is a sitemap file. May be given several times.",
    ),
]
MaxPages = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help=f"Stop after N pages.  [default: no limit; {DEFAULT_MAX_PAGES:,} with --any-host]",
        show_default=False,
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Follow at most N links from a start URL to a page.  [default: no limit]",
        show_default=False,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Follow only links and redirects to this host (example.com), to a domain with all its hosts "
        "(.example.com), or to a path as in robots.txt (/docs/*.html$, example.com/docs/). May be repeated: one of "
        "the patterns must match.",
    ),
]
Deny = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Follow no links that match this pattern. May be repeated.")
]
MaxPerHost = Annotated[int | None, typer.Option(metavar="N", min=1, help="Request N pages of each host at most.")]
Time = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0.001, help="Begin no more requests after this time.")
]
MinDelay = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="Pause between two requests to a host at least this long; longer if its robots.txt or its answers "
        "require it.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", dir_okay=False, allow_dash=True, help="Write one JSON object per URL here; - for stdout."
    ),
]
Warc = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", dir_okay=False, help="Keep the pages in this new WARC file, compressed if it ends with .gz."
    ),
]
Ledger = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="Record each decision and each request in this ledger."),
]
Journal = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="Keep the URLs in this file: the same command continues a crawl that was stopped or killed.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="Go on with the crawl of this journal; URLs are not needed. Repeat the other options.",
    ),
]
SameHost = Annotated[
    bool,
    typer.Option(
        "--same-host/--any-host",
        help="Follow only links to the hosts of the URLs, to the hosts that the URLs redirect to, and to the hosts "
        "that --allow names; or follow links to any host. Redirects are followed to any host, unless --allow or --deny "
        "forbids it.",
    ),
]
AllowPrivate = Annotated[
    bool,
    typer.Option(
        "--allow-private",
        help="Request private addresses, too, such as those of your own network. Without this option they are "
        "requested only if the host of one of the URLs has a private address.",
    ),
]


def journal_of(journal: Path | None, resume: Path | None, *, has_urls: bool) -> Path | None:
    """Return the journal that the options name.

    Raises:
        ConfigurationError: there are neither URLs nor a journal to resume, both options name a journal, or the journal
            to resume does not exist.
    """
    if journal is not None and resume is not None:
        raise ConfigurationError("--journal and --resume name the same file: give one of them")
    if resume is not None and not resume.exists():
        raise ConfigurationError(f"--resume {resume}: there is no such file; --journal begins one")
    if not has_urls and resume is None:
        raise ConfigurationError(
            "Missing argument URL: give one, or --sitemaps, or --resume with the journal of an earlier crawl"
        )
    return journal or resume

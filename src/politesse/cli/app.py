"""The commands and their options, as typer reads them."""

from __future__ import annotations

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Annotated, Final

import typer

from politesse import Dialect, __version__
from politesse.cli import bot_command, fleet_command, key_command, ledger_command, store_command
from politesse.cli.audit_command import audit
from politesse.cli.check_command import print_verdicts
from politesse.cli.console import errors, output
from politesse.cli.crawl_command import DEFAULT_MAX_PAGES, CrawlPlan, crawl_urls
from politesse.cli.demo import run as run_demo
from politesse.cli.diff_command import diff
from politesse.cli.file_commands import explain_url, lint_all, print_codes
from politesse.cli.filter_command import filter_stdin
from politesse.cli.fleet_command import DEFAULT_PREFIX, FleetPrefix, FleetURL
from politesse.cli.guide_command import print_guide, print_topics
from politesse.cli.running import AsJson, GateOptions, awaited, checked_arguments, run
from politesse.errors import ConfigurationError
from politesse.robots import IMPLEMENTATION

app: typer.Typer = typer.Typer(
    name="politesse",
    help="Check before you crawl: which URLs does robots.txt permit, and why?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # tracebacks without the values of variables, which may be secret
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(store_command.app)
app.add_typer(ledger_command.app)
app.add_typer(fleet_command.app)
app.command()(audit)
app.add_typer(key_command.app)
app.command("card")(bot_command.card)
app.command("bot-page")(bot_command.bot_page)

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


Agent = Annotated[
    str,
    typer.Option(
        metavar="TOKEN_OR_UA",
        help="Judge for this product token, or for the product token of this User-Agent. The requests for robots.txt "
        "have politesse's own User-Agent.",
    ),
]
InDialect = Annotated[
    Dialect,
    typer.Option("--dialect", metavar="NAME", help=f"Read as one of {', '.join(one.value for one in Dialect)}."),
]
StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        dir_okay=False,
        help="Keep each robots.txt and the state of each host in this file, for later runs.",
    ),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="For one robots.txt with its redirects.")]


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        output().print(f"politesse {__version__} (rules of robots.txt: {IMPLEMENTATION})", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Check before you crawl: which URLs does robots.txt permit, and why?"""


@app.command()
def check(  # noqa: PLR0913 - the options of the command
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Absolute http or https URLs.")],
    agent: Agent = "politesse",
    timeout: Timeout = 30.0,
    store: StoreFile = None,
    fleet: FleetURL = None,
    fleet_prefix: FleetPrefix = DEFAULT_PREFIX,
    *,
    as_json: AsJson = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page",
            help="Fetch each allowed page, in its turn. Report its directives for robots, its links to follow and its "
            "usage preferences, and the sitemaps, tdmrep.json and data.txt of its site.",
        ),
    ] = False,
    host: Annotated[
        bool,
        typer.Option(
            "--host",
            help="Then report for each host: its pace and the source of the pace, the time until which it is closed, "
            "its waiting requests, the holder of its turn, and the state and age of its robots.txt.",
        ),
    ] = False,
) -> None:
    """Report whether robots.txt allows each URL, which line decides, and how long the answer is valid.

    Exit code: 0 if all URLs are allowed, 1 if one is disallowed, 2 if an argument is not a URL, or if a robots.txt or a
    page cannot be fetched.

    With --json: url, allowed, reason, agent, rule {line, field, value}, source {robots_url, result, status, final_url,
    fetched, fresh_until, fault}, age_s, not_before, note; with --page also page. With --host, another object for each
    host: host, interval_s, bound_by, not_before, closed_until, closed_by, waiting, in_flight, held_by, held_s, robots
    [{origin, result, status, fault, age_s, fetching, next_fetch}], fleet_wait {not_before, bound_by, held_by}.
    """
    options = GateOptions.of(agent, timeout, store, fleet, fleet_prefix)
    run(print_verdicts(options, urls, output(), errors(), as_json=as_json, with_page=page, with_hosts=host))


@app.command()
def explain(
    url: Annotated[str, typer.Argument(metavar="URL", help="An absolute http or https URL.")],
    agent: Agent = "politesse",
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read this file instead of the site's robots.txt; - for standard input."),
    ] = None,
    dialect: InDialect = Dialect.RFC9309,
    timeout: Timeout = 30.0,
    *,
    all_dialects: Annotated[
        bool,
        typer.Option(
            "--all-dialects", help="Print one line for each dialect, with a star if it differs from --dialect."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show robots.txt with the groups that apply, the rules that match, the deciding rule, and why.

    Exit code: 0 if the URL is allowed, 1 if it is disallowed, 2 if the answer could not be decided.

    With --json, for each dialect: the keys of politesse check, then dialect, groups [{agents, lines}], matches [{line,
    field, value, length}], usage, licenses.
    """
    options = GateOptions.of(agent, timeout)
    dialects = list(dict.fromkeys([dialect, *Dialect])) if all_dialects else [dialect]
    run(explain_url(options, url, file, dialects, output(), as_json=as_json))


@app.command("filter")
def filter_(
    agent: Agent = "politesse",
    timeout: Timeout = 30.0,
    rejected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write the other URLs here, each with a tab and the reason."),
    ] = None,
    store: StoreFile = None,
    fleet: FleetURL = None,
    fleet_prefix: FleetPrefix = DEFAULT_PREFIX,
) -> None:
    """Copy each allowed URL from standard input, one per line, to standard output, as soon as it is decided.

    The order of the URLs changes. Empty lines, and lines that begin with #, are skipped.

    Exit code: 0 if each URL was decided, allowed or not; 2 if a URL could not be decided.
    """
    options = GateOptions.of(agent, timeout, store, fleet, fleet_prefix)
    run(filter_stdin(options, errors(), rejected))


@app.command()
def crawl(  # noqa: PLR0913 - the options of the command
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="URL", help="Absolute http or https URLs to start from.")
    ] = None,
    agent: Sent = CRAWLER,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="For one page, and for one robots.txt.")
    ] = 30.0,
    max_pages: MaxPages = None,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="Request N hosts at once.")] = 20,
    out: Out = None,
    journal: Journal = None,
    resume: Resume = None,
    *,
    warc: Warc = None,
    depth: Depth = None,
    allow: Allow = None,
    deny: Deny = None,
    max_per_host: MaxPerHost = None,
    time: Time = None,
    min_delay: MinDelay = 1.0,
    store: StoreFile = None,
    fleet: FleetURL = None,
    fleet_prefix: FleetPrefix = DEFAULT_PREFIX,
    same_host: SameHost = True,
    allow_private: AllowPrivate = False,
    sitemaps: Sitemaps = None,
    ledger: Ledger = None,
) -> None:
    """Crawl a site: follow the links of each page, and request each URL once, in its turn, if robots.txt allows it.

    Links are read in the first 512 KiB of an HTML page; links and pages that say nofollow are respected. In a terminal
    a table shows the progress. After Ctrl-C the crawl still writes its records and its summary; a second Ctrl-C ends
    the program at once.

    Exit code: 0 if all URLs, or --max-pages pages, are done. 1 if a URL failed or was given up, or if a URL on the
    command line is disallowed. (A URL is given up if its robots.txt is unreachable, or if its site makes the crawl wait
    too long.) 3 if a site refuses the crawler. 2 if an option is invalid or a file cannot be written. 130 after Ctrl-C.

    With --out: url and outcome; page: status, content_type, bytes, truncated, hops, attempt, depth, started, request_s,
    elapsed_s, links, queued; redirect: status, location, started, request_s, elapsed_s; sitemap: status, started,
    request_s, elapsed_s; failed: error, status, hops, attempt, depth, started, request_s, elapsed_s; disallowed,
    given-up, refused: reason, rule {line, field, value}, robots_url, note; left: no other keys. request_s lasts until
    the answer was read, elapsed_s until the URL was done. With a journal, the remaining URLs (outcome left) are not
    recorded, and a continued crawl appends to the file of --out. --warc keeps the first 8 MiB of each page.
    """
    options = GateOptions.of(agent, timeout, store, fleet, fleet_prefix)
    with checked_arguments():
        journal = journal_of(journal, resume, has_urls=bool(urls or sitemaps))
        plan = CrawlPlan(
            urls or [],
            options,
            agent,
            workers,
            same_host,
            allow_private,
            max_pages,
            depth,
            allow,
            deny or (),
            max_per_host,
            time,
            min_delay,
            out=out,
            warc=warc,
            journal=journal,
            sitemaps=sitemaps or (),
            ledger=ledger,
        )
    run(crawl_urls(plan, errors()))


def _show_codes(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        print_codes(output())
        raise typer.Exit


@app.command()
def lint(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL",
            help="Files, - for standard input, or http(s) URLs of sites, whose robots.txt is fetched.",
        ),
    ],
    dialect: InDialect = Dialect.RFC9309,
    timeout: Timeout = 30.0,
    *,
    as_json: AsJson = False,
    codes: Annotated[
        bool, typer.Option("--codes", callback=_show_codes, is_eager=True, help="List the codes and what they mean.")
    ] = False,
) -> None:
    """Report mistakes in robots.txt, rules that never take effect, and lines that other parsers would misread.

    Exit code: 0 without errors, even with warnings; 1 with errors; 2 if a file or a site could not be read.

    With --json: file, line, column, severity, code, message.
    """
    del codes  # handled by _show_codes, the callback of the option
    options = GateOptions.of("politesse", timeout)
    run(lint_all(options, sources, dialect, output(), errors(), as_json=as_json))


app.command()(diff)


@app.command()
def demo(
    pages: Annotated[int, typer.Option(metavar="N", min=200, help="How many pages to make, about.")] = 3_000,
) -> None:
    """Crawl a small web on this machine, and judge the crawl by the logs of its servers.

    Each page is counted as fetched, as disallowed by robots.txt, as given up because the server never answers for
    robots.txt, or as left. A request breaks a rule in three cases: its page is disallowed; no valid robots.txt was
    fetched before; the request comes sooner than Retry-After, the site's pace or the crawler's own pause permits.

    Exit code: 0 if every allowed page was fetched and no rule was broken; else 1.
    """
    run(run_demo(output(), pages))


@app.command()
def guide(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="One of the topics; without, list them.")] = None,
) -> None:
    """Show a guide, or list the guides.

    Each guide has one topic, with programs to copy. A guide is Markdown. A guide that is longer than the terminal is
    shown by the program in $PAGER (by default less).
    """
    with checked_arguments():
        print_topics(output()) if topic is None else print_guide(topic, output())


def _unwrapped(text: str) -> str:
    """Return a docstring with each paragraph in one line, because typer's help would keep the line ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


for _command in [
    one
    for group in (app, store_command.app, ledger_command.app, fleet_command.app, key_command.app)
    for one in group.registered_commands
]:
    _command.help = _unwrapped((_command.callback and _command.callback.__doc__) or "")
    if iscoroutinefunction(_command.callback):
        _command.callback = awaited(_command.callback)

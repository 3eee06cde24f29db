"""Pages and their headers.

Invariant: reading a response never raises, and another header line never allows more. Every link that may be followed
is an absolute http(s) URL in the form in which it is requested.

Input: lines of headers; behind a blank line the body.
"""

import math
from typing import Final

from politesse.origin import split
from politesse.page import PageDirectives, followable_links
from politesse.page.preferences import header_usage, response_usage
from politesse.page.tdmrep import parse_tdmrep, tdmrep_usage
from tests.fuzz.target import Target, dictionary, text

_URL: Final = "https://example.com/a/b?c"
_NOW_WALL: Final = 1_700_000_000.0
_PREVIEWS: Final = ("none", "standard", "large", None)
_AGENT: Final = "ExampleBot"


def check(octets: bytes) -> None:
    """Hold the reading of a response to the invariant."""
    head, _, body = octets.partition(b"\n\n")
    headers: list[tuple[str, str]] = []
    for line in text(head).split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip(), value.strip(" \t")))
    html = [("Content-Type", "text/html")]
    page = PageDirectives.from_response(headers, body, _AGENT)
    _check_less(page, PageDirectives.from_response(headers[:-1], body, _AGENT), headers[-1:])
    _check_less(PageDirectives.from_response(headers + html, body, _AGENT, in_body=True), page, html)
    for max_links in (10_000, 1):
        links = followable_links(body, _URL, headers=headers, token=_AGENT, max_links=max_links)
        _check_links(links, max_links)
    _check_links(followable_links(body, _URL, headers=html, token=_AGENT), 10_000)
    _check_usage(headers, body, page)


def _check_less(more: PageDirectives, less: PageDirectives, line: list[tuple[str, str]]) -> None:
    """Check that another header line allows no more, unless it changes the type of the body."""
    if line and line[0][0].lower() == "content-type" and line[0][1] != "text/html":
        return
    pairs = zip(_permissions(more), _permissions(less), strict=True)
    assert all(after <= before for after, before in pairs), f"{line} allows more"


def _permissions(page: PageDirectives) -> list[float]:
    """Return all answers as numbers that are the greater the more is allowed."""
    answers = (
        page.may_index(_NOW_WALL),
        page.may_follow,
        page.may_archive,
        page.may_snippet,
        page.may_translate,
        page.may_index_images,
    )
    assert all(str(answer) for answer in answers)
    limits = (page.max_snippet, page.max_video_preview_s, page.unavailable_after)
    assert page.revisit_after_days is None or page.revisit_after_days >= 0
    assert isinstance(page.description, str)
    assert all(page.keywords)
    return [
        *map(float, map(bool, answers)),
        *(math.inf if limit is None else limit for limit in limits),
        _PREVIEWS.index(page.max_image_preview),
    ]


def _check_links(links: list[str], most: int) -> None:
    assert len(links) <= most
    assert len(set(links)) == len(links)
    for link in links:
        origin, target = split(link)
        assert f"{origin}{target}" == link, "not in the form in which it is requested"
        assert link.isascii(), link
        assert link.isprintable(), link
        assert " " not in link, link
        assert "#" not in link, link


def _check_usage(headers: list[tuple[str, str]], body: bytes, page: PageDirectives) -> None:
    said = header_usage(headers, _URL)
    assert header_usage(iter(headers), _URL) == said
    assert set(said.statements) <= set(response_usage(headers, page, _URL).statements)
    file = parse_tdmrep(body)
    assert not (file.locations and file.fault)
    tdmrep_usage(file, "/a?b=%5B")


TARGET: Final = Target("page", check, dictionary("page"), 1024, short_runs=1_500)

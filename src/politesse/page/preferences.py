"""Reads the usage preferences of a response from its headers, and from the META and LINK elements of its page."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from politesse._base.text import BLANKS
from politesse._http.fields import Headers, header_pairs
from politesse.origin import StrOrURL, url_text
from politesse.page.directives import header_lines
from politesse.page.links import MAX_URL, document_base, trimmed
from politesse.usage import vocabulary
from politesse.usage.model import License, Mechanism, Place, Preference, Purpose, Statement, Usage, combine
from politesse.usage.vocabulary import MAX_OCTETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from politesse.page.directives import PageDirectives

_TDM_RESERVATION: Final = "tdm-reservation"
_TDM_POLICY: Final = "tdm-policy"
_MAX_LICENSES: Final = 256
_NOAI: Final = {"noai": "", "noimageai": "images"}

# The repetitions are possessive, so that each parameter is read once. A quoted string that is not closed extends to the
# end (RFC 9110 5.6.4).
_PARAMETER = re.compile(
    r"""[ \t]*+;([^;,=]*+)(?:=[ \t]*+(?:"((?:[^"\\]++|\\.)*+)(?:"|\\?\Z)|([^;,]*+)))?+[^;,]*+""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def header_usage(headers: Headers, url: str) -> Usage:
    """Return the preferences in the headers: Content-Usage, Content-Signal, TDMRep, Link with ``rel=license``.

    No content of headers raises an error. At most 64 KiB of each header, and the first 256 licenses, are read. A longer
    Content-Usage is ignored, because a part of it could have another meaning.

    Args:
        headers: see ``politesse.page.Headers``.
        url: the absolute URL of the response, against which relative licenses are resolved.
    """
    pairs = header_pairs(headers)
    (usages, cut), (signals, _), (links, _), (values, _), (policies, _) = (
        header_lines(pairs, name) for name in ("content-usage", "content-signal", "link", _TDM_RESERVATION, _TDM_POLICY)
    )
    said = [*_content_usage(usages, cut=cut), *_content_signals(signals)]
    said += _reservations(values, policies, Place.HEADER)
    return Usage(tuple(said), tuple(said), tuple(islice(_licenses(links, url), _MAX_LICENSES)))


def meta_usage(metas: Iterable[tuple[str, str]]) -> Usage:
    """Return the preferences of the META elements about text and data mining: ``tdm-reservation``.

    Args:
        metas: the name and content of each META, in order. Names are case-insensitive.
    """
    named = [(name.strip().lower(), content[:MAX_OCTETS]) for name, content in metas]
    reservations = [content for name, content in named if name == _TDM_RESERVATION]
    policies = [content for name, content in named if name == _TDM_POLICY]
    said = tuple(_reservations(reservations, policies, Place.META))
    return Usage(said, said)


def response_usage(headers: Headers, page: PageDirectives, url: StrOrURL) -> Usage:
    """Return all preferences of a response: headers, META elements, ``<link rel="license">`` and ``noai``.

    The directive ``noai`` forbids training a model on the page. ``noimageai`` forbids training on the images. The
    result reports ``noimageai``, but the preferences for the page do not change.

    >>> from politesse.page import PageDirectives
    >>> headers = {"Content-Usage": "train-ai=n"}
    >>> page = PageDirectives.from_response(headers, None)
    >>> response_usage(headers, page, "https://example.com/page").preference("ai-train")
    <Preference.DISALLOWED: 'disallowed'>

    Args:
        headers: see ``politesse.page.Headers``.
        page: the directives of the response for this crawler.
        url: the absolute URL of the response, against which relative licenses are resolved.

    Raises:
        TypeError: ``url`` is neither a str nor a yarl.URL.
    """
    url = url_text(url)
    noai = tuple(_noai(page))
    of_page = Usage(noai, noai, tuple(_linked_licenses(page, url)))
    return combine([header_usage(headers, url), meta_usage(page.metas), of_page])


def _content_usage(lines: Sequence[str], *, cut: bool) -> tuple[Statement, ...]:
    if not lines:
        return ()
    value = ", ".join(lines)  # RFC 9651 4.2: several lines are one dictionary
    template = Statement(
        None, Preference.UNSTATED, Mechanism.CONTENT_USAGE, Place.HEADER, f"Content-Usage: {value[:MAX_OCTETS]}"
    )
    return vocabulary.statements({} if cut else vocabulary.parse_content_usage(value.strip(BLANKS)), template)


def _content_signals(lines: Sequence[str]) -> Iterator[Statement]:
    for line in lines:
        signals, use = vocabulary.parse_content_signal(line)
        template = Statement(
            None, Preference.UNSTATED, Mechanism.CONTENT_SIGNAL, Place.HEADER, f"Content-Signal: {line}", use=use
        )
        yield from vocabulary.statements(signals, template)


def _reservations(values: Sequence[str], policies: Sequence[str], place: Place) -> Iterator[Statement]:
    """Yield the TDMRep statements in the headers or in the METAs; if they differ, the most restrictive counts."""
    policies = list(dict.fromkeys(policy.strip() for policy in policies))
    reservations = dict.fromkeys(one.strip() for value in values for one in value.split(","))
    for value in reservations:
        preference = vocabulary.parse_tdm_reservation(value)
        policy = policies[0] if policies else ""
        text = f"{_TDM_RESERVATION}: {value}"
        yield Statement(Purpose.TDM, preference, Mechanism.TDMREP, place, text, policy=policy)
    # A policy without a reservation, or a second policy, has no defined meaning; but it is reported.
    for policy in policies[1:] if reservations else policies:
        text = f"{_TDM_POLICY}: {policy}"
        yield Statement(Purpose.TDM, Preference.UNSTATED, Mechanism.TDMREP, place, text, policy=policy)


def _noai(page: PageDirectives) -> Iterator[Statement]:
    for word, media in _NOAI.items():
        for said in page.named(word):
            place = Place.META if said.field.startswith("META ") else Place.HEADER
            text = f"{said.field.removeprefix('META ')}: {said.text[:MAX_OCTETS]}"
            scope = said.directive.scope
            yield Statement(
                Purpose.AI_TRAIN, Preference.DISALLOWED, Mechanism.NOAI, place, text, agent=scope, media=media
            )


def _licenses(lines: Sequence[str], base: str) -> Iterator[License]:
    for line in lines:
        for reference, relations, text in _links(line):
            is_license = "license" in relations.lower().split()
            if is_license and (url := _license_url(base, reference.strip())) is not None:
                yield License(url, Place.HEADER, f"Link: {text}")


def _linked_licenses(page: PageDirectives, url: str) -> Iterator[License]:
    base = document_base(page.base_href, url)
    for href in page.licenses:
        reference = trimmed(href)
        if 0 < len(reference) <= MAX_URL and (license_url := _license_url(base, reference)) is not None:
            yield License(license_url, Place.LINK, f"rel=license href={reference}")


def _license_url(base: str, reference: str) -> str | None:
    """Return the URL of a license, or None if the reference is invalid."""
    try:
        url = urljoin(base, reference)
    except ValueError:
        return None
    return url if vocabulary.is_absolute_url(url) else None


def _links(value: str) -> Iterator[tuple[str, str, str]]:
    """Yield reference, relation types and text of each link of a Link header (RFC 8288 3, Appendix B.2)."""
    start = value.find("<")
    while start >= 0 and (end := value.find(">", start)) >= 0:
        relations, behind = None, end + 1
        while (parameter := _PARAMETER.match(value, behind)) is not None:
            name, quoted, plain = parameter.groups("")
            if name.strip(BLANKS).lower() == "rel" and relations is None:  # RFC 8288 3.3: the first "rel" counts
                relations = _ESCAPED.sub(r"\1", quoted) or plain.strip(BLANKS)
            behind = parameter.end()
        yield value[start + 1 : end], relations or "", value[start:behind].rstrip(BLANKS)
        start = value.find("<", behind)

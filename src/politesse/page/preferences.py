"""Usage preferences of a response: its headers, and the META and LINK elements of its page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from politesse._text import BLANKS
from politesse.origin import StrOrURL, url_text
from politesse.page.headers import Headers, cut_lines, header_pairs
from politesse.page.links import MAX_URL, document_base, trimmed
from politesse.usage import vocabulary
from politesse.usage.model import License, Mechanism, Place, Preference, Purpose, Statement, Usage, combine
from politesse.usage.vocabulary import MAX_OCTETS

if TYPE_CHECKING:
    from politesse.page.directives import PageDirectives

_CONTENT_USAGE: Final = "content-usage"
_CONTENT_SIGNAL: Final = "content-signal"
_LINK: Final = "link"
_TDM_RESERVATION: Final = "tdm-reservation"
_TDM_POLICY: Final = "tdm-policy"
_HEADERS: Final = (_CONTENT_USAGE, _CONTENT_SIGNAL, _LINK, _TDM_RESERVATION, _TDM_POLICY)
_MAX_LICENSES: Final = 256
_NOAI: Final = {"noai": "", "noimageai": "images"}

# Runs of one class of characters, which cannot backtrack.
_IN_BLANKS = re.compile(r"[ \t]*")
_IN_NAME = re.compile(r"[^;,=]*")
_IN_PARAMETER = re.compile(r"[^;,]*")
_IN_QUOTES = re.compile(r'[^"\\]*')


def header_usage(headers: Mapping[str, str] | Iterable[tuple[str, str]], url: str) -> Usage:
    """Return the preferences in the headers: Content-Usage, Content-Signal, TDMRep, Link with ``rel=license``.

    Never raises on the content of headers. 64 KiB of each header and the first 256 licenses are read. A longer
    Content-Usage is ignored, because a part of it would have another meaning.

    Args:
        headers: pairs, or a mapping whose ``items`` are separate lines, or lines joined with commas. Names are
            case-insensitive.
        url: the absolute URL of the response, against which relative licenses are resolved.
    """
    lines: dict[str, list[str]] = {name: [] for name in _HEADERS}
    room = dict.fromkeys(_HEADERS, MAX_OCTETS + 1)  # one more, so that an excess is noticed
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        field = name.lower()
        if room.get(field, 0) > 0:
            lines[field].append(value[: room[field]])
            room[field] -= len(value) + 1
    said = [*_content_usage(lines[_CONTENT_USAGE]), *_content_signals(lines[_CONTENT_SIGNAL])]
    said += _reservations(lines[_TDM_RESERVATION], lines[_TDM_POLICY], Place.HEADER)
    return Usage(tuple(said), tuple(said), tuple(islice(_licenses(lines[_LINK], url), _MAX_LICENSES)))


def meta_usage(metas: Iterable[tuple[str, str]]) -> Usage:
    """Return the preferences of the META elements about text and data mining: ``tdm-reservation``.

    Args:
        metas: name and content of each, in order. Names are case-insensitive.
    """
    reservations: list[str] = []
    policies: list[str] = []
    for given, content in metas:
        name = given.strip().lower()
        if name == _TDM_RESERVATION:
            reservations.append(content[:MAX_OCTETS])
        elif name == _TDM_POLICY:
            policies.append(content[:MAX_OCTETS])
    said = tuple(_reservations(reservations, policies, Place.META))
    return Usage(said, said)


def response_usage(headers: Headers, page: PageDirectives, url: StrOrURL) -> Usage:
    """Return all preferences of a response: headers, META elements, ``<link rel="license">`` and ``noai``.

    The directive ``noai`` forbids training a model on the page. ``noimageai`` forbids it for the images; it is
    reported, but decides nothing for the page.

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
    return combine([header_usage(header_pairs(headers), url), meta_usage(page.metas), of_page])


def _content_usage(lines: Sequence[str]) -> tuple[Statement, ...]:
    if not lines:
        return ()
    value = ", ".join(lines)  # RFC 9651 4.2: several lines are one dictionary
    template = Statement(
        None, Preference.UNSTATED, Mechanism.CONTENT_USAGE, Place.HEADER, f"Content-Usage: {value[:MAX_OCTETS]}"
    )
    return vocabulary.statements(vocabulary.parse_content_usage(value.strip(BLANKS)), template)


def _content_signals(lines: Sequence[str]) -> Iterator[Statement]:
    for line in cut_lines(lines, MAX_OCTETS)[0]:
        signals, use = vocabulary.parse_content_signal(line)
        template = Statement(
            None, Preference.UNSTATED, Mechanism.CONTENT_SIGNAL, Place.HEADER, f"Content-Signal: {line}", use=use
        )
        yield from vocabulary.statements(signals, template)


def _reservations(values: Sequence[str], policies: Sequence[str], place: Place) -> Iterator[Statement]:
    """Yield the TDMRep statements of one place; the most restrictive of repeated values counts."""
    policies = list(dict.fromkeys(policy.strip() for policy in policies))
    reservations = dict.fromkeys(one.strip() for value in values for one in value.split(","))
    for value in reservations:
        preference = vocabulary.parse_tdm_reservation(value)
        policy = policies[0] if policies else ""
        text = f"{_TDM_RESERVATION}: {value}"
        yield Statement(Purpose.TDM, preference, Mechanism.TDMREP, place, text, policy=policy)
    # A policy without a reservation, or a second policy, has no defined meaning; it is reported all the same.
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
    """Return the URL of a license; None if the reference is invalid."""
    try:
        url = urljoin(base, reference)
    except ValueError:
        return None
    return url if vocabulary.is_absolute_url(url) else None


def _links(value: str) -> Iterator[tuple[str, str, str]]:
    """Yield reference, relation types and text of each link of a Link header (RFC 8288 3, Appendix B.2)."""
    start = value.find("<")
    while start >= 0 and (end := value.find(">", start)) >= 0:
        relations, behind = _relations(value, end + 1)
        yield value[start + 1 : end], relations, value[start:behind].rstrip(BLANKS)
        start = value.find("<", behind)


def _relations(value: str, place: int) -> tuple[str, int]:
    """Return the first ``rel`` of the parameters that start at ``place``, and the end of the parameters."""
    relations: str | None = None
    while (place := _past(_IN_BLANKS, value, place)) < len(value) and value[place] == ";":
        end = _past(_IN_NAME, value, place + 1)
        name, text, place = value[place + 1 : end].strip(BLANKS).lower(), "", end
        if value[place : place + 1] == "=":
            place = _past(_IN_BLANKS, value, place + 1)
            if value[place : place + 1] == '"':
                text, place = _quoted(value, place + 1)
            else:
                text = value[place : _past(_IN_PARAMETER, value, place)].strip(BLANKS)
        if name == "rel" and relations is None:  # RFC 8288 3.3: later rel parameters are ignored
            relations = text
        place = _past(_IN_PARAMETER, value, place)
    return relations or "", place


def _quoted(value: str, place: int) -> tuple[str, int]:
    """Return the content of a quoted string from behind its first quote, and its end (RFC 9110 5.6.4)."""
    parts: list[str] = []
    while place < len(value):
        end = _past(_IN_QUOTES, value, place)
        parts.append(value[place:end])
        if value[end : end + 1] != "\\":
            return "".join(parts), end + 1
        parts.append(value[end + 1 : end + 2])
        place = end + 2
    return "".join(parts), place


def _past(run: re.Pattern[str], value: str, place: int) -> int:
    """Return the end of a run of characters, which may be empty."""
    matched = run.match(value, place)
    return place if matched is None else matched.end()

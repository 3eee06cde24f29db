"""The values of usage preferences: how sites want their content to be used, for each purpose.

A usage preference is not a permission to request: it is reported beside the verdict, and changes the verdict only with
``enforce_usage``. Each mechanism has its own rules that select the statements: the longest path (Content-Usage), the
group (Content-Signal), the first location and the nearest place (TDMRep). These rules come first, for each mechanism
separately. Of the selected statements, the most restrictive preference applies (draft-ietf-aipref-vocab 5.1): one
refusal outweighs all permissions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final, NoReturn

from politesse._base.checks import check_choice
from politesse._base.text import printable, shortened

_MAX_SHOWN: Final = 160  # an explanation shortens a statement to this many characters


class Purpose(StrEnum):
    """A purpose for which content is used.

    >>> Purpose("ai-train")
    <Purpose.AI_TRAIN: 'ai-train'>
    """

    SEARCH = "search"
    """A search index, with links and short excerpts."""
    AI_TRAIN = "ai-train"
    """Training or fine-tuning a model."""
    AI_INPUT = "ai-input"
    """Input of a model at the time of a question, as in retrieval-augmented generation."""
    TDM = "tdm"
    """Text and data mining (Directive (EU) 2019/790, Article 4)."""

    @classmethod
    def given(cls, name: str, option: str) -> Purpose:
        """Return the purpose called ``name``, which the caller gave as the value of ``option``.

        Raises:
            ConfigurationError: the purpose is unknown.
        """
        check_choice(option, name, frozenset(cls), f"one of {', '.join(cls)}")
        return cls(name)


class Preference(StrEnum):
    """A site's preference about one purpose.

    >>> from politesse.usage import Usage
    >>> Usage().preference("search")
    <Preference.UNSTATED: 'unstated'>
    """

    ALLOWED = "allowed"
    DISALLOWED = "disallowed"
    UNSTATED = "unstated"
    """The site has no statement about the purpose, or only statements that cannot be understood."""


class Mechanism(StrEnum):
    """The standard or convention in which a preference is expressed.

    >>> Mechanism.TDMREP
    <Mechanism.TDMREP: 'tdmrep'>
    """

    CONTENT_USAGE = "content-usage"
    """AIPREF: draft-ietf-aipref-attach, draft-ietf-aipref-vocab."""
    CONTENT_SIGNAL = "content-signal"
    """Cloudflare's Content Signals."""
    TDMREP = "tdmrep"
    """TDM Reservation Protocol, of the W3C Text and Data Mining Reservation Protocol Community Group."""
    POLICY_TOKEN = "policy-token"  # noqa: S105 - a product token
    """A group of robots.txt for a product token that stands for a use, not for a crawler: ``Google-Extended``."""
    NOAI = "noai"
    """``noai`` and ``noimageai`` in META robots and X-Robots-Tag."""


class Place(StrEnum):
    """The place of a statement.

    >>> Place.HEADER
    <Place.HEADER: 'header'>
    """

    ROBOTS_TXT = "robots.txt"
    TDMREP_JSON = "tdmrep.json"
    HEADER = "header"
    META = "meta"
    LINK = "link"
    """A LINK element of a page."""


class Use(StrEnum):
    """The extent of a permitted use: the ``use`` of a Content-Signal.

    >>> Use("reference")
    <Use.REFERENCE: 'reference'>
    """

    IMMEDIATE = "immediate"
    REFERENCE = "reference"
    FULL = "full"


def most_restrictive(preferences: Iterable[Preference]) -> Preference:
    """Return the most restrictive of several preferences (draft-ietf-aipref-vocab 5.1)."""
    said = set(preferences)
    if Preference.DISALLOWED in said:
        return Preference.DISALLOWED
    return Preference.ALLOWED if Preference.ALLOWED in said else Preference.UNSTATED


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a site about one purpose.

    >>> says = Preference.DISALLOWED, Mechanism.TDMREP, Place.HEADER
    >>> print(Statement(Purpose.TDM, *says, "tdm-reservation: 1"))
    header: tdm-reservation: 1

    Attributes:
        purpose: the purpose, or None if the statement is unreadable or names no known purpose.
        preference: the preference for that purpose.
        mechanism: the standard or convention of the statement.
        place: the place of the statement.
        text: the statement as written; untrusted.
        number: the number of the line in robots.txt, or of the entry in tdmrep.json, from 1; 0 elsewhere.
        path: the path pattern to which the statement is limited, as written; empty without a limit.
        agent: the addressed crawler, or ``*`` for all crawlers that no group names; empty for all crawlers.
        use: the extent of the permitted use, or None.
        policy: the URL of a policy with details, as written, or empty.
        media: the kind of content to which the statement is limited, such as ``"images"``; empty for the page itself. A
            limited statement is reported, but has no effect.
    """

    purpose: Purpose | None
    preference: Preference
    mechanism: Mechanism
    place: Place
    text: str
    number: int = 0
    path: str = ""
    agent: str = ""
    use: Use | None = None
    policy: str = ""
    media: str = ""

    @property
    def may_decide(self) -> bool:
        """Whether the statement has a preference for the page itself."""
        return self.preference is not Preference.UNSTATED and not self.media

    def __str__(self) -> str:
        return _where(self.place, self.number, self.text)


@dataclass(frozen=True, slots=True)
class License:
    """A license for the use of content (RSL, Really Simple Licensing), to be read before the content is used.

    >>> print(License("https://example.com/license.xml", Place.ROBOTS_TXT, "License: /license.xml", 3))
    robots.txt line 3: License: /license.xml

    Attributes:
        url: the absolute URL of the license.
        place: the place of the reference.
        text: the reference as written; untrusted.
        number: the number of the line in robots.txt, from 1; 0 elsewhere.
    """

    url: str
    place: Place
    text: str
    number: int = 0

    def __str__(self) -> str:
        return _where(self.place, self.number, self.text)


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage preferences of a resource. A Usage has no truth value: use ``preference(purpose)``.

    >>> says = Preference.DISALLOWED, Mechanism.TDMREP, Place.HEADER
    >>> reserved = (Statement(Purpose.TDM, *says, "tdm-reservation: 1"),)
    >>> usage = Usage(reserved, applied=reserved)
    >>> usage.preference("tdm"), usage.preference("search")
    (<Preference.DISALLOWED: 'disallowed'>, <Preference.UNSTATED: 'unstated'>)
    >>> print(usage.explain())
    tdm: disallowed
      by header: tdm-reservation: 1

    Attributes:
        statements: all statements about the resource, including overruled statements.
        applied: the statements that apply by the rules of their own mechanism.
        licenses: the licenses under which the resource is offered.
    """

    statements: tuple[Statement, ...] = ()
    applied: tuple[Statement, ...] = ()
    licenses: tuple[License, ...] = ()

    def preference(self, purpose: Purpose | str) -> Preference:
        """Return the most restrictive preference that applies to a purpose (draft-ietf-aipref-vocab 5.1).

        Args:
            purpose: a Purpose, or its value, such as ``"ai-train"``.

        Raises:
            ConfigurationError: the purpose is unknown.
        """
        return most_restrictive(one.preference for one in self._counting(purpose))

    def deciding(self, purpose: Purpose | str) -> tuple[Statement, ...]:
        """Return the statements that decide the preference for a purpose; empty if it is UNSTATED.

        Raises:
            ConfigurationError: the purpose is unknown.
        """
        preference = self.preference(purpose)
        return tuple(one for one in self._counting(purpose) if one.preference is preference)

    def bearing(self, purpose: Purpose | str) -> tuple[Statement, ...]:
        """Return every statement about a purpose, including overruled statements.

        Raises:
            ConfigurationError: the purpose is unknown.
        """
        wanted = Purpose.given(purpose, "purpose")
        return tuple(one for one in self.statements if one.purpose is wanted)

    def explain(self) -> str:
        """Return a text with a line for each preference, statement and license, including statements without effect."""
        lines = [line for purpose in Purpose for line in self._explain(purpose)]
        lines += [f"not understood: {one}" for one in self.statements if one.purpose is None]
        lines += [f"license: {shortened(one.url, _MAX_SHOWN)} ({one})" for one in self.licenses]
        return "\n".join(lines) or "nothing is stated"

    def _counting(self, purpose: Purpose | str) -> list[Statement]:
        wanted = Purpose.given(purpose, "purpose")
        return [one for one in self.applied if one.purpose is wanted and one.may_decide]

    def _explain(self, purpose: Purpose) -> Iterator[str]:
        deciding = dict.fromkeys(self.deciding(purpose))
        bearing = self.bearing(purpose)
        if bearing:
            yield f"{purpose}: {self.preference(purpose)}"
        yield from (f"  by {one}{_limits(one)}" for one in deciding)
        yield from (f"  without effect: {one}{_limits(one)}" for one in bearing if one not in deciding)

    def __bool__(self) -> NoReturn:
        raise TypeError("a Usage has no truth value: call usage.preference(purpose)")

    def __str__(self) -> str:
        said = {purpose: self.preference(purpose) for purpose in Purpose}
        words = [f"{purpose}={said[purpose]}" for purpose in Purpose if said[purpose] is not Preference.UNSTATED]
        words += [f"license={shortened(one.url, _MAX_SHOWN)}" for one in self.licenses]
        return ", ".join(words) or "nothing is stated"

    def __repr__(self) -> str:
        return f"<Usage {self}: {len(self.statements)} statements>"


NOTHING_STATED: Final = Usage()
"""The usage preferences of a site without statements."""

# TDMRep, "Processing Priority": META overrides the header, and the header overrides tdmrep.json.
_NEARNESS: Final = {Place.TDMREP_JSON: 1, Place.HEADER: 2, Place.META: 3}


def combine(usages: Iterable[Usage]) -> Usage:
    """Combine the usage preferences of several places about one resource: robots.txt, tdmrep.json, headers, the page.

    Between mechanisms the most restrictive preference applies (draft-ietf-aipref-vocab 5.1). Within TDMRep a META
    element overrides the header, and the header overrides the file; a place without a statement has no effect. Neither
    order nor repetition changes a preference.

    >>> combine([Usage(), Usage()]) == Usage()
    True
    """
    given = list(usages)
    statements = tuple(dict.fromkeys(chain.from_iterable(usage.statements for usage in given)))
    applied = dict.fromkeys(chain.from_iterable(usage.applied for usage in given))
    licenses = tuple(dict.fromkeys(chain.from_iterable(usage.licenses for usage in given)))
    reserving = [one for one in applied if one.mechanism is Mechanism.TDMREP and one.may_decide]
    nearest = max((_NEARNESS.get(one.place, 0) for one in reserving), default=0)
    overruled = {one for one in reserving if _NEARNESS.get(one.place, 0) < nearest}
    return Usage(statements, tuple(one for one in applied if one not in overruled), licenses)


class CombinedUsage:
    """The preferences that several places, such as robots.txt and tdmrep.json, state about a URL.

    Each call of ``usage`` calls every source, and combines the results.

    Args:
        sources: functions, one for each place. A source returns the preferences that its place states about a URL, and
            may raise InvalidURL.
    """

    __slots__ = ("_sources",)

    def __init__(self, *sources: Callable[[str], Usage]) -> None:
        self._sources = sources

    def usage(self, url: str, /) -> Usage:
        """Return the preferences about ``url``.

        Raises:
            InvalidURL: if ``url`` is not a valid URL.
        """
        return combine(source(url) for source in self._sources)


def _where(place: Place, number: int, text: str) -> str:
    shown = shortened(text, _MAX_SHOWN)
    numbered = {Place.ROBOTS_TXT: f"{place} line {number}", Place.TDMREP_JSON: f"{place} entry {number}"}
    return f"{numbered.get(place, place.value) if number else place}: {shown}"


def _limits(statement: Statement) -> str:
    limits = []
    if statement.media:
        limits.append(f"{statement.media} only")
    if statement.use is not None:
        limits.append(f"use: {statement.use}")
    if statement.policy:
        limits.append(f"policy: {printable(statement.policy[:_MAX_SHOWN])}")
    return f" ({', '.join(limits)})" if limits else ""

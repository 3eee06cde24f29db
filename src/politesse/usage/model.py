"""What sites say about the use of what they serve, purpose by purpose: values only, made by the layers above.

A usage preference is no permission to request: it stands beside the verdict and never changes it. Each mechanism has
rules of its own for which of its statements count: the longest path (Content-Usage), the group (Content-Signal), the
first location and the nearest place (TDMRep). Those are applied first, each apart. What is left of all mechanisms is
joined by the most restrictive word (draft-ietf-aipref-vocab 5.1): one refusal outweighs every permission.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from politesse._text import printable
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_SHOWN: Final = 160  # characters of a statement, in words for people


class Purpose(StrEnum):
    """What content may be used for."""

    SEARCH = "search"
    """To help people find it: an index, with links and short excerpts."""
    AI_TRAIN = "ai-train"
    """To train a model, or to tune one."""
    AI_INPUT = "ai-input"
    """As the input of a model at the time of a question, as in retrieval-augmented generation."""
    TDM = "tdm"
    """Text and data mining (Directive (EU) 2019/790, Article 4)."""

    @classmethod
    def given(cls, name: str, option: str) -> Purpose:
        """Return the purpose of a name that was given as ``option``; raises ConfigurationError."""
        try:
            return cls(name)
        except ValueError:
            raise ConfigurationError(f"{option}: {name!r:.100} is no purpose; they are {', '.join(cls)}") from None


class Preference(StrEnum):
    """What is said about a purpose."""

    ALLOWED = "allowed"
    DISALLOWED = "disallowed"
    UNSTATED = "unstated"
    """Nothing that could be understood: neither granted nor restricted."""


class Mechanism(StrEnum):
    """The language that something is said in."""

    CONTENT_USAGE = "content-usage"
    """AIPREF: draft-ietf-aipref-attach, draft-ietf-aipref-vocab."""
    CONTENT_SIGNAL = "content-signal"
    """Cloudflare's Content Signals."""
    TDMREP = "tdmrep"
    """TDM Reservation Protocol, of the W3C community group of that name."""
    POLICY_TOKEN = "policy-token"  # noqa: S105 - a product token
    """A group of robots.txt for a product token that no crawler sends, as ``Google-Extended``."""
    NOAI = "noai"
    """``noai`` and ``noimageai`` among the directives for robots."""


class Place(StrEnum):
    """Where something is said."""

    ROBOTS_TXT = "robots.txt"
    TDMREP_JSON = "tdmrep.json"
    HEADER = "header"
    META = "meta"
    LINK = "link"
    """A LINK element of a page."""


class Use(StrEnum):
    """How far a use may go, where a Content-Signal tells it."""

    IMMEDIATE = "immediate"
    REFERENCE = "reference"
    FULL = "full"


def most_restrictive(preferences: Iterable[Preference]) -> Preference:
    """Return the word that counts of several: one refusal outweighs all (draft-ietf-aipref-vocab 5.1)."""
    said = set(preferences)
    if Preference.DISALLOWED in said:
        return Preference.DISALLOWED
    return Preference.ALLOWED if Preference.ALLOWED in said else Preference.UNSTATED


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a site says about one purpose.

    Attributes:
        purpose: what it is about; None where nothing in it is known here, or it could not be read.
        preference: what it says.
        mechanism: in which language.
        place: where.
        text: as it is written there; untrusted.
        number: of the line in robots.txt, or of the entry in tdmrep.json, from 1; 0 elsewhere.
        path: the path pattern that it is limited to, as written; empty for whatever the place speaks for.
        agent: the name of crawlers that it is said to, ``*`` for those that are not named; empty for all of them.
        use: how far the use may go, where it is told.
        policy: the URL of a policy that says more, as written; empty for none.
        media: the kind of content that it is limited to, as ``"images"``; empty for the page itself. A limited one
            is told and decides nothing.
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
        """Whether it says anything that holds for the page itself."""
        return self.preference is not Preference.UNSTATED and not self.media

    def __str__(self) -> str:
        return _where(self.place, self.number, self.text)


@dataclass(frozen=True, slots=True)
class License:
    """A license for the use of content (RSL, Really Simple Licensing), to be read before the content is used.

    Attributes:
        url: where it is; absolute.
        place: where it is named.
        text: as it is written there; untrusted.
        number: of the line in robots.txt, from 1; 0 elsewhere.
    """

    url: str
    place: Place
    text: str
    number: int = 0

    def __str__(self) -> str:
        return _where(self.place, self.number, self.text)


@dataclass(frozen=True, slots=True)
class Usage:
    """What is said about the use of one resource. It has no truth value: it answers purpose by purpose.

    Attributes:
        statements: all that bears on the resource, that which was overruled included.
        applied: those that count by the rules of their own mechanism.
        licenses: the licenses that it is offered under.
    """

    statements: tuple[Statement, ...] = ()
    applied: tuple[Statement, ...] = ()
    licenses: tuple[License, ...] = ()

    def preference(self, purpose: Purpose | str) -> Preference:
        """Return what is said about a purpose, the most restrictive of what counts (draft-ietf-aipref-vocab 5.1).

        A purpose may be given by its value, as ``"ai-train"``. Raises ConfigurationError for what is none.
        """
        return most_restrictive(one.preference for one in self._counting(purpose))

    def deciding(self, purpose: Purpose | str) -> tuple[Statement, ...]:
        """Return the statements that made the preference what it is; none where it is UNSTATED. Raises as above."""
        preference = self.preference(purpose)
        return tuple(one for one in self._counting(purpose) if one.preference is preference)

    def bearing(self, purpose: Purpose | str) -> tuple[Statement, ...]:
        """Return every statement about a purpose, that which was overruled included. Raises as above."""
        asked = Purpose.given(purpose, "purpose")
        return tuple(one for one in self.statements if one.purpose is asked)

    def explain(self) -> str:
        """Tell each preference with the statements behind it, what did not count, and the licenses; one a line."""
        lines = [line for purpose in Purpose for line in self._explain(purpose)]
        lines += [f"not understood: {one}" for one in self.statements if one.purpose is None]
        lines += [f"license: {printable(one.url)} ({one})" for one in self.licenses]
        return "\n".join(lines) or "nothing is stated"

    def _counting(self, purpose: Purpose | str) -> list[Statement]:
        asked = Purpose.given(purpose, "purpose")
        return [one for one in self.applied if one.purpose is asked and one.may_decide]

    def _explain(self, purpose: Purpose) -> Iterator[str]:
        deciding = dict.fromkeys(self.deciding(purpose))
        bearing = self.bearing(purpose)
        if bearing:
            yield f"{purpose}: {self.preference(purpose)}"
        yield from (f"  by {one}{_limits(one)}" for one in deciding)
        yield from (f"  without effect: {one}{_limits(one)}" for one in bearing if one not in deciding)

    def __bool__(self) -> NoReturn:
        raise TypeError("a Usage is neither true nor false: ask for usage.preference(Purpose...)")

    def __str__(self) -> str:
        said = {purpose: self.preference(purpose) for purpose in Purpose}
        words = [f"{purpose}={said[purpose]}" for purpose in Purpose if said[purpose] is not Preference.UNSTATED]
        words += [f"license={printable(one.url)}" for one in self.licenses]
        return ", ".join(words) or "nothing is stated"

    def __repr__(self) -> str:
        return f"<Usage {self}: {len(self.statements)} statements>"


NOTHING_STATED: Final = Usage()
"""What a site says that says nothing."""

# TDMRep, "Processing Priority": the nearer to the content, the more it counts.
_NEARNESS: Final = {Place.TDMREP_JSON: 1, Place.HEADER: 2, Place.META: 3}


def combine(usages: Iterable[Usage]) -> Usage:
    """Join what different places say about one resource: robots.txt, tdmrep.json, headers, the page.

    Between mechanisms the most restrictive word counts (draft-ietf-aipref-vocab 5.1). Within TDMRep a nearer place
    overrules: a META element the header, and the header the file; where a place says nothing, it resets nothing.
    Neither order nor repetition matters to a preference.
    """
    given = list(usages)
    statements = tuple(dict.fromkeys(chain.from_iterable(usage.statements for usage in given)))
    applied = dict.fromkeys(chain.from_iterable(usage.applied for usage in given))
    licenses = tuple(dict.fromkeys(chain.from_iterable(usage.licenses for usage in given)))
    reserving = [one for one in applied if one.mechanism is Mechanism.TDMREP and one.may_decide]
    nearest = max((_NEARNESS.get(one.place, 0) for one in reserving), default=0)
    overruled = {one for one in reserving if _NEARNESS.get(one.place, 0) < nearest}
    return Usage(statements, tuple(one for one in applied if one not in overruled), licenses)


def _where(place: Place, number: int, text: str) -> str:
    shown = printable(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")
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

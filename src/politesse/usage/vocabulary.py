"""The words of each mechanism, brought to purposes and preferences: pure parsers, which never raise on content.

``tdm-reservation`` speaks of text and data mining only. That mining may be done to train a model is not read into it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import http_sf

from politesse.usage.model import Preference, Purpose, Use, most_restrictive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from politesse.usage.model import Statement

MAX_OCTETS: Final = 65_536
"""A longer Content-Usage dictionary is not read."""

is_absolute_url: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]").match
"""Whether a text starts as the URL of something on some server, as that of a license must."""

_BLANKS: Final = " \t"
# draft-ietf-aipref-vocab 6: keys and tokens are compared with case.
_CATEGORIES: Final = {"train-ai": Purpose.AI_TRAIN, "search": Purpose.SEARCH}
_TOKENS: Final = {"y": Preference.ALLOWED, "n": Preference.DISALLOWED}
_SIGNALS: Final = {str(purpose): purpose for purpose in (Purpose.SEARCH, Purpose.AI_INPUT, Purpose.AI_TRAIN)}
_ANSWERS: Final = {"yes": Preference.ALLOWED, "no": Preference.DISALLOWED}
_RESERVATIONS: Final = {"0": Preference.ALLOWED, "1": Preference.DISALLOWED}
_USES: Final = {str(use): use for use in Use}
_HARD_SEPARATOR = re.compile("[,;]")
_WORD_OR_EQUALS = re.compile(r"[^\s=]+|=")


def parse_content_usage(value: str) -> dict[Purpose, Preference]:
    """Parse the dictionary of Content-Usage: ``train-ai=n, search=y`` (draft-ietf-aipref-vocab 6; RFC 9651 3.2).

    A purpose whose value is no token ``y`` or ``n`` is UNSTATED; one that is not named is left out. Of a key that is
    repeated the last counts. Parameters change nothing. What is no dictionary names no purpose.
    """
    try:
        members = http_sf.parse(value.encode("ascii"), tltype="dictionary") if len(value) <= MAX_OCTETS else {}
    except (http_sf.StructuredFieldError, UnicodeEncodeError):
        return {}
    said: dict[Purpose, Preference] = {}
    for key, purpose in _CATEGORIES.items():
        if isinstance(members, dict) and key in members:
            member = members[key]
            item = member[0] if isinstance(member, tuple) else member
            # A string "n" is not the token n.
            token = str(item) if isinstance(item, http_sf.Token) else ""
            said[purpose] = _TOKENS.get(token, Preference.UNSTATED)
    return said


def parse_content_signal(value: str) -> tuple[dict[Purpose, Preference], Use | None]:
    """Parse the signals of Content-Signal: ``search=yes, ai-train=no, use=reference``; names and values without case.

    Semicolons and blanks separate signals as commas do: sites write all three.
    A purpose whose value is neither ``yes`` nor ``no`` is UNSTATED; one that is not named is left out. Of a purpose
    that is repeated the most restrictive value counts, of ``use`` the first that is known.
    """
    said: dict[Purpose, Preference] = {}
    uses: list[Use] = []
    for name, word in _signals(value.lower()):
        if (purpose := _SIGNALS.get(name)) is not None:
            preference = _ANSWERS.get(word, Preference.UNSTATED)
            said[purpose] = most_restrictive((preference, said.get(purpose, preference)))
        elif name == "use" and word in _USES:
            uses.append(_USES[word])
    return said, uses[0] if uses else None


def _signals(value: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each signal; blanks around a ``=`` separate nothing. A missing value is empty."""
    for part in _HARD_SEPARATOR.split(value):
        words = _WORD_OR_EQUALS.findall(part)
        place = 0
        while place < len(words):
            name, word = words[place], ""
            place += 1
            if words[place : place + 1] == ["="]:
                place += 1
                # The word before another "=" is the name of the next signal.
                if words[place : place + 1] != ["="] and words[place + 1 : place + 2] != ["="]:
                    word = words[place] if place < len(words) else ""
                    place += 1
            yield name, word


def parse_tdm_reservation(value: str) -> Preference:
    """Parse ``tdm-reservation``: ``1`` reserves text and data mining, ``0`` does not; else nothing (TDMRep)."""
    return _RESERVATIONS.get(value.strip(_BLANKS), Preference.UNSTATED)


def statements(said: Mapping[Purpose, Preference], of: Statement) -> tuple[Statement, ...]:
    """Return a statement for each purpose, else like ``of``; where nothing is said, ``of`` itself: it is told, too."""
    return tuple(replace(of, purpose=purpose, preference=said[purpose]) for purpose in said) or (of,)

"""Parses the vocabulary of each mechanism into purposes and preferences. Pure; invalid content raises no exception.

``tdm-reservation`` applies to text and data mining only, not to training a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from politesse._base.text import BLANKS
from politesse.usage.model import Preference, Purpose, Statement, Use, most_restrictive

MAX_OCTETS: Final = 65_536
"""A longer Content-Usage dictionary is ignored."""

is_absolute_url: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]").match
"""Whether a text starts with a scheme and an authority, as the URL of a license must."""

# draft-ietf-aipref-vocab 6: keys and tokens are case-sensitive.
_CATEGORIES: Final = {"train-ai": Purpose.AI_TRAIN, "search": Purpose.SEARCH}
_TOKENS: Final = {"y": Preference.ALLOWED, "n": Preference.DISALLOWED}
_SIGNALS: Final = {str(purpose): purpose for purpose in (Purpose.SEARCH, Purpose.AI_INPUT, Purpose.AI_TRAIN)}
_ANSWERS: Final = {"yes": Preference.ALLOWED, "no": Preference.DISALLOWED}
_RESERVATIONS: Final = {"0": Preference.ALLOWED, "1": Preference.DISALLOWED}
_USES: Final = {str(use): use for use in Use}
# Blanks around "=" do not separate signals. A word before another "=" is the name of the next signal, not a value.
_SIGNAL = re.compile(r"([^\s=,;]++|=)(?:\s*+=(?:\s*+([^\s=,;]++)(?!\s*+=))?)?")


def parse_content_usage(value: str) -> dict[Purpose, Preference]:
    """Parse the dictionary of Content-Usage: ``train-ai=n, search=y`` (draft-ietf-aipref-vocab 6; RFC 9651 3.2).

    A purpose whose value is not the token ``y`` or ``n`` is UNSTATED; unnamed purposes are omitted. If a key is
    repeated, its last value counts. Parameters are ignored. The result is empty if the value is not a dictionary.
    """
    import http_sf  # noqa: PLC0415 - a tenth of the time to load ``politesse.robots``, and few sites state this header

    try:
        members = http_sf.parse(value.encode("ascii"), tltype="dictionary") if len(value) <= MAX_OCTETS else {}
    except (http_sf.StructuredFieldError, UnicodeEncodeError):
        return {}
    stated: dict[Purpose, Preference] = {}
    for key, purpose in _CATEGORIES.items():
        if isinstance(members, dict) and key in members:
            member = members[key]
            item = member[0] if isinstance(member, tuple) else member
            # RFC 9651 3.3: the string "n" and the token n are different types.
            token = str(item) if isinstance(item, http_sf.Token) else ""
            stated[purpose] = _TOKENS.get(token, Preference.UNSTATED)
    return stated


def parse_content_signal(value: str) -> tuple[dict[Purpose, Preference], Use | None]:
    """Parse the signals of Content-Signal: ``search=yes, ai-train=no, use=reference``; case-insensitive.

    Commas, semicolons and blanks separate signals: sites use all three. A purpose whose value is neither ``yes`` nor
    ``no`` is UNSTATED; unnamed purposes are omitted. If a purpose is repeated, its most restrictive value counts. If
    ``use`` is repeated, its first known value counts.
    """
    stated: dict[Purpose, Preference] = {}
    uses: list[Use] = []
    for name, word in _SIGNAL.findall(value.lower()):
        if (purpose := _SIGNALS.get(name)) is not None:
            preference = _ANSWERS.get(word, Preference.UNSTATED)
            stated[purpose] = most_restrictive((preference, stated.get(purpose, preference)))
        elif name == "use" and word in _USES:
            uses.append(_USES[word])
    return stated, uses[0] if uses else None


def parse_tdm_reservation(value: str) -> Preference:
    """Parse ``tdm-reservation`` (TDMRep): ``1`` reserves text and data mining, ``0`` does not; others are UNSTATED."""
    return _RESERVATIONS.get(value.strip(BLANKS), Preference.UNSTATED)


def statements(stated: Mapping[Purpose, Preference], template: Statement) -> tuple[Statement, ...]:
    """Return one copy of ``template`` per purpose, or ``template`` itself if no purpose was recognised."""
    return tuple(replace(template, purpose=one, preference=stated[one]) for one in stated) or (template,)

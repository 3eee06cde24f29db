"""Whose groups are whose: how a name of the file and the name of a crawler are read, compared and chosen by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.errors import ConfigurationError
from politesse.robots.directives import VERSION_1

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.document import Group

EVERYBODY: Final = "*"
BROWSER: Final = "mozilla"

_END_OR_BLANK: Final = frozenset({"", " ", "\t"})
_TOKEN = re.compile(r"[A-Za-z0-9_.-]*")  # RFC 9309 2.2.1, with the digits and dots that real tokens hold
_SUFFIX = re.compile(r"[ \t/;(,*]")
_GOOGLE_TOKEN = re.compile(r"[A-Za-z_-]*")
_GOOGLE_PRODUCT_END = re.compile(r"[/;(,]")

Bound = tuple["Group", int]
"""A group, and the place in it of the name by which it was found: what was said before that name is not meant."""


def product_token(agent: str) -> str:
    """Return the product token of a User-Agent string, or of a user-agent line, in lower case.

    It ends before the first character that is no letter or digit of ASCII, ``_``, ``-`` or ``.``:
    ``ExampleBot/1.0 (+https://example.com/bot)`` is ``examplebot``. Empty where there is none.
    """
    return _TOKEN.match(agent.strip(" \t"))[0].lower()  # type: ignore[index] # it matches the empty string, too


def checked_agent(agent: str) -> str:
    """Return ``agent``; raises ConfigurationError for a User-Agent string whose first product is Mozilla.

    ``mozilla`` by itself is a product token like any other.
    """
    if product_token(agent) == BROWSER and agent.strip(" \t").lower() != BROWSER:
        raise browser_refusal(f"agent={agent!r:.200}", "the crawler's product token, as in 'ExampleBot'")
    return agent


def browser_refusal(given: str, instead: str) -> ConfigurationError:
    """Return the error for who is named as a browser, with what was given and what to give instead."""
    return ConfigurationError(f"{given}: its first product is Mozilla, which no robots.txt means; give {instead}")


def short_name(agent: str) -> str:
    """Return the first word of a crawler's name without its version, in lower case (WWW::RobotRules, ``agent``)."""
    words = agent.split(maxsplit=1)
    name = words[0].partition("/")[0] if words else ""
    return name.lower() if name.isascii() else ""


def first_word(value: str) -> str:
    """Return a name without blanks, version or other suffix, in lower case; ``*`` for a star and nothing else.

    It ends before a blank, ``/``, ``;``, ``(``, ``,`` or ``*``. Empty where it is not ASCII.
    """
    if value == EVERYBODY:
        return EVERYBODY
    name = _SUFFIX.split(value.strip(" \t"), maxsplit=1)[0]
    return name.lower() if name.isascii() else ""


def token_or_starred(value: str) -> str:
    """Return the product token on a user-agent line; ``*`` for a star, be there words behind it."""
    if value[:1] == EVERYBODY and value[1:2] in _END_OR_BLANK:
        return EVERYBODY
    return product_token(value)


def google_token(value: str) -> str:
    """Return the name on a user-agent line up to the first character that is no letter, ``_`` or ``-``.

    As google/robotstxt does: ``MJ12bot`` is ``mj``. ``*`` for a star, be there words behind it.
    """
    if value[:1] == EVERYBODY and value[1:2] in _END_OR_BLANK:
        return EVERYBODY
    return _GOOGLE_TOKEN.match(value)[0].lower()  # type: ignore[index] # it matches the empty string, too


def google_agent(agent: str) -> str:
    """Return the name of a crawler as ``google_token`` cuts it; empty where its product is several words.

    In google/robotstxt a crawler whose name is no token obeys no group by name.
    """
    name = _GOOGLE_PRODUCT_END.split(agent, maxsplit=1)[0].strip(" \t")
    return "" if name.startswith(EVERYBODY) or " " in name or "\t" in name else google_token(name)


def whole_value(value: str) -> str:
    """Return the value of a user-agent line in lower case, all of it, and so ``*`` for a star.

    Letters of ASCII only: the Kelvin sign is no ``k``.
    """
    return value.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


def without_version(value: str) -> str:
    """Return the value of a user-agent line without version, in lower case; several words are one name.

    ``Bot mailto:craftbot@yahoo.com`` is no ``bot`` (A Standard for Robot Exclusion: "the name without version
    information"; WWW::RobotRules, ``is_me``: the whole line). ``bot/1.0`` and ``bot*`` are.
    """
    if value == EVERYBODY:
        return EVERYBODY
    name = whole_value(value).partition("/")[0].rstrip(" \t")
    if name == EVERYBODY:
        return ""  # "*/1.0" is not the star that stands for everybody, and no crawler's name
    return name if " " in name or "\t" in name else first_word(name)


def is_part_of(name: str, crawler: str) -> bool:
    """Whether a name of the file is a part of the crawler's."""
    return name in crawler


def is_start_of(name: str, crawler: str) -> bool:
    """Whether the crawler's name starts with that of the file."""
    return crawler.startswith(name)


def shares_a_name(name: str, crawler: str) -> bool:
    """Whether the crawler's name is a part of that of the file, or the other way around.

    draft-koster-robots-00 3.2.1 says the one, all that was written about it the other.
    """
    named = without_version(name)
    return crawler in name or (bool(named) and named in crawler)


def merged(bound: Sequence[Bound]) -> Sequence[Bound]:
    """Choose all groups."""
    return bound


def first(bound: Sequence[Bound]) -> Sequence[Bound]:
    """Choose the first group."""
    return bound[:1]


def newest_readable(bound: Sequence[Bound]) -> Sequence[Bound]:
    """Choose the group of the highest stable version, of several the first (Conner 2.0, Robot-version)."""
    readable = [one for one in bound if _is_readable(one[0].version)]
    return [max(readable, key=lambda one: one[0].version)] if readable else []


def _is_readable(version: tuple[int, int, int]) -> bool:
    major, minor, _ = version
    return VERSION_1[0] <= major <= _NEWEST_MAJOR and minor % 2 == 0


_NEWEST_MAJOR: Final = 2

"""Whose groups are whose: how a name of the file and the name of a crawler are read, compared and chosen by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.robots.directives import VERSION_1

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.document import Group

EVERYBODY: Final = "*"

_END_OR_BLANK: Final = frozenset({"", " ", "\t"})
_TOKEN_END = re.compile(r"[ \t/;(,*]")
_GOOGLE_TOKEN = re.compile(r"[A-Za-z_-]*")
_GOOGLE_PRODUCT_END = re.compile(r"[/;(,]")

Bound = tuple["Group", int]
"""A group, and the place in it of the name by which it was found: what was said before that name is not meant."""


def product_token(agent: str) -> str:
    """Return the product token of a User-Agent string, or of a user-agent line, in lower case.

    It ends before a blank, ``/``, ``;``, ``(``, ``,`` or ``*``: ``ExampleBot/1.0 (+https://example.com/bot)`` is
    ``examplebot``. Empty where there is none, or where it is not ASCII.
    """
    token = _TOKEN_END.split(agent.strip(" \t"), maxsplit=1)[0]
    return token.lower() if token.isascii() else ""


def short_name(agent: str) -> str:
    """Return the first word of a crawler's name without its version, in lower case (WWW::RobotRules, ``agent``)."""
    words = agent.split(maxsplit=1)
    name = words[0].partition("/")[0] if words else ""
    return name.lower() if name.isascii() else ""


def token_or_star(value: str) -> str:
    """Return the product token on a user-agent line; ``*`` for a star and nothing else."""
    return EVERYBODY if value == EVERYBODY else product_token(value)


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
    """Return the value of a user-agent line in lower case, all of it, and so ``*`` for a star."""
    return value.lower() if value.isascii() else product_token(value)


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
    token = product_token(name)
    return crawler in name or (bool(token) and token in crawler)


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

"""Finds the groups that bind a crawler: functions that read names, compare names, and choose among matching groups."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from politesse._base.checks import ConfigurationError
from politesse._base.text import BLANKS
from politesse.robots.crawl_directives import VERSION_1

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import Span

EVERYBODY: Final = "*"
BROWSER: Final = "mozilla"

_END_OR_BLANK: Final = frozenset({"", " ", "\t"})
_TOKEN = re.compile(r"[A-Za-z0-9_.-]*")  # RFC 9309 2.2.1; tokens in real files also contain digits and dots
_SUFFIX = re.compile(r"[ \t/;(,*]")
_GOOGLE_TOKEN = re.compile(r"[A-Za-z_-]*")
_GOOGLE_PRODUCT_END = re.compile(r"[/;(,]")
_NEWEST_MAJOR: Final = 2


def product_token(agent: str) -> str:
    """Return the product token of a User-Agent string, or of a user-agent line, in lower case.

    The token ends before the first character other than an ASCII letter or digit, ``_``, ``-`` or ``.``. The result is
    empty if the string does not begin with a token.

    >>> product_token("ExampleBot/1.0 (+https://example.com/bot)")
    'examplebot'
    """
    # RFC 9309 2.2.1: "Crawlers MUST use case-insensitive matching to find the group".
    return _TOKEN.match(agent.strip(BLANKS))[0].lower()  # type: ignore[index] # _TOKEN always matches


def checked_agent(agent: str) -> str:
    """Return ``agent`` unchanged. The word ``mozilla`` alone is accepted as a product token.

    Raises:
        ConfigurationError: ``agent`` is a User-Agent string whose first product is Mozilla.
    """
    if product_token(agent) == BROWSER and agent.strip(BLANKS).lower() != BROWSER:
        raise browser_refusal(f"agent={agent!r:.200}", "give the crawler's product token, as in 'ExampleBot'")
    return agent


def browser_refusal(given: str, instead: str) -> ConfigurationError:
    """Return the error for a crawler that is named like a browser. ``instead`` is the end of the message."""
    return ConfigurationError(
        f"{given}: its first product is Mozilla, which names no crawler in a robots.txt; {instead}"
    )


def short_name(agent: str) -> str:
    """Return the first word of a crawler's name without its version, in lower case (WWW::RobotRules, ``agent``)."""
    words = agent.split(maxsplit=1)
    name = words[0].partition("/")[0] if words else ""
    return name.lower() if name.isascii() else ""


def first_word(value: str) -> str:
    """Return the first word of a name without version or other suffix, in lower case.

    The word ends before a blank, ``/``, ``;``, ``(``, ``,`` or ``*``. The result is ``*`` only if ``value`` is exactly
    ``*``. It is empty if the word is not ASCII.
    """
    if value == EVERYBODY:
        return EVERYBODY
    name = _SUFFIX.split(value.strip(BLANKS), maxsplit=1)[0]
    return name.lower() if name.isascii() else ""


def token_or_starred(value: str) -> str:
    """Return the product token on a user-agent line; ``*`` for a star, with or without words after it."""
    if value[:1] == EVERYBODY and value[1:2] in _END_OR_BLANK:
        return EVERYBODY
    return product_token(value)


def google_token(value: str) -> str:
    """Return the name on a user-agent line up to the first character other than a letter, ``_`` or ``-``.

    This follows google/robotstxt: ``MJ12bot`` becomes ``mj``. A star becomes ``*``, with or without words after it.
    """
    if value[:1] == EVERYBODY and value[1:2] in _END_OR_BLANK:
        return EVERYBODY
    return _GOOGLE_TOKEN.match(value)[0].lower()  # type: ignore[index] # _GOOGLE_TOKEN always matches


def google_agent(agent: str) -> str:
    """Return the name of a crawler, cut by ``google_token``; empty if several words precede the version.

    In google/robotstxt a crawler whose name is not a token matches no group by name.
    """
    name = _GOOGLE_PRODUCT_END.split(agent, maxsplit=1)[0].strip(BLANKS)
    return "" if name.startswith(EVERYBODY) or " " in name or "\t" in name else google_token(name)


def whole_value(value: str) -> str:
    """Return the whole value of a user-agent line with its ASCII letters in lower case.

    Other letters do not change: the Kelvin sign is not a ``k``.
    """
    return value.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


def without_version(value: str) -> str:
    """Return the name on a user-agent line without its version, in lower case.

    ``bot/1.0`` and ``bot*`` become ``bot``. A name of several words, such as ``Bot mailto:craftbot@yahoo.com``, only
    becomes lower case. A Standard for Robot Exclusion compares "the name without version information"; WWW::RobotRules,
    ``is_me``, compares the whole line.
    """
    if value == EVERYBODY:
        return EVERYBODY
    name = whole_value(value).partition("/")[0].rstrip(BLANKS)
    if name == EVERYBODY:
        return ""  # "*/1.0" is neither the star for all crawlers nor the name of a crawler
    return name if " " in name or "\t" in name else first_word(name)


def is_part_of(name: str, crawler: str) -> bool:
    """Whether the name in the file is a substring of the crawler's name."""
    return name in crawler


def is_start_of(name: str, crawler: str) -> bool:
    """Whether the crawler's name starts with the name in the file."""
    return crawler.startswith(name)


def shares_a_name(name: str, crawler: str) -> bool:
    """Whether the crawler's name is a substring of the name in the file, or the other way around.

    draft-koster-robots-00 3.2.1 defines the first comparison. All other texts about the draft define the reverse.
    """
    named = without_version(name)
    return crawler in name or (bool(named) and named in crawler)


def merged(found: Sequence[Span]) -> Sequence[Span]:
    """Choose all groups.

    RFC 9309 2.2.1: "If there is more than one group matching the user-agent, the matching groups' rules MUST be
    combined into one group."
    """
    return found


def first(found: Sequence[Span]) -> Sequence[Span]:
    """Choose the first group."""
    return found[:1]


def newest_readable(found: Sequence[Span]) -> Sequence[Span]:
    """Choose the first group of the highest stable version (Conner 2.0, Robot-version)."""
    readable = [span for span in found if _is_readable(span[-1])]
    return [max(readable, key=itemgetter(-1))] if readable else []


def _is_readable(version: tuple[int, int, int]) -> bool:
    major, minor, _ = version
    return VERSION_1[0] <= major <= _NEWEST_MAJOR and minor % 2 == 0

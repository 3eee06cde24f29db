"""The identity of a crawler: one User-Agent string, and the product tokens that choose its groups in robots.txt."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from politesse._base.checks import check_types, checked_names
from politesse.errors import ConfigurationError, ConfigurationTypeError, PolitesseWarning
from politesse.robots.agents import BROWSER, browser_refusal, first_word, product_token

AS_IN_EXAMPLE: Final = ", as in 'ExampleBot/1.0 (+https://example.com/bot)'"
"""The end of a message that asks for a User-Agent."""

_PRINTABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_NOT_RFC = re.compile(r"[^A-Za-z_-]")  # RFC 9309 2.2.1: "_", "-" and letters
_PACKAGE: Final = __name__.partition(".")[0]
_DEFAULTS: Final = frozenset(
    {"aiohttp", "curl", "go-http-client", "httpx", "httpx2", "python", "python-httpx", "python-httpx2"}
    | {"python-requests", "python-urllib", "requests", "scrapy", "urllib", "wget"}
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A crawler as servers see it.

    Attributes:
        user_agent: the User-Agent header.
        tokens: the product tokens in lower case, as they are compared, the most specific first.
    """

    user_agent: str
    tokens: tuple[str, ...]

    @classmethod
    def of(cls, user_agent: str, tokens: str | Sequence[str] | None = None) -> Identity:
        """Return the checked identity. The default of ``tokens`` is the first product of the User-Agent.

        Emits a PolitesseWarning for a token that RFC 9309 does not permit, and for a token that is not in the
        User-Agent.

        Raises:
            ConfigurationError: for a User-Agent or a token that would hide who is crawling.
        """
        check_types({"user_agent": (user_agent, str)}, required=True)
        if _PRINTABLE.fullmatch(user_agent) is None:
            raise ConfigurationError(f"user_agent={user_agent!r}: give one line of printable ASCII{AS_IN_EXAMPLE}")
        first = product_token(user_agent)
        if first in _DEFAULTS:
            raise ConfigurationError(
                f"user_agent={user_agent!r}: that is a library's default; name your own crawler{AS_IN_EXAMPLE}"
            )
        if tokens is None:
            if first == BROWSER:
                raise browser_refusal(f"user_agent={user_agent!r}", "give token=")
            tokens = first_word(user_agent)  # keeps an invalid character in the word, so that it is refused
            if _TOKEN.fullmatch(tokens) is None:
                raise ConfigurationError(
                    f"user_agent={user_agent!r:.100}: its first word has to be the crawler's name, in letters, digits, "
                    "'_', '-' and '.', as in 'ExampleBot/1.0'; otherwise give token="
                )
        return cls(user_agent, _checked(checked_names("token", tokens), user_agent))

    @property
    def agent(self) -> str:
        """The tokens, joined by commas."""
        return ",".join(self.tokens)

    def of_request(self, user_agent: str) -> Identity:
        """Return the identity of a request that states ``user_agent``: this identity, or that of another crawler.

        The result is this identity if ``user_agent`` begins with one of its tokens, in any version. A browser's
        User-Agent only has to contain one of the tokens as a word. Otherwise the first token of the result is the name
        in ``user_agent``, and the other tokens are the tokens of this identity that occur in ``user_agent``.

        Raises:
            ConfigurationError: if ``user_agent`` does not name a crawler.
        """
        name, lower = product_token(user_agent), user_agent.lower()
        if user_agent == self.user_agent or name in self.tokens:
            return self
        if name == BROWSER and not set(self.tokens).isdisjoint(_TOKEN.findall(lower)):
            return self
        if name == BROWSER:
            raise browser_refusal(
                f"user_agent={user_agent!r}",
                "leave this header out, and the gate's User-Agent is sent; or name your crawler in it",
            )
        stated = Identity.of(user_agent)
        return replace(stated, tokens=(*stated.tokens, *(token for token in self.tokens if token in lower)))


def _checked(tokens: Sequence[str], user_agent: str) -> tuple[str, ...]:
    if not tokens:
        raise ConfigurationError("token=[]: give at least one product token")
    for token in map(checked_token, tokens):
        if (invalid := _NOT_RFC.search(token)) is not None:
            warn_caller(
                f"some parsers cut the product token {token!r} before {invalid[0]!r}: "
                "RFC 9309 2.2.1 knows letters, '_' and '-' only"
            )
    if not any(token.lower() in user_agent.lower() for token in tokens):
        warn_caller(
            f"none of the product tokens {list(tokens)} occurs in the User-Agent {user_agent!r} (RFC 9309 2.2.1)"
        )
    return tuple(token.lower() for token in tokens)


def checked_token(token: object) -> str:
    """Return ``token``; raises ConfigurationError if it is not a product token."""
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        kind = ConfigurationError if isinstance(token, str) else ConfigurationTypeError
        raise kind(
            f"token={token!r:.100}: give a product token of letters, digits, '_', '-' and '.', without a version"
        )
    return token


def warn_caller(message: str) -> None:
    """Warn at the caller's line outside of this package, because Python shows a warning once for each line."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, PolitesseWarning, stacklevel=level)

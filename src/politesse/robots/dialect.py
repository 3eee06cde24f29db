"""Everything in which the dialects of robots.txt differ, as ONE table: a dialect is a row, never a branch elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from politesse.robots.pattern import normalise_pattern, normalise_target, query_as_written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Syntax:
    """How lines are read.

    Attributes:
        fields: the field names that mean something here, in lower case.
        misspelled_fields: names that are read as another, with a quirk.
        missing_colon: whether two words without a colon are a field and its value, with a quirk.
    """

    fields: frozenset[str]
    misspelled_fields: Mapping[str, str]
    missing_colon: bool


@dataclass(frozen=True, slots=True)
class Matching:
    """How paths are compared.

    Attributes:
        normalise_target: brings a request target to the form that is compared.
        query_as_written: returns another form of a target that wildcards are compared with too, None for none.
        normalise_pattern: brings a path pattern to that form.
        leading: the characters that a path pattern may start with; others match nothing.
    """

    normalise_target: Callable[[str], str]
    query_as_written: Callable[[str], str | None]
    normalise_pattern: Callable[[str], str]
    leading: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long an answer holds, in seconds, where HTTP headers say nothing, and at most.

    Attributes:
        default_s: of a 2xx without headers.
        max_s: of a 2xx, whatever its headers say.
        max_unavailable_s: of a 4xx, default and bound in one.
    """

    default_s: float
    max_s: float
    max_unavailable_s: float


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the answers to the fetch of robots.txt mean.

    Attributes:
        forbidden_disallows: whether 401 and 403 are a refusal of the whole site.
        max_redirects: how many redirects are followed.
        lifetimes: how long an answer holds.
    """

    forbidden_disallows: bool
    max_redirects: int
    lifetimes: Lifetimes


@dataclass(frozen=True, slots=True)
class Traits:
    """One row of the table."""

    syntax: Syntax
    matching: Matching
    outcomes: Outcomes


class Dialect(Enum):
    """A reading of robots.txt; chosen once, for a gatekeeper or for a parse."""

    RFC9309 = "rfc9309"
    """RFC 9309, with the directives that servers in the field add to it."""

    @property
    def traits(self) -> Traits:
        """The row of this dialect."""
        return _TABLE[self]


_TABLE: Final[Mapping[Dialect, Traits]] = {
    Dialect.RFC9309: Traits(
        syntax=Syntax(
            fields=frozenset(
                {
                    "user-agent",
                    "allow",
                    "disallow",
                    "sitemap",
                    "crawl-delay",
                    "request-rate",
                    "visit-time",
                    "comment",
                }
            ),
            # RFC 9309 2.2.4 lets parsers be lenient; a misread Disallow is the one that would hurt a server.
            misspelled_fields=dict.fromkeys(("dissallow", "dissalow", "disalow", "diasllow", "disallaw"), "disallow"),
            missing_colon=True,
        ),
        matching=Matching(
            normalise_target=normalise_target,
            query_as_written=query_as_written,
            normalise_pattern=normalise_pattern,
            leading=("/", "*"),  # RFC 9309 2.2 names "/" only, and 5.1 uses "*.gif$"
        ),
        outcomes=Outcomes(
            forbidden_disallows=False,  # RFC 9309 2.3.1.3
            max_redirects=5,  # RFC 9309 2.3.1.2
            lifetimes=Lifetimes(default_s=_DAY_S, max_s=_DAY_S, max_unavailable_s=_DAY_S),  # RFC 9309 2.4
        ),
    ),
}

"""The columns of the table of dialects: data, and types of small functions.

``politesse.robots.dialect`` has a row for each dialect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from politesse._base.constants import DAY_S
from politesse.robots.agents import merged, product_token, token_or_starred
from politesse.robots.line import FieldName, Quirk, usual_spellings
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.robots.line import Span
    from politesse.robots.pattern import TargetForm


_MISSPELLED: Final = (Quirk.MISSPELLED_FIELD,)  # all names share one tuple


@dataclass(frozen=True, slots=True)
class Syntax:
    """How lines are read.

    Attributes:
        fields: field names that the dialect reads, in lower case.
        misspelled_fields: maps each misspelled name to the name that it is read as; the line gets a quirk.
        field_starts: maps the start of a name to the name that it is read as; the first fitting start counts, and the
            line gets a quirk.
        missing_colon: whether two words without a colon are a field and its value; the line gets a quirk.
        odd_blanks: characters that are read as blanks around a field or a value; the line gets a quirk.
        blank_lines: whether a blank line ends a record.
        max_line_octets: how many octets of a line are read, or None for all.
        max_octets: how many octets of a file are read, or None for all.
        usual_names: the FieldNames of usual spellings, which need no further look-up.
    """

    fields: frozenset[str]
    misspelled_fields: Mapping[str, str] = field(default_factory=dict)
    field_starts: Mapping[str, str] = field(default_factory=dict)
    missing_colon: bool = False
    odd_blanks: str = ""
    blank_lines: bool = False
    max_line_octets: int | None = None
    max_octets: int | None = None
    usual_names: Mapping[str, FieldName] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        spellings = {form for name in (*self.fields, *self.misspelled_fields) for form in usual_spellings(name)}
        object.__setattr__(self, "usual_names", {spelling: self.name_of(spelling) for spelling in spellings})

    def name_of(self, spelling: str) -> FieldName:
        """Return the field that a name, without surrounding blanks, stands for."""
        lower = spelling.lower()
        if lower in self.fields:
            return FieldName(spelling, next(name for name in self.fields if name == lower))  # names share one string
        if lower in self.misspelled_fields:
            return FieldName(spelling, self.misspelled_fields[lower], _MISSPELLED)
        for start, field_name in self.field_starts.items():
            if lower.startswith(start):
                return FieldName(spelling, field_name, _MISSPELLED)
        return FieldName(spelling, lower)


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Which lines belong together, and which crawlers they bind. Objects are compared by identity.

    Attributes:
        rules: the fields that are rules; a user-agent line after a rule starts a group.
        usage_rules: the fields that are rules about the use of content; a user-agent line after such a rule starts a
            group.
        any_field_is_a_rule: whether a user-agent line after any other field also starts a group.
        before_any_agent: the names of the crawlers that are bound by rules before the first user-agent line.
        versioned: whether a Robot-version sets the version of a group.
        name: returns the name on a user-agent line from its value: ``*`` for all crawlers, empty for none.
        token: returns the name of a crawler from its product token or User-Agent; empty for none.
        names: returns whether a name on a user-agent line means a crawler; None if the two names must be equal.
        named: chooses among the groups that name a crawler; if it chooses no group, the groups for ``*`` bind the
            crawler.
        everybody: chooses among the groups for ``*``.
    """

    rules: frozenset[str] = frozenset({"allow", "disallow"})
    usage_rules: frozenset[str] = frozenset()
    any_field_is_a_rule: bool = False
    before_any_agent: tuple[str, ...] = ()
    versioned: bool = False
    name: Callable[[str], str] = token_or_starred
    token: Callable[[str], str] = product_token
    names: Callable[[str, str], bool] | None = None
    named: Callable[[Sequence[Span]], Sequence[Span]] = merged
    everybody: Callable[[Sequence[Span]], Sequence[Span]] = merged


def _no_other_form(_: str) -> None:
    """Return None; pickle cannot copy a lambda."""


@dataclass(frozen=True, slots=True)
class Matching:
    """How paths are compared.

    Attributes:
        dialect: name of the dialect.
        normalise_target: returns a request target in the form that is compared; a plain target is already in this form.
        normalise_pattern: returns the path of a rule in the same form.
        query_as_written: returns another form of a target, with which wildcards are also compared, or None.
        leading: the characters with which the path of a rule may start; other paths match no target.
        implied_allow: returns the path of a second Allow that an Allow implies, or None.
        empty_disallow_ends: whether an empty Disallow allows all targets that no earlier rule matches, in dialects that
            try rules in order.
        of_site: whether rules may be URLs, which apply only to their own site.
        form: ``normalise_target`` as data, if the compiled core supports the dialect; else None.
    """

    dialect: str
    normalise_target: Callable[[str], str]
    normalise_pattern: Callable[[str], str]
    query_as_written: Callable[[str], str | None] = _no_other_form
    leading: tuple[str, ...] = ("/", "*")  # RFC 9309 2.2 permits only "/", but 5.1 uses "*.gif$"
    implied_allow: Callable[[str], str | None] | None = None
    empty_disallow_ends: bool = False
    of_site: bool = False
    form: TargetForm | None = None


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a response stays fresh, in seconds: by default, and at most.

    Attributes:
        default_s: lifetime of a 2xx without freshness headers.
        max_s: the longest lifetime of a 2xx, even if its headers state more.
        max_unavailable_s: lifetime of a 4xx: both the default and the maximum.
    """

    default_s: float
    max_s: float
    max_unavailable_s: float


@dataclass(frozen=True, slots=True)
class Grace:
    """The rules while robots.txt is unreachable; times in seconds.

    Attributes:
        closed_s: for how long after the first failure every page is disallowed, even if an older copy exists.
        stale_s: for how long after its last confirmation a copy is used, even if it is no longer fresh.
        stale_from_failure: whether ``stale_s`` counts from the end of ``closed_s``, not from the last confirmation.
        opens_without_copy: whether, after ``closed_s``, every page is allowed if no copy exists.
        after_s: the time after the first failure at which ``after_allows`` begins to apply.
        after_allows: whether, after ``after_s``, every page is allowed if the host answers at all.
    """

    closed_s: float = 0.0
    stale_s: float = DAY_S
    stale_from_failure: bool = False
    opens_without_copy: bool = False
    after_s: float = 30 * DAY_S
    after_allows: bool = False


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How responses to the request for robots.txt are read.

    Attributes:
        forbidden_disallows: whether 401 and 403 disallow the whole site.
        too_many_requests: access result of a 429.
        unavailable_copy_s: for how long after its last confirmation a copy is used while robots.txt is unavailable.
        max_redirects: number of redirects that are followed.
        too_many_redirects: access result of more redirects, or of a loop.
        lifetimes: how long a response stays fresh.
        grace: the rules while robots.txt is unreachable.
    """

    forbidden_disallows: bool
    max_redirects: int
    lifetimes: Lifetimes
    too_many_requests: AccessResult = AccessResult.TOO_MANY_REQUESTS
    unavailable_copy_s: float = 0.0
    too_many_redirects: AccessResult = AccessResult.UNAVAILABLE
    grace: Grace = field(default_factory=Grace)

"""Everything in which the dialects of robots.txt differ, as ONE table: a dialect is a row, never a branch elsewhere.

Each difference is a value, or a small pure function that is named here: how lines are read (Syntax), which group is
whose (Grouping), how paths are compared and which rule decides (Matching), what the answer to the request for
robots.txt means and how long it holds (Outcomes).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from politesse._constants import DAY_S
from politesse.robots.agents import (
    first,
    first_word,
    google_agent,
    google_token,
    is_part_of,
    is_start_of,
    merged,
    newest_readable,
    product_token,
    shares_a_name,
    short_name,
    token_or_starred,
    whole_value,
    without_version,
)
from politesse.robots.conner import ConnerRuleSet
from politesse.robots.ordered import FirstMatchRuleSet, SiteRuleSet, allowed_directory
from politesse.robots.pattern import (
    decode_pattern,
    decode_prefix,
    decode_target,
    fold_pattern,
    fold_target,
    keep_prefix,
    keep_target,
    no_other_form,
    normalise_pattern,
    normalise_target,
    query_as_written,
)
from politesse.robots.preferences import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE
from politesse.robots.ruleset import RuleSet
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.robots.agents import Bound

_HOUR_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Syntax:
    """How lines are read.

    Attributes:
        fields: the field names that mean something here, in lower case.
        misspelled_fields: names that are read as another, with a quirk.
        field_starts: names that are read as another if they start so, with a quirk; the first that fits counts.
        missing_colon: whether two words without a colon are a field and its value, with a quirk.
        blank_lines: whether a blank line ends a record.
        max_line_octets: how much of a line is read; None for all of it.
        max_octets: how much of a file is read; None for all of it.
    """

    fields: frozenset[str]
    misspelled_fields: Mapping[str, str] = field(default_factory=dict)
    field_starts: Mapping[str, str] = field(default_factory=dict)
    missing_colon: bool = False
    blank_lines: bool = False
    max_line_octets: int | None = None
    max_octets: int | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which lines belong together, and whose they are.

    Attributes:
        rules: the fields that are rules; a user-agent line behind one starts a group.
        usage_rules: the fields that are rules about the use of content; a user-agent line behind one starts a group.
        any_field_is_a_rule: whether a user-agent line behind any other field starts a group as well.
        before_any_agent: whose rules are that stand before the first user-agent line: the names; empty for nobody's.
        versioned: whether a Robot-version names the version of a group.
        name: the name on a user-agent line, from its value; ``*`` for everybody, empty where there is none.
        token: the name of a crawler, from its product token or User-Agent; empty where there is none.
        names: whether a name on a user-agent line is that of a crawler; None for equality.
        named: chooses among the groups that name a crawler; where none is left, it is those for everybody.
        everybody: chooses among the groups for everybody.
    """

    rules: frozenset[str] = frozenset({"allow", "disallow"})
    usage_rules: frozenset[str] = frozenset()
    any_field_is_a_rule: bool = False
    before_any_agent: tuple[str, ...] = ()
    versioned: bool = False
    name: Callable[[str], str] = token_or_starred
    token: Callable[[str], str] = product_token
    names: Callable[[str, str], bool] | None = None
    named: Callable[[Sequence[Bound]], Sequence[Bound]] = merged
    everybody: Callable[[Sequence[Bound]], Sequence[Bound]] = merged


@dataclass(frozen=True, slots=True)
class Matching:
    """How paths are compared, and which rule decides.

    Attributes:
        normalise_target: brings a request target to the form that is compared; a plain one is in that form.
        query_as_written: returns another form of a target that wildcards are compared with too, None for none.
        normalise_pattern: brings the path of a rule to that form.
        leading: the characters that the path of a rule may start with; others match nothing.
        rule_set: compiles the rules of an agent, and decides by them.
        implied_allow: returns the path of a further Allow that an Allow stands for; None for none.
        empty_disallow_ends: whether an empty Disallow, where rules are tried in order, allows and ends the trial.
        of_site: whether rules may be URLs, which bind the site that they name only.
    """

    normalise_target: Callable[[str], str]
    query_as_written: Callable[[str], str | None]
    normalise_pattern: Callable[[str], str]
    leading: tuple[str, ...]
    rule_set: type[RuleSet] = RuleSet
    implied_allow: Callable[[str], str | None] | None = None
    empty_disallow_ends: bool = False
    of_site: bool = False


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
class Grace:
    """What holds while robots.txt is unreachable, in seconds.

    Attributes:
        closed_s: for how long after the first failure everything is disallowed, whatever copy is at hand.
        stale_s: how long a copy serves thereafter, beyond the end of its freshness.
        stale_from_failure: whether ``stale_s`` counts from the end of ``closed_s``, not from the copy's confirmation.
        opens_without_copy: whether everything is allowed after ``closed_s`` where there is no copy.
        after_s: how long after the first failure the site is judged by ``after_allows``.
        after_allows: whether everything is allowed then: ``True``, ``False``, or None for if the host answers at all.
    """

    closed_s: float = 0.0
    stale_s: float = DAY_S
    stale_from_failure: bool = False
    opens_without_copy: bool = False
    after_s: float = 30 * DAY_S
    after_allows: bool | None = False


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the answers to the fetch of robots.txt mean.

    Attributes:
        forbidden_disallows: whether 401 and 403 are a refusal of the whole site.
        too_many_requests: what 429 is.
        unavailable_copy_s: how long after its confirmation a copy serves where robots.txt is unavailable now.
        max_redirects: how many redirects are followed.
        too_many_redirects: what more of them are, or a loop.
        lifetimes: how long an answer holds.
        grace: what holds while there is none.
    """

    forbidden_disallows: bool
    max_redirects: int
    lifetimes: Lifetimes
    too_many_requests: AccessResult = AccessResult.TOO_MANY_REQUESTS
    unavailable_copy_s: float = 0.0
    too_many_redirects: AccessResult = AccessResult.UNAVAILABLE
    grace: Grace = field(default_factory=Grace)


@dataclass(frozen=True, slots=True)
class Traits:
    """One row of the table."""

    syntax: Syntax
    grouping: Grouping
    matching: Matching
    outcomes: Outcomes


class Dialect(Enum):
    """A reading of robots.txt; chosen once, for a gatekeeper or for a parse."""

    RFC9309 = "rfc9309"
    """RFC 9309, with the directives that servers in the field add to it."""
    GOOGLE = "google"
    """What Google publishes: its page on robots.txt, and the parser and matcher of google/robotstxt."""
    KOSTER_2019 = "koster-2019"
    """draft-koster-rep-00, the first draft of RFC 9309."""
    KOSTER_1996 = "koster-1996"
    """draft-koster-robots-00, "A Method for Web Robots Control": Allow, and the first match decides."""
    KOSTER_1994 = "koster-1994"
    """"A Standard for Robot Exclusion": Disallow only."""
    CONNER_2 = "conner-2"
    """Sean Conner's "An Extended Standard for Robot Exclusion": versions, wildcards, times and rates."""
    PERL = "perl"
    """WWW::RobotRules, as it is: Disallow only, in order, no escape decoded."""

    @property
    def traits(self) -> Traits:
        """The row of this dialect."""
        return _TABLE[self]


# Crawl-delay, Sitemap and the preferences are in none of the texts, and the pacing fields in one: whoever writes them
# means them.
_OTHER_FIELDS: Final = frozenset(
    {"sitemap", "crawl-delay", "request-rate", "visit-time", "comment", CONTENT_SIGNAL, LICENSE}
)
_FIELDS: Final = _OTHER_FIELDS | {"user-agent", "allow", "disallow"}
_DISALLOW_ONLY: Final = frozenset({"disallow"})
_MISSPELLED_DISALLOWS: Final = ("dissallow", "dissalow", "disalow", "diasllow", "disallaw")

_MISSPELLED_USER_AGENTS: Final = ("useragent", "user agent")

_RFC9309: Final = Traits(
    syntax=Syntax(
        # Its paths are those of RFC 9309: dialects with others do not know it.
        fields=_FIELDS | {CONTENT_USAGE},
        # RFC 9309 2.2.4 lets parsers be lenient; a misread Disallow is the one that would hurt a server.
        # So is a User-agent whose rules then are nobody's.
        misspelled_fields=dict.fromkeys(_MISSPELLED_DISALLOWS, "disallow")
        | dict.fromkeys(_MISSPELLED_USER_AGENTS, "user-agent"),
        missing_colon=True,
    ),
    # RFC 9309 itself would read Content-Usage over, as any other record (2.2.4); draft-ietf-aipref-attach 3, which
    # updates it, adds it to the rules.
    grouping=Grouping(usage_rules=frozenset({CONTENT_USAGE})),
    matching=Matching(
        normalise_target=normalise_target,
        query_as_written=query_as_written,
        normalise_pattern=normalise_pattern,
        leading=("/", "*"),  # RFC 9309 2.2 names "/" only, and 5.1 uses "*.gif$"
    ),
    outcomes=Outcomes(
        forbidden_disallows=False,  # RFC 9309 2.3.1.3
        max_redirects=5,  # RFC 9309 2.3.1.2
        lifetimes=Lifetimes(default_s=DAY_S, max_s=DAY_S, max_unavailable_s=DAY_S),  # RFC 9309 2.4
    ),
)

_GOOGLE: Final = Traits(
    syntax=replace(
        _RFC9309.syntax,
        # robots.cc, ParsedRobotsKey: keys are told by their start.
        field_starts=dict.fromkeys(("user-agent", *_MISSPELLED_USER_AGENTS), "user-agent")
        | {"allow": "allow"}
        | dict.fromkeys(("disallow", *_MISSPELLED_DISALLOWS), "disallow")
        | dict.fromkeys(("sitemap", "site-map"), "sitemap"),
        max_line_octets=8 * 2083 - 1,  # robots.cc, kMaxLineLen
        max_octets=500 * 1024,  # Google robots.txt specification, File format
    ),
    grouping=Grouping(name=google_token, token=google_agent),
    matching=Matching(
        normalise_target=fold_target,
        query_as_written=no_other_form,
        normalise_pattern=fold_pattern,  # robots.cc, MaybeEscapePattern; a last star counts
        leading=("/", "*"),
        implied_allow=allowed_directory,  # robots.cc, HandleAllow
    ),
    outcomes=Outcomes(
        forbidden_disallows=False,
        max_redirects=5,
        # Google robots.txt specification, Caching: max-age may make it shorter or longer.
        lifetimes=Lifetimes(default_s=DAY_S, max_s=7 * DAY_S, max_unavailable_s=DAY_S),
        too_many_requests=AccessResult.UNREACHABLE,  # "429 ... as if a server error"
        # Google robots.txt specification, Handling of errors, 5xx: 12 hours, the 30 days that follow, and what then.
        grace=Grace(
            closed_s=12 * _HOUR_S,
            stale_s=30 * DAY_S,
            stale_from_failure=True,
            opens_without_copy=True,
            after_s=12 * _HOUR_S + 30 * DAY_S,
            after_allows=None,
        ),
    ),
)

_KOSTER_2019: Final = Traits(
    syntax=_RFC9309.syntax,  # "be lenient ... Apply Postel's law"
    grouping=Grouping(everybody=first),  # draft-koster-rep-00 2.2.1
    matching=_RFC9309.matching,
    outcomes=replace(_RFC9309.outcomes, unavailable_copy_s=DAY_S),  # draft-koster-rep-00 2.3.1.3
)

_KOSTER_1996: Final = Traits(
    syntax=Syntax(fields=_FIELDS, blank_lines=True),  # draft-koster-robots-00 3.2
    grouping=Grouping(
        any_field_is_a_rule=True,  # draft-koster-robots-00 3.3: an extension is a rule line
        name=whole_value,
        names=shares_a_name,
        named=first,  # draft-koster-robots-00 3.2.1
        everybody=first,
    ),
    matching=Matching(
        normalise_target=decode_target,  # draft-koster-robots-00 3.2.2
        query_as_written=no_other_form,
        normalise_pattern=decode_prefix,
        leading=("/",),
        rule_set=FirstMatchRuleSet,
        empty_disallow_ends=True,
    ),
    outcomes=Outcomes(
        forbidden_disallows=True,  # draft-koster-robots-00 3.1
        max_redirects=20,  # "until a resource can be found", and for ever it cannot be
        too_many_redirects=AccessResult.UNREACHABLE,
        # draft-koster-robots-00 3.4 has seven days; for the absence of a file they are too long.
        lifetimes=Lifetimes(default_s=7 * DAY_S, max_s=7 * DAY_S, max_unavailable_s=DAY_S),
        grace=Grace(stale_s=0.0),  # 3.1: defer visits until the resource can be retrieved
    ),
)

_KOSTER_1994: Final = Traits(
    syntax=Syntax(fields=_OTHER_FIELDS | {"user-agent", "disallow"}, blank_lines=True),
    grouping=Grouping(
        rules=_DISALLOW_ONLY,
        name=without_version,
        token=short_name,  # "the name without version information"
        names=is_part_of,  # "a case insensitive substring match"
        named=first,
        everybody=first,
    ),
    matching=replace(_KOSTER_1996.matching, empty_disallow_ends=False),
    outcomes=replace(_KOSTER_1996.outcomes, lifetimes=Lifetimes(default_s=DAY_S, max_s=DAY_S, max_unavailable_s=DAY_S)),
)

_CONNER_2: Final = Traits(
    syntax=Syntax(fields=_FIELDS | {"robot-version"}),
    grouping=Grouping(
        versioned=True,
        name=first_word,
        names=is_start_of,  # User-agent: <general>, which is what it starts with
        named=newest_readable,
        everybody=newest_readable,
    ),
    matching=Matching(
        normalise_target=decode_target,
        query_as_written=no_other_form,
        normalise_pattern=decode_pattern,
        leading=("/", "*"),
        rule_set=ConnerRuleSet,
    ),
    outcomes=_RFC9309.outcomes,  # the proposal says nothing about them
)

_PERL: Final = Traits(
    syntax=Syntax(fields=_OTHER_FIELDS | {"user-agent", "disallow"}, blank_lines=True),
    grouping=replace(_KOSTER_1994.grouping, before_any_agent=("*",), everybody=merged),
    matching=Matching(
        normalise_target=keep_target,
        query_as_written=no_other_form,
        normalise_pattern=keep_prefix,
        leading=("",),  # a path that starts otherwise is relative to robots.txt
        rule_set=SiteRuleSet,
        empty_disallow_ends=True,
        of_site=True,
    ),
    outcomes=replace(_RFC9309.outcomes, forbidden_disallows=True),
)

_TABLE: Final[Mapping[Dialect, Traits]] = {
    Dialect.RFC9309: _RFC9309,
    Dialect.GOOGLE: _GOOGLE,
    Dialect.KOSTER_2019: _KOSTER_2019,
    Dialect.KOSTER_1996: _KOSTER_1996,
    Dialect.KOSTER_1994: _KOSTER_1994,
    Dialect.CONNER_2: _CONNER_2,
    Dialect.PERL: _PERL,
}

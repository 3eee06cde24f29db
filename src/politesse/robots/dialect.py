"""The table of all differences between the dialects of robots.txt; other modules never check for a dialect.

The columns of the table stand first, then its rows. Each difference is a value, or a small pure function. ``Syntax``
defines how lines are read. ``Grouping`` defines which group binds which crawler. ``Matching`` defines how paths are
compared. ``Winner`` names the rule that decides. ``Outcomes`` defines the meaning and the lifetime of each response to
the request for robots.txt.
"""

from __future__ import annotations

from enum import Enum, auto
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.constants import DAY_S
from politesse.robots import agents, pattern
from politesse.robots.agents import merged, product_token, token_or_starred
from politesse.robots.line import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE, NO_QUIRKS, Quirk
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.robots.line import Span
    from politesse.robots.pattern import Form

_HOUR_S: Final = 3_600
_MISSPELLED: Final = (Quirk.MISSPELLED_FIELD,)  # all names share one tuple

FieldName = tuple[str, str, tuple[Quirk, ...]]
"""A field name as a file spells it, the field that it stands for in lower case, and the quirks of the spelling."""


class Syntax(NamedTuple):
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
    """

    fields: frozenset[str]
    misspelled_fields: Mapping[str, str] = {}
    field_starts: Mapping[str, str] = {}
    missing_colon: bool = False
    odd_blanks: str = ""
    blank_lines: bool = False
    max_line_octets: int | None = None
    max_octets: int | None = None

    def name_of(self, spelling: str) -> FieldName:
        """Return the field that a name, without surrounding blanks, stands for."""
        lower = spelling.lower()
        field = self.misspelled_fields.get(lower, lower)
        if field not in self.fields:
            field = next((meant for start, meant in self.field_starts.items() if lower.startswith(start)), lower)
        known = intern(field) if field in self.fields else field  # a file may have any number of unknown fields
        return spelling, known, NO_QUIRKS if field == lower else _MISSPELLED


class Grouping(NamedTuple):
    """Which lines belong together, and which crawlers they bind.

    Attributes:
        rules: the fields that are rules; a user-agent line after a rule starts a group.
        usage_rules: the fields that are rules about the use of content; a user-agent line after such a rule starts a
            group.
        any_field_is_a_rule: whether a user-agent line after any other field also starts a group.
        unnamed_group: whether rules before the first user-agent line bind all crawlers.
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
    unnamed_group: bool = False
    versioned: bool = False
    name: Callable[[str], str] = token_or_starred
    token: Callable[[str], str] = product_token
    names: Callable[[str, str], bool] | None = None
    named: Callable[[Sequence[Span]], Sequence[Span]] = merged
    everybody: Callable[[Sequence[Span]], Sequence[Span]] = merged


class Matching(NamedTuple):
    """How paths are compared.

    Attributes:
        form: the normal form of request targets; a plain target is already in this form.
        normalise_pattern: returns the path of a rule in the same form.
        leading: the characters with which the path of a rule may start; other paths match no target.
        implied_allow: returns the path of a second Allow that an Allow implies, or None.
        empty_disallow_ends: whether an empty Disallow allows all targets that no earlier rule matches, in dialects that
            try rules in order.
        of_site: whether rules may be URLs, which apply only to their own site.
    """

    form: Form
    normalise_pattern: Callable[[str], str]
    leading: tuple[str, ...] = ("/", "*")  # RFC 9309 2.2 permits only "/", but 5.1 uses "*.gif$"
    implied_allow: Callable[[str], str | None] | None = None
    empty_disallow_ends: bool = False
    of_site: bool = False


class Winner(Enum):
    """Which of several matching rules decides; ``rule_sets.py`` has the details.

    Attributes:
        FIRST_OF_SITE: the first of those for the site of the file.
        EXPLICIT: an explicit path comes before a path with stars.
    """

    MOST_SPECIFIC = auto()
    FIRST = auto()
    FIRST_OF_SITE = auto()
    EXPLICIT = auto()


class Outcomes(NamedTuple):
    """How responses to the request for robots.txt are read; times in seconds. The defaults are those of RFC 9309.

    Attributes:
        forbidden_disallows: whether 401 and 403 disallow the whole site.
        too_many_requests: access result of a 429.
        max_redirects: number of redirects that are followed.
        too_many_redirects: access result of more redirects, or of a loop.
        default_lifetime_s: for how long a 2xx without freshness headers is fresh.
        max_lifetime_s: for how long a 2xx is fresh at most, even if its headers state more.
        unavailable_copy_s: for how long after its last confirmation a copy is used while robots.txt is unavailable.
        closed_s: for how long after the first failure every page is disallowed, even if an older copy exists.
        stale_s: for how long after its last confirmation a copy is used while robots.txt is unreachable, even if it is
            no longer fresh.
        stale_from_failure: whether ``stale_s`` counts from the end of ``closed_s``, not from the last confirmation.
        opens_without_copy: whether, after ``closed_s``, every page is allowed if no copy exists.
        after_s: the time after the first failure at which ``after_allows`` begins to apply.
        after_allows: whether, after ``after_s``, every page is allowed if the host answers at all.
    """

    forbidden_disallows: bool = False  # RFC 9309 2.3.1.3: 4xx means unavailable, everything is allowed
    too_many_requests: AccessResult = AccessResult.TOO_MANY_REQUESTS
    max_redirects: int = 5  # RFC 9309 2.3.1.2: at least five consecutive redirects
    too_many_redirects: AccessResult = AccessResult.UNAVAILABLE
    default_lifetime_s: float = DAY_S  # RFC 9309 2.4: 24 hours
    max_lifetime_s: float = DAY_S
    unavailable_copy_s: float = 0.0
    closed_s: float = 0.0
    stale_s: float = DAY_S
    stale_from_failure: bool = False
    opens_without_copy: bool = False
    after_s: float = 30 * DAY_S
    after_allows: bool = False


class Traits(NamedTuple):
    """One row of the table.

    Attributes:
        syntax: how lines are read.
        grouping: which lines belong together, and which crawlers they bind.
        matching: how paths are compared.
        outcomes: how responses to the request for robots.txt are read.
        winner: which of several matching rules decides.
    """

    syntax: Syntax
    grouping: Grouping
    matching: Matching
    outcomes: Outcomes
    winner: Winner = Winner.MOST_SPECIFIC


class Dialect(Enum):
    r"""How a robots.txt is read. Each gatekeeper, and each parsed file, has one dialect.

    >>> from politesse import Dialect, RobotsTxt
    >>> text = "User-agent: *\nDisallow: /\nAllow: /public"
    >>> RobotsTxt.parse(text, Dialect.RFC9309).rules_for("examplebot").allowed("/public")
    True
    >>> RobotsTxt.parse(text, Dialect.KOSTER_1996).rules_for("examplebot").allowed("/public")
    False
    """

    RFC9309 = "rfc9309"
    """RFC 9309, plus the directives that are in common use."""
    GOOGLE = "google"
    """Google: its page on robots.txt, and the parser and matcher of google/robotstxt."""
    KOSTER_2019 = "koster-2019"
    """draft-koster-rep-00, the first draft of RFC 9309."""
    KOSTER_1996 = "koster-1996"
    """draft-koster-robots-00, "A Method for Web Robots Control": Allow, and the first match decides."""
    KOSTER_1994 = "koster-1994"
    """"A Standard for Robot Exclusion": Disallow only."""
    CONNER_2 = "conner-2"
    """Sean Conner's "An Extended Standard for Robot Exclusion": versions, wildcards, times and rates."""
    PERL = "perl"
    """WWW::RobotRules, exactly: Disallow only, rules in the order of the file, escapes not decoded."""

    traits: Traits
    """The row of this dialect in the table."""


# Most dialects do not define Crawl-delay, Sitemap and the preferences, and only Conner 2.0 defines Request-rate and
# Visit-time. All dialects read these fields here, because sites that send them expect crawlers to read them.
_OTHER_FIELDS: Final = frozenset(
    {"sitemap", "crawl-delay", "request-rate", "visit-time", "comment", CONTENT_SIGNAL, LICENSE}
)
_FIELDS: Final = _OTHER_FIELDS | {"user-agent", "allow", "disallow"}
_DISALLOW_ONLY: Final = frozenset({"disallow"})
_MISSPELLED_DISALLOWS: Final = ("dissallow", "dissalow", "disalow", "diasllow", "disallaw")

_MISSPELLED_USER_AGENTS: Final = ("useragent", "user agent")

_RFC9309: Final = Traits(
    syntax=Syntax(
        # The path of a Content-Usage line is a pattern of RFC 9309, so dialects with other patterns do not read the
        # field.
        fields=_FIELDS | {CONTENT_USAGE},
        # RFC 9309 2.2.4 lets parsers be lenient. If a misspelled Disallow were ignored, crawlers would request
        # disallowed pages. If a misspelled User-agent were ignored, the rules below it would bind no crawler.
        misspelled_fields=dict.fromkeys(_MISSPELLED_DISALLOWS, "disallow")
        | dict.fromkeys(_MISSPELLED_USER_AGENTS, "user-agent"),
        missing_colon=True,
        # Pasted text may contain U+00A0, in UTF-8 or in Latin-1. Joined files may contain U+FEFF. Lines with these
        # characters must not be lost.
        odd_blanks="\u00a0\udca0\ufeff",
    ),
    # In RFC 9309 2.2.4, Content-Usage is only another record. In draft-ietf-aipref-attach 3, it is a rule.
    grouping=Grouping(usage_rules=frozenset({CONTENT_USAGE})),
    matching=Matching(form=pattern.NORMALISED, normalise_pattern=pattern.normalise_pattern),
    outcomes=Outcomes(),
)

_GOOGLE: Final = Traits(
    syntax=_RFC9309.syntax._replace(
        odd_blanks="",  # robots.cc, StripWhitespaceSlowly: ASCII whitespace only
        # robots.cc, ParsedRobotsKey: keys are recognised by their start.
        field_starts=dict.fromkeys(("user-agent", *_MISSPELLED_USER_AGENTS), "user-agent")
        | {"allow": "allow"}
        | dict.fromkeys(("disallow", *_MISSPELLED_DISALLOWS), "disallow")
        | dict.fromkeys(("sitemap", "site-map"), "sitemap"),
        max_line_octets=8 * 2083 - 1,  # robots.cc, kMaxLineLen
        max_octets=500 * 1024,  # Google robots.txt specification, File format
    ),
    grouping=Grouping(name=agents.google_token, token=agents.google_agent),
    matching=Matching(
        form=pattern.FOLDED,
        # robots.cc, MaybeEscapePattern: escapes are not decoded. A trailing star adds to the length of a pattern.
        normalise_pattern=pattern.fold_pattern,
        # robots.cc, HandleAllow: an Allow of index.htm also allows its directory.
        implied_allow=pattern.allowed_directory,
    ),
    outcomes=Outcomes(
        # Google robots.txt specification, Caching: max-age may shorten or extend the lifetime.
        max_lifetime_s=7 * DAY_S,
        too_many_requests=AccessResult.UNREACHABLE,  # "429 ... as if a server error"
        # Google robots.txt specification, Handling of errors, 5xx: the site is closed for 12 hours. Then the last copy
        # is used for 30 days. Then the site is open if pages other than robots.txt answer.
        closed_s=12 * _HOUR_S,
        stale_s=30 * DAY_S,
        stale_from_failure=True,
        opens_without_copy=True,
        after_s=12 * _HOUR_S + 30 * DAY_S,
        after_allows=True,
    ),
)

_KOSTER_2019: Final = Traits(
    syntax=_RFC9309.syntax,  # "be lenient ... Apply Postel's law"
    grouping=Grouping(everybody=agents.first),  # draft-koster-rep-00 2.2.1: only the first group for *
    matching=_RFC9309.matching,
    outcomes=_RFC9309.outcomes._replace(unavailable_copy_s=DAY_S),  # draft-koster-rep-00 2.3.1.3: use of an older copy
)

_KOSTER_1996: Final = Traits(
    syntax=Syntax(fields=_FIELDS, blank_lines=True),  # draft-koster-robots-00 3.2: records end at blank lines
    grouping=Grouping(
        any_field_is_a_rule=True,  # draft-koster-robots-00 3.3: an extension counts as a rule line
        name=agents.whole_value,
        names=agents.shares_a_name,
        named=agents.first,  # draft-koster-robots-00 3.2.1: the first record that matches
        everybody=agents.first,
    ),
    matching=Matching(
        form=pattern.DECODED,  # draft-koster-robots-00 3.2.2: %xx is decoded, except for the slash
        normalise_pattern=pattern.decode_prefix,
        leading=("/",),
        empty_disallow_ends=True,
    ),
    winner=Winner.FIRST,
    outcomes=Outcomes(
        forbidden_disallows=True,  # draft-koster-robots-00 3.1: 401 and 403 restrict access to the site completely
        max_redirects=20,  # 3.1: "until a resource can be found"; bounded, because redirects may never end
        too_many_redirects=AccessResult.UNREACHABLE,
        default_lifetime_s=7 * DAY_S,  # draft-koster-robots-00 3.4: the default is seven days
        max_lifetime_s=7 * DAY_S,
        stale_s=0.0,  # 3.1: defer visits until the resource can be retrieved
    ),
)

_KOSTER_1994: Final = Traits(
    syntax=Syntax(fields=_OTHER_FIELDS | {"user-agent", "disallow"}, blank_lines=True),
    grouping=Grouping(
        rules=_DISALLOW_ONLY,
        name=agents.without_version,
        token=agents.short_name,  # "the name without version information"
        names=agents.is_part_of,  # "a case insensitive substring match"
        named=agents.first,
        everybody=agents.first,
    ),
    matching=_KOSTER_1996.matching._replace(empty_disallow_ends=False),
    winner=Winner.FIRST,
    outcomes=_KOSTER_1996.outcomes._replace(default_lifetime_s=DAY_S, max_lifetime_s=DAY_S),
)

_CONNER_2: Final = Traits(
    syntax=Syntax(fields=_FIELDS | {"robot-version"}),
    grouping=Grouping(
        versioned=True,
        name=agents.first_word,
        names=agents.is_start_of,  # Conner 2.0, "User-agent: <general>": a prefix of the name
        named=agents.newest_readable,
        everybody=agents.newest_readable,
    ),
    matching=Matching(form=pattern.DECODED, normalise_pattern=pattern.decode_pattern),
    winner=Winner.EXPLICIT,
    outcomes=_RFC9309.outcomes,  # Conner 2.0 does not define outcomes
)

_PERL: Final = Traits(
    syntax=Syntax(fields=_OTHER_FIELDS | {"user-agent", "disallow"}, blank_lines=True),
    grouping=_KOSTER_1994.grouping._replace(unnamed_group=True, everybody=agents.merged),
    matching=Matching(
        form=pattern.WRITTEN,
        normalise_pattern=pattern.keep_prefix,
        leading=("",),  # a path without a leading slash is relative to robots.txt
        empty_disallow_ends=True,
        of_site=True,
    ),
    winner=Winner.FIRST_OF_SITE,
    outcomes=_RFC9309.outcomes._replace(forbidden_disallows=True),
)

_ROWS: Final = (_RFC9309, _GOOGLE, _KOSTER_2019, _KOSTER_1996, _KOSTER_1994, _CONNER_2, _PERL)
for _dialect, _row in zip(Dialect, _ROWS, strict=True):
    _dialect.traits = _row

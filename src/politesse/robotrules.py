"""The interface of Perl's WWW::RobotRules, for those who know it or move from it: files in, answers out, no fetching.

::

    rules = RobotRules("ExampleBot/1.0")
    rules.parse("https://example.com/robots.txt", content)
    if rules.allowed("https://example.com/page"): ...

One thing differs from Perl, and is meant to: there the answer for a site that was never parsed is -1, which is true in
a bare test, so that the example of the book that teaches it fetches the page. Here only ALLOWED is true. And sites are
kept apart by their scheme too, not by host and port alone.
"""

from __future__ import annotations

import json
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from politesse._constants import DAY_S
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, split
from politesse.robots import Dialect, RobotsTxt
from politesse.robots.rule_sets.ordered import FirstMatchRuleSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.robots import RuleSet

_VERSION: Final = 1
_ALLOW: Final = "Allow: "

Value = TypeVar("Value")


class Answer(IntEnum):
    """What ``allowed`` says; true only for ALLOWED."""

    ALLOWED = 1
    DENIED = 0
    UNKNOWN = -1
    """The site was not parsed, or its rules are stale."""

    def __bool__(self) -> bool:
        return self is Answer.ALLOWED


class RobotRules:
    """The rules of many sites for one robot, as WWW::RobotRules keeps them; plain, in memory, for one thread.

    A site is named by a URL of it, or as ``"example.com:80"``: port 443 then stands for https, any other for http.
    A rule is a path that may not be requested, or ``"Allow: "`` and a path; the first that fits decides.

    Args:
        name: of the robot; its first word without a version counts. A line of a robots.txt names the robot if one of
            the two names is a part of the other; with ``perl_exact`` if the line is a part of the robot's.
        perl_exact: read files as WWW::RobotRules does: Allow lines are ignored, and escapes are compared as written.
            Else as the draft of 1996 has it, and the tables of "HTTP: The Definitive Guide". What remains different:
            /robots.txt itself is always allowed, and a version behind a name of the file is no part of it.
        clock: returns the Unix time.

    Raises:
        ConfigurationError: for a name without a word.
    """

    def __init__(self, name: str, *, perl_exact: bool = False, clock: Callable[[], float] = time.time) -> None:
        self._dialect = Dialect.PERL if perl_exact else Dialect.KOSTER_1996
        self._perl_exact = perl_exact
        self._clock = clock
        self._name = _short(name)
        self._sites: dict[str, _Site] = {}

    def agent(self, name: str | None = None) -> str:
        """Return the robot's name; with another one, take it on, and forget all sites: they were read for the first."""
        before = self._name
        if name is not None and (short := _short(name)) != before:
            self._name = short
            self._sites.clear()
        return before

    def is_me(self, name: str) -> bool:
        """Whether the value of a User-agent line is a part of the robot's name, in whatever case."""
        return name.lower() in self._name.lower()

    def parse(self, url: str, content: bytes | str, fresh_until: float | None = None) -> None:
        """Read a robots.txt; its rules replace those that its site had.

        Args:
            url: where it was got; its site is what counts.
            content: as it came. Nothing in it raises.
            fresh_until: the Unix time from which on it is unknown again; a day from now unless given, as nobody should
                go by an older one. (WWW::RobotRules has a year.)

        Raises InvalidURL.
        """
        origin = Origin.of(url)
        site = self._site(origin)
        site.fresh_until = self._clock() + DAY_S if fresh_until is None else fresh_until
        compiled = RobotsTxt.parse(content, self._dialect, origin=origin).rules_for(self._name)
        site.compiled = compiled
        site.rules = _texts(compiled, as_written=not self._perl_exact)

    def allowed(self, url: str) -> Answer:
        """Return whether a URL may be requested. What is not http(s) is none of a robots.txt's business: ALLOWED.

        Raises InvalidURL for an http(s) URL that names no site.
        """
        if url.partition(":")[0].strip().lower() not in {"http", "https"}:
            return Answer.ALLOWED
        origin, target = split(url)
        site = self._sites.get(str(origin))
        if site is None or site.fresh_until is None or site.fresh_until < self._clock():
            return Answer.UNKNOWN
        return Answer.ALLOWED if self._compiled(origin, site).judge(target).allowed else Answer.DENIED

    def visit(self, site: str, at: float | None = None) -> None:
        """Note a visit, at the Unix time ``at`` or now."""
        noted = self._site(_origin(site))
        noted.visits += 1
        noted.last_visit = self._clock() if at is None else at

    def no_visits(self, site: str) -> int:
        """Return the number of visits."""
        return self._look_up(site).visits

    def last_visit(self, site: str) -> float | None:
        """Return the Unix time of the last visit; None before the first."""
        return self._look_up(site).last_visit

    def fresh_until(self, site: str, until: float | None = None) -> float | None:
        """Return until when the rules are known, None if they are not; then set it if ``until`` is given."""
        before = self._look_up(site).fresh_until
        if until is not None:
            self._site(_origin(site)).fresh_until = until
        return before

    def rules(self, site: str) -> list[str]:
        """Return the rules, in the order in which they are tried."""
        return list(self._look_up(site).rules)

    def push_rules(self, site: str, *rules: str) -> None:
        """Add rules behind those that there are. Raises ConfigurationError for one that is more than a line."""
        for rule in rules:
            if "#" in rule or len(f"{rule}.".splitlines()) > 1:
                raise ConfigurationError(f"push_rules(..., {rule!r:.100}): give a path, which is one line without '#'")
        pushed = self._site(_origin(site))
        pushed.rules += rules
        pushed.compiled = None

    def clear_rules(self, site: str) -> None:
        """Drop the rules; what is known of visits and freshness stays, so that all is allowed while it is fresh."""
        cleared = self._look_up(site)
        cleared.rules, cleared.compiled = [], None

    def dump(self) -> str:
        """Return all of it as JSON, for ``load``."""
        sites = {
            key: {
                "rules": site.rules,
                "fresh_until": site.fresh_until,
                "visits": site.visits,
                "last_visit": site.last_visit,
            }
            for key, site in self._sites.items()
        }
        dumped = {"version": _VERSION, "agent": self._name, "perl_exact": self._perl_exact, "sites": sites}
        return json.dumps(dumped, ensure_ascii=True)

    @classmethod
    def load(cls, dumped: str, *, clock: Callable[[], float] = time.time) -> RobotRules:
        """Return what ``dump`` has written. Raises ConfigurationError for anything else."""
        try:
            told = json.loads(dumped)
            if told["version"] != _VERSION:
                raise ConfigurationError(f"a dump of version {told['version']!r:.20}: this reads version {_VERSION}")
            loaded = cls(told["agent"], perl_exact=_a(bool, told["perl_exact"]), clock=clock)
            for key, said in told["sites"].items():
                site = loaded._site(Origin.of(key))
                loaded.push_rules(key, *(_a(str, rule) for rule in said["rules"]))
                site.fresh_until = _moment(said["fresh_until"])
                site.visits = _a(int, said["visits"])
                site.last_visit = _moment(said["last_visit"])
        except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError, InvalidURL) as error:
            raise ConfigurationError(f"this is no dump of RobotRules: {error!r:.200}") from error
        return loaded

    def __repr__(self) -> str:
        exact = ", perl_exact=True" if self._perl_exact else ""
        return f"<RobotRules({self._name!r}{exact}): {len(self._sites)} sites>"

    def _site(self, origin: Origin) -> _Site:
        return self._sites.setdefault(str(origin), _Site())

    def _look_up(self, site: str) -> _Site:
        return self._sites.get(str(_origin(site))) or _Site()

    def _compiled(self, origin: Origin, site: _Site) -> RuleSet:
        if site.compiled is None:
            lines = (rule if rule.startswith(_ALLOW) else f"Disallow: {rule}" for rule in site.rules)
            text = "\n".join(["User-agent: *", *lines])
            site.compiled = RobotsTxt.parse(text, self._dialect, origin=origin).rules_for(self._name)
        return site.compiled


class _Site:
    """What is known of a site."""

    __slots__ = ("compiled", "fresh_until", "last_visit", "rules", "visits")

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.compiled: RuleSet | None = None
        self.fresh_until: float | None = None
        self.visits = 0
        self.last_visit: float | None = None


def _short(name: str) -> str:
    words = name.split(maxsplit=1)
    short = words[0].partition("/")[0] if words else ""
    if not short:
        raise ConfigurationError(f"RobotRules({name!r:.100}): give the robot's name, as in 'ExampleBot/1.0'")
    return short


def _origin(site: str) -> Origin:
    if "://" in site:
        return Origin.of(site)
    return Origin.of(f"{'https' if site.endswith(':443') else 'http'}://{site}")


def _texts(compiled: RuleSet, *, as_written: bool) -> list[str]:
    rules = compiled.in_order if isinstance(compiled, FirstMatchRuleSet) else ()
    return [f"{_ALLOW if rule.allow else ''}{rule.value if as_written else rule.pattern}" for rule in rules]


def _a(kind: type[Value], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.50} where {kind.__name__} is to stand")
    return value


def _moment(value: object) -> float | None:
    return None if value is None else float(_a(float, value) if isinstance(value, float) else _a(int, value))

"""The interface of Perl's WWW::RobotRules, which parses files and answers questions, but fetches no file.

::

    rules = RobotRules("ExampleBot/1.0")
    rules.parse("https://example.com/robots.txt", content)
    if rules.allowed("https://example.com/page"): ...

Two differences from Perl are intended:

* Only ALLOWED is true. In Perl the answer is -1 for a site whose robots.txt was never parsed. Perl takes -1 as true, so
  ``if ($rules->allowed($url))``, as in the documentation, fetches the page.
* Sites with the same host and port but different schemes are different sites.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from politesse._base.checks import check_types
from politesse._base.constants import DAY_S
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, StrOrURL, split, url_text
from politesse.robots import Dialect, RobotsTxt, RuleSet

_VERSION: Final = 1
_ALLOW: Final = "Allow: "

Value = TypeVar("Value")


class RobotRulesAnswer(IntEnum):
    """The result of ``RobotRules.allowed``; true only for ALLOWED.

    >>> bool(RobotRulesAnswer.UNKNOWN)
    False
    """

    ALLOWED = 1
    DENIED = 0
    UNKNOWN = -1
    """No robots.txt of the site was parsed, or the rules are stale."""

    def __bool__(self) -> bool:
        return self is RobotRulesAnswer.ALLOWED


class RobotRules:
    r"""The rules of many sites for one robot, as in WWW::RobotRules; in memory, for one thread.

    A site is named by one of its URLs, or as ``"example.com:80"``; port 443 means https, any other port http. A rule is
    a path that may not be requested, or ``"Allow: "`` and a path; the first matching rule decides.

    >>> rules = RobotRules("ExampleBot/1.0")
    >>> rules.parse("https://example.com/robots.txt", b"User-agent: *\nDisallow: /private")
    >>> rules.allowed("https://example.com/private/page")
    <RobotRulesAnswer.DENIED: 0>

    Args:
        name: the name of the robot; only its first word counts, without a version. A User-agent line matches if one of
            the two names contains the other. With ``perl_exact`` the robot's name must contain the name in the line.
        perl_exact: whether to read files as WWW::RobotRules does: Allow lines are ignored, and escapes are compared as
            written. By default files are read as in the draft of 1996, and the tables of "HTTP: The Definitive Guide".
            Two differences remain: /robots.txt itself is always allowed, and a version after a name in the file is
            ignored.
        clock: returns the Unix time.

    Raises:
        ConfigurationError: the name has no word.
    """

    def __init__(self, name: str, *, perl_exact: bool = False, clock: Callable[[], float] = time.time) -> None:
        self._dialect = Dialect.PERL if perl_exact else Dialect.KOSTER_1996
        self._perl_exact = perl_exact
        self._clock = clock
        self._name = _short(name)
        self._sites: dict[str, _Site] = {}

    def agent(self, name: str | None = None) -> str:
        """Return the robot's name, as it was before the call. A different ``name`` replaces it, and removes all sites.

        Raises:
            ConfigurationError: the new name has no word.
        """
        before = self._name
        if name is not None and (short := _short(name)) != before:
            self._name = short
            self._sites.clear()
        return before

    def is_me(self, name: str) -> bool:
        """Whether the robot's name contains the value of a User-agent line; case-insensitive."""
        return name.lower() in self._name.lower()

    def parse(self, url: StrOrURL, content: bytes | str, fresh_until: float | None = None) -> None:
        """Parse a robots.txt; its rules replace the earlier rules of the site. Never raises on content.

        Args:
            url: the URL of the file; only its site matters.
            content: the content of the file.
            fresh_until: the Unix time until which the rules hold; by default a day from now (RFC 9309 2.4;
                WWW::RobotRules uses a year).

        Raises:
            InvalidURL: ``url`` is not an absolute http(s) URL.
        """
        origin = Origin.of(url)
        site = self._site(origin)
        site.fresh_until = self._clock() + DAY_S if fresh_until is None else fresh_until
        compiled = RobotsTxt.parse(content, self._dialect, origin=origin).rules_for(self._name)
        site.compiled = compiled
        site.rules = _texts(compiled, as_written=not self._perl_exact)

    def allowed(self, url: StrOrURL) -> RobotRulesAnswer:
        """Return whether a URL may be requested; ALLOWED for other schemes than http(s), which have no robots.txt.

        Raises:
            InvalidURL: ``url`` is an http(s) URL without a valid host or port.
        """
        url = url_text(url)
        if url.partition(":")[0].strip().lower() not in {"http", "https"}:
            return RobotRulesAnswer.ALLOWED
        origin, target = split(url)
        site = self._sites.get(str(origin))
        if site is None or site.fresh_until is None or site.fresh_until < self._clock():
            return RobotRulesAnswer.UNKNOWN
        return RobotRulesAnswer(int(self._compiled(origin, site).judge(target).allowed))

    def visit(self, site: StrOrURL, at: float | None = None) -> None:
        """Record a visit at the Unix time ``at``, by default now."""
        noted = self._site(_origin(site))
        noted.visits += 1
        noted.last_visit = self._clock() if at is None else at

    def no_visits(self, site: StrOrURL) -> int:
        """Return the number of visits."""
        return self._look_up(site).visits

    def last_visit(self, site: StrOrURL) -> float | None:
        """Return the Unix time of the last visit, or None before the first."""
        return self._look_up(site).last_visit

    def fresh_until(self, site: StrOrURL, until: float | None = None) -> float | None:
        """Return the Unix time until which the rules hold, or None. ``until`` sets a new time afterwards."""
        before = self._look_up(site).fresh_until
        if until is not None:
            self._site(_origin(site)).fresh_until = until
        return before

    def rules(self, site: StrOrURL) -> list[str]:
        """Return the rules, in the order in which they are compared."""
        return list(self._look_up(site).rules)

    def push_rules(self, site: StrOrURL, *rules: str) -> None:
        """Append rules.

        Raises:
            ConfigurationError: a rule is more than one line, or contains ``#``.
        """
        for rule in rules:
            if "#" in rule or len(f"{rule}.".splitlines()) > 1:
                raise ConfigurationError(f"push_rules(..., {rule!r:.100}): give a path, which is one line without '#'")
        pushed = self._site(_origin(site))
        pushed.rules += rules
        pushed.compiled = None

    def clear_rules(self, site: StrOrURL) -> None:
        """Remove the rules, but keep the visits and ``fresh_until``: until that time, every URL is allowed."""
        cleared = self._look_up(site)
        cleared.rules, cleared.compiled = [], None

    def dump(self) -> str:
        """Return all sites as JSON, for ``load``."""
        names = ("rules", "fresh_until", "visits", "last_visit")
        sites = {key: {name: getattr(site, name) for name in names} for key, site in self._sites.items()}
        dumped = {"version": _VERSION, "agent": self._name, "perl_exact": self._perl_exact, "sites": sites}
        return json.dumps(dumped, ensure_ascii=True)

    @classmethod
    def load(cls, dumped: str, *, clock: Callable[[], float] = time.time) -> RobotRules:
        """Return the RobotRules of a ``dump``.

        Raises:
            ConfigurationError: ``dumped`` is not such a dump.
        """
        try:
            saved = json.loads(dumped)
            if saved["version"] != _VERSION:
                raise ConfigurationError(f"a dump of version {saved['version']!r:.20}: this reads version {_VERSION}")
            loaded = cls(saved["agent"], perl_exact=_a(bool, saved["perl_exact"]), clock=clock)
            for key, said in saved["sites"].items():
                site = loaded._site(Origin.of(key))
                loaded.push_rules(key, *(_a(str, rule) for rule in said["rules"]))
                site.fresh_until = _moment(said["fresh_until"])
                site.visits = _a(int, said["visits"])
                site.last_visit = _moment(said["last_visit"])
        except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError, InvalidURL) as error:
            raise ConfigurationError(f"this is not a dump of RobotRules: {error!r:.200}") from error
        return loaded

    def __repr__(self) -> str:
        exact = ", perl_exact=True" if self._perl_exact else ""
        return f"<RobotRules({self._name!r}{exact}): {len(self._sites)} sites>"

    def _site(self, origin: Origin) -> _Site:
        return self._sites.setdefault(str(origin), _Site())

    def _look_up(self, site: StrOrURL) -> _Site:
        return self._sites.get(str(_origin(site))) or _Site()

    def _compiled(self, origin: Origin, site: _Site) -> RuleSet:
        if site.compiled is None:
            lines = (rule if rule.startswith(_ALLOW) else f"Disallow: {rule}" for rule in site.rules)
            text = "\n".join(["User-agent: *", *lines])
            site.compiled = RobotsTxt.parse(text, self._dialect, origin=origin).rules_for(self._name)
        return site.compiled


@dataclass(slots=True)
class _Site:
    """The state of a site."""

    rules: list[str] = field(default_factory=list)
    compiled: RuleSet | None = None
    fresh_until: float | None = None
    visits: int = 0
    last_visit: float | None = None


def _short(name: str) -> str:
    check_types({"name": (name, str)}, required=True)
    words = name.split(maxsplit=1)
    short = words[0].partition("/")[0] if words else ""
    if not short:
        raise ConfigurationError(f"RobotRules({name!r:.100}): give the robot's name, as in 'ExampleBot/1.0'")
    return short


def _origin(site: StrOrURL) -> Origin:
    text = url_text(site, "site")
    if "://" in text:
        return Origin.of(text)
    return Origin.of(f"{'https' if text.endswith(':443') else 'http'}://{text}")


def _texts(compiled: RuleSet, *, as_written: bool) -> list[str]:
    return [f"{_ALLOW if rule.allow else ''}{rule.value if as_written else rule.pattern}" for rule in compiled.rules]


def _a(kind: type[Value], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.50} in place of a value of type {kind.__name__}")
    return value


def _moment(value: object) -> float | None:
    return None if value is None else float(_a(float, value) if isinstance(value, float) else _a(int, value))

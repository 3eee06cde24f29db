"""Reads the tables of the standards, and asks the library what their rows say.

They are TOML files that carry their source, each entry with the clause it comes from.

``[[example]]``
    a file, and which URLs (or targets) it allows and denies to which agents.
``[[matrix]]``
    the same in the form in which old texts print it: a row for each URL, a column for each agent.
``[[path]]``
    the path of a rule, and the targets that it matches and misses.
``[[usage]]``
    a file, and for each row an agent, a URL, whether it may be requested, and what is said about its use: the
    purposes that are stated, nothing where it may not be requested.
``[[address]]``
    a URL, and where the robots.txt that speaks for it lives.

``dialects``, of a table or of an entry, names the dialects in which it holds, or ``all``; RFC 9309 unless told.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.usage.model import Preference, Purpose

DATA: Final = Path(__file__).with_name("data")
ANSWERS: Final = {"Yes": True, "No": False}


AGENT = "ExampleBot"

# An Allow beside a Disallow that decides if the Allow does not match; dialects that are not here know no such Allow.
ALLOWING: Final = {
    Dialect.RFC9309: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.GOOGLE: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.KOSTER_2019: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.KOSTER_1996: "User-agent: *\nAllow: {}\nDisallow: /",
}


@dataclass(frozen=True)
class Access:
    """What a file says to one agent about one URL."""

    robots_txt: bytes
    agent: str
    url: str
    allowed: bool
    dialect: Dialect
    origin: Origin | None = None


@dataclass(frozen=True)
class PathMatch:
    """Whether the path of a rule matches a target."""

    path: str
    target: str
    matches: bool
    dialect: Dialect


@dataclass(frozen=True)
class Preferences:
    """What a file says to one agent about one URL and its use; None where it may not be requested."""

    robots_txt: bytes
    agent: str
    url: str
    stated: Mapping[str, str] | None
    dialect: Dialect


@dataclass(frozen=True)
class Address:
    """Where the robots.txt of a URL lives."""

    url: str
    robots_url: str


Row: TypeAlias = Access | PathMatch | Preferences | Address
Entries: TypeAlias = dict[str, list[Row]]


def clauses(*names: str) -> list[Any]:
    """Return the clauses of some tables as parameters of a test: the rows of each entry by its title, and the mark."""
    return [param for name in names for param in _clauses(name)]


def _clauses(name: str) -> list[Any]:
    table = tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
    clause = table.pop("clause")
    assert table.pop("source"), f"{name} has no source"
    dialects = table.pop("dialects", ["rfc9309"])
    found: dict[str, Entries] = {}
    for kind, listed in table.items():
        for number, entry in enumerate(listed):
            title = next((entry[key] for key in ("behaviour", "path", "url") if key in entry), kind)
            entry_dialects = _dialects(entry.get("dialects", dialects))
            rows = [row for dialect in entry_dialects for row in _READERS[kind](entry, dialect)]
            assert rows, f"{title} of {name} has no rows"
            found.setdefault(entry.get("clause", clause), {})[f"{kind} {number}: {title}"] = rows
    assert found, f"{name} has no entries"
    return [pytest.param(rows, id=f"{name}-{one}", marks=pytest.mark.clause(one)) for one, rows in found.items()]


def failing(entries: Entries, holds: Callable[[Any], bool] | None = None) -> dict[str, list[Row]]:
    """Return the rows that the library does not hold, by the title of their entry."""
    answers = {title: [row for row in rows if not (holds or _holds)(row)] for title, rows in entries.items()}
    return {title: rows for title, rows in answers.items() if rows}


def _dialects(names: Sequence[str]) -> list[Dialect]:
    return [dialect for dialect in Dialect if dialect.value in names or names == ["all"]]


def _example(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"behaviour", "robots_txt"}, {"clause", "dialects", "encoding", "site", "allowed", "denied"})
    origin = Origin.of(entry["site"]) if "site" in entry else None
    octets = entry["robots_txt"].encode(entry.get("encoding", "utf-8"))
    for answer, allowed in (("allowed", True), ("denied", False)):
        for agent, urls in entry.get(answer, {}).items():
            for url in urls:
                yield Access(octets, agent, url, allowed, dialect, origin)


def _matrix(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"robots_txt", "agents", "rows"}, {"clause", "dialects"})
    octets = entry["robots_txt"].encode()
    for url, *answers in entry["rows"]:
        for agent, answer in zip(entry["agents"], answers, strict=True):
            yield Access(octets, agent, url, ANSWERS[answer], dialect)


def _path(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"path"}, {"clause", "dialects", "matches", "misses"})
    for answer, matches in (("matches", True), ("misses", False)):
        for target in entry.get(answer, ()):
            yield PathMatch(entry["path"], target, matches, dialect)


def _usage(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"behaviour", "robots_txt", "rows"}, {"clause", "dialects"})
    for agent, url, answer, *stated in entry["rows"]:
        said = stated[0] if ANSWERS[answer] else None
        yield Preferences(entry["robots_txt"].encode(), agent, url, said, dialect)


def _address(entry: Mapping[str, Any], _: Dialect) -> Iterator[Row]:
    _know(entry, {"url", "robots_url"}, {"clause"})
    yield Address(entry["url"], entry["robots_url"])


def _know(entry: Mapping[str, Any], required: set[str], optional: set[str]) -> None:
    missing, unknown = required - entry.keys(), entry.keys() - required - optional
    assert not missing, f"{entry} lacks {missing}"
    assert not unknown, f"{entry} has the unknown {unknown}"


_READERS: Final = {"example": _example, "matrix": _matrix, "path": _path, "usage": _usage, "address": _address}


def _holds(row: Row) -> bool:
    if isinstance(row, Access):
        robots = RobotsTxt.parse(row.robots_txt, row.dialect, origin=row.origin)
        return robots.rules_for(row.agent).allowed(row.url) is row.allowed
    if isinstance(row, PathMatch):
        return _path_holds(row)
    if isinstance(row, Preferences):
        return _stated(row) == row.stated
    return Origin.of(row.url).robots_url == row.robots_url


def _path_holds(row: PathMatch) -> bool:
    disallowing = RobotsTxt.parse(f"User-agent: *\nDisallow: {row.path}", row.dialect).rules_for(AGENT)
    if disallowing.allowed(row.target) is row.matches:
        return False
    if row.dialect not in ALLOWING:
        return True
    allowing = RobotsTxt.parse(ALLOWING[row.dialect].format(row.path), row.dialect).rules_for(AGENT)
    return allowing.allowed(row.target) is row.matches


def _stated(row: Preferences) -> dict[str, str] | None:
    rules = RobotsTxt.parse(row.robots_txt, row.dialect).rules_for(row.agent)
    usage = rules.usage(row.url)
    assert (usage is not None) is rules.allowed(row.url)
    if usage is None:
        return None
    return {
        purpose: preference
        for purpose in Purpose
        if (preference := usage.preference(purpose)) is not Preference.UNSTATED
    }

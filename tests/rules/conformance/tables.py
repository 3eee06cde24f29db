"""Reads the tables of the standards: TOML files that carry their source, each entry with the clause it comes from.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from politesse.origin import Origin
from politesse.robots import Dialect

DATA: Final = Path(__file__).with_name("data")
ANSWERS: Final = {"Yes": True, "No": False}


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


def entries(*names: str) -> list[Any]:
    """Return the entries of some tables as parameters of a test: each the list of its rows, marked with its clause.

    A test for each row would cost more in pytest than in the library.
    """
    return [param for name in names for param in _entries(name)]


def _entries(name: str) -> list[Any]:
    table = tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
    clause = table.pop("clause")
    assert table.pop("source"), f"{name} has no source"
    dialects = table.pop("dialects", ["rfc9309"])
    params = []
    for kind, listed in table.items():
        for entry in listed:
            rows = [
                row for dialect in _dialects(entry.get("dialects", dialects)) for row in _READERS[kind](entry, dialect)
            ]
            title = next((entry[key] for key in ("behaviour", "path", "url") if key in entry), kind)
            assert rows, f"{title} of {name} has no rows"
            marks = pytest.mark.clause(entry.get("clause", clause))
            params.append(pytest.param(rows, id=f"{name}-{title}", marks=marks))
    assert params, f"{name} has no entries"
    return params


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

"""``/.well-known/tdmrep.json``: a site's reservations of text and data mining (TDMRep, "Origin server file").

The first matching location of the file decides. The length of its path and the value of its reservation do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from politesse._base.text import has_utf_8
from politesse.origin import StrOrURL, target_of
from politesse.robots.budget import USAGE_BUDGET, Meter, metered_matcher
from politesse.robots.pattern import NORMALISED, normalise_pattern
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Statement, Usage
from politesse.usage.vocabulary import parse_tdm_reservation

MAX_OCTETS: Final = 1_048_576
"""A longer file is ignored, because a part of it could have another meaning."""

_MAX_DIGITS: Final = 20  # a longer number is slow to convert, and is neither 0 nor 1
_MAX_KEPT: Final = 1_000  # each value in the text of a statement is cut to this many characters


@dataclass(frozen=True, slots=True)
class Location:
    """One entry of the file.

    Attributes:
        statement: the number, path, reservation and policy of the entry. The preference is DISALLOWED if rights are
            reserved, ALLOWED if not, and UNSTATED for other values of the reservation.
        matches: returns whether the path matches any form of a target.
    """

    statement: Statement
    matches: Callable[[Meter], bool] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TdmRep:
    """The content of a tdmrep.json.

    >>> parse_tdmrep(b'[{"location": "/", "tdm-reservation": 1}]').locations[0].statement.preference
    <Preference.DISALLOWED: 'disallowed'>

    Attributes:
        locations: the entries with a valid path, in the order of the file.
        fault: why the file is unreadable, as a phrase; empty if it is readable.
    """

    locations: tuple[Location, ...] = ()
    fault: str = ""


def parse_tdmrep(body: bytes) -> TdmRep:
    """Parse a tdmrep.json. No content raises an error; time and memory are linear in its length, which is limited.

    >>> parse_tdmrep(b"<html>").fault
    'it is not JSON: Expecting value: line 1 column 1 (char 0)'
    """
    if len(body) > MAX_OCTETS:
        return TdmRep(fault=f"it is longer than {MAX_OCTETS} octets")
    try:
        entries: object = json.loads(body, parse_int=_integer)
    except RecursionError:
        return TdmRep(fault="it is nested too deeply")
    except ValueError as error:
        return TdmRep(fault=f"it is not JSON: {error!s:.200}")
    if not isinstance(entries, list):
        return TdmRep(fault="it is not a JSON array")
    return TdmRep(
        tuple(one for number, entry in enumerate(entries, 1) if (one := _location(number, entry)) is not None)
    )


def tdmrep_usage(doc: TdmRep, target: StrOrURL) -> Usage:
    """Return the preferences of a tdmrep.json for a URL of its site, or for a target that starts with ``/``.

    The result for an unreadable file is one statement that reports the fault and states no preference.

    >>> doc = parse_tdmrep(b'[{"location": "/articles", "tdm-reservation": 1}]')
    >>> tdmrep_usage(doc, "/articles/1").preference("tdm")
    <Preference.DISALLOWED: 'disallowed'>

    Raises:
        InvalidURL: the URL or target is invalid.
        TypeError: ``target`` is neither a str nor a yarl.URL.
    """
    forms = NORMALISED.of_target(target_of(target, "target"))
    if doc.fault:
        unread = f"could not be read: {doc.fault}"
        return Usage((Statement(None, Preference.UNSTATED, Mechanism.TDMREP, Place.TDMREP_JSON, unread),))
    bearing = tuple(_bearing(doc.locations, forms))
    return Usage(bearing, bearing[:1])


def _bearing(locations: Sequence[Location], forms: Sequence[str]) -> Iterator[Statement]:
    """Yield the statements of the matching locations, within the bound on matching work.

    If the bound is reached, only the first remaining location that reserves rights counts as matching.
    """
    meter = Meter(forms, USAGE_BUDGET)
    for place, one in enumerate(locations):
        if one.matches(meter):
            yield one.statement
        elif meter.exhausted:
            rest = (other.statement for other in locations[place:])
            yield from islice((other for other in rest if other.preference is Preference.DISALLOWED), 1)
            return


def _location(number: int, entry: object) -> Location | None:
    path = entry.get("location") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(path, str) or not path or not has_utf_8(path):
        return None
    value = entry.get("tdm-reservation")
    # TDMRep: the value is the integer 0 or 1. 1.0 and "1" are not valid; true becomes the text "True", which is not
    # valid either.
    reservation = parse_tdm_reservation(str(value)) if isinstance(value, int) else Preference.UNSTATED
    policy = entry.get("tdm-policy")
    policy = policy if isinstance(policy, str) else ""
    shown: dict[str, str | float] = {"location": path[:_MAX_KEPT]}
    if isinstance(value, str | int | float):
        shown["tdm-reservation"] = value[:_MAX_KEPT] if isinstance(value, str) else value
    if policy:
        shown["tdm-policy"] = policy[:_MAX_KEPT]
    where = Place.TDMREP_JSON, json.dumps(shown), number, path
    statement = Statement(Purpose.TDM, reservation, Mechanism.TDMREP, *where, policy=policy)
    return Location(statement, metered_matcher(normalise_pattern(path)))


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MAX_DIGITS else None

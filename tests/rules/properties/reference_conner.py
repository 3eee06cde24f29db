"""A slow, literal reading of S. Conner's proposal of October 1996.

It works on octets and shares no code with the library. The decisions that the text leaves open stand beside the line
that takes them.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from tests.rules.properties.reference import (
    GEN_DELIMS,
    SUB_DELIMS,
    UNRESERVED,
    Decision,
    Record,
    fields,
    percent_escape,
)
from tests.rules.properties.reference_koster import SLASH, is_robots_txt, matches, name_on_line, units, url_units

HEADERS: Final = {b"allow", b"disallow", b"visit-time", b"request-rate", b"comment", b"crawl-delay"}
STAR: Final = -1


@dataclass
class RuleSet:
    agents: list[bytes] = field(default_factory=list)
    rules: list[Record] = field(default_factory=list)
    version: tuple[int, int, int] = (1, 0, 0)


def rule_sets(octets: bytes) -> list[RuleSet]:
    found: list[RuleSet] = []
    next_header = False  # whether the next valid header is the next one after User-agent
    for number, name, value in fields(octets):
        if name == b"user-agent":
            if not found or found[-1].rules:
                found.append(RuleSet())
            found[-1].agents.append(value)
            found[-1].version = (1, 0, 0)
            next_header = True
        elif name == b"robot-version":
            # "If it does not immediately follow, or is missing, then ... the rule set follows the 1.0.0 standard."
            parts = re.fullmatch(rb"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?", value)
            if next_header and parts is not None:
                found[-1].version = (int(parts[1]), int(parts[2]), int(parts[3] or 0))
            next_header = False
        elif name in HEADERS:
            next_header = False
            if name in {b"allow", b"disallow"} and found:
                found[-1].rules.append(Record(number, name == b"allow", value))
    return found


def readable(rule_set: RuleSet) -> bool:
    """Valid numbers are 1 and 2; an experimental version is to be ignored, a higher stable one is okay."""
    return rule_set.version[0] in {1, 2} and rule_set.version[1] % 2 == 0


def best(found: list[RuleSet]) -> RuleSet | None:
    """Of several the highest version, the first of equal ones: the text says nothing."""
    usable = [one for one in found if readable(one)]
    highest = max((one.version for one in usable), default=None)
    return next((one for one in usable if one.version == highest), None)


def characters(octets: list[int]) -> list[int]:
    """The characters of a URL: an octet that none holds raw, or that is special here, is the three of its escape."""
    out: list[int] = []
    for octet in octets:
        raw = octet != SLASH and octet in UNRESERVED + GEN_DELIMS + SUB_DELIMS and octet not in b"*$#"
        out += [octet] if raw else percent_escape(ord("/") if octet == SLASH else octet)
    return out


def whole(pattern: bytes, url: bytes) -> bool:
    """Whether the pattern matches from the first octet to the last; "*" is zero or more of any."""
    wanted: list[int] = []
    for number, piece in enumerate(pattern.split(b"*")):
        wanted += [STAR, *characters(units(piece))] if number else characters(units(piece))
    target = characters(url_units(url))
    reached = {0}
    for unit in wanted:
        if unit == STAR:
            reached = set(range(min(reached), len(target) + 1))
        else:
            reached = {place + 1 for place in reached if place < len(target) and target[place] == unit}
        if not reached:
            return False
    return len(target) in reached


def decide(octets: bytes, name: bytes, url: bytes) -> Decision:
    if is_robots_txt(url):
        return Decision(allowed=True, exempt=True)
    found = rule_sets(octets)
    # User-agent: <general>, a literal match followed by anything.
    named = [one for one in found if any(_starts(value, name.lower()) for value in one.agents)]
    chosen = best(named) or best([one for one in found if b"*" in one.agents])
    if chosen is None:
        return Decision(allowed=True)
    rules = [rule for rule in chosen.rules if rule.path]
    if chosen.version[0] == 1:
        hit = next((rule for rule in rules if not rule.allow and matches(rule.path, url)), None)
        return Decision(allowed=True) if hit is None else _by(hit)
    explicit_allows = [rule for rule in rules if rule.allow and b"*" not in rule.path and starts_right(rule)]
    wild_allows = [rule for rule in rules if rule.allow and b"*" in rule.path and starts_right(rule)]
    disallows = [rule for rule in rules if not rule.allow and starts_right(rule)]
    # "explicit allows have a higher precedence than a disallow rule. Disallow rules have a higher precedence than wild
    # card/regular expression rules."
    for group in (explicit_allows, disallows, wild_allows):
        for rule in group:
            if whole(rule.path, url):
                return Decision(allowed=rule.allow)
    # "If there are no disallow rules, then the robot is ONLY allowed to retrieve the URLs that match"; "Any URL not
    # matching the disallow rules have to then pass (any) wild card/regular expression rules."
    limited = bool(wild_allows) or (bool(explicit_allows) and not disallows)
    return Decision(allowed=not limited)


def starts_right(rule: Record) -> bool:
    """A path starts with a slash or a wildcard; what does not can match no path, and is no rule."""
    return rule.path.startswith((b"/", b"*"))


def _starts(value: bytes, name: bytes) -> bool:
    return value != b"*" and bool(name_on_line(value)) and name.startswith(name_on_line(value))


def _by(rule: Record) -> Decision:
    return Decision(allowed=rule.allow, lines=frozenset({rule.line}))

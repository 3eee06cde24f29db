"""Slow, literal readings of Koster's three texts before RFC 9309: 1994, 1996 and 2019.

They work on octets and share no code with the library. The decisions that the texts leave open stand beside the line
that takes them.
"""

from typing import Final

from tests.rules.properties import reference
from tests.rules.properties.reference import (
    BLANK,
    HEX,
    Decision,
    Record,
    remove_dot_segments,
    split_lines,
    without_mark,
)

SLASH: Final = 0x1FFFF
"""An encoded slash: no octet, and so equal to itself only."""

NAME_END: Final = b" \t/;(,*"

Lines = list[tuple[int, bytes, bytes]]


def records(octets: bytes) -> list[Lines]:
    """3.2: records, separated by blank lines, of lines of the form <Field> ":" <value>."""
    found: list[Lines] = [[]]
    for number, line in enumerate(split_lines(without_mark(octets)), start=1):
        text = line.strip(BLANK)
        if text.startswith(b"#"):
            continue  # 1994: lines with only a comment are discarded completely
        if not text:
            found.append([])  # blank
            continue
        field, colon, value = text.partition(b"#")[0].partition(b":")
        if colon:
            found[-1].append((number, field.strip(BLANK).lower(), value.strip(BLANK)))
    return found


def units(path: bytes) -> list[int]:
    """3.2.2: a %xx encoded octet is unencoded prior to comparison, unless it is the "/" character."""
    out: list[int] = []
    place = 0
    while place < len(path):
        digits = path[place + 1 : place + 3]
        if path[place] == ord("%") and len(digits) == 2 and digits[0] in HEX and digits[1] in HEX:
            octet = int(digits, 16)
            out.append(SLASH if octet == ord("/") else octet)
            place += 3
        else:
            out.append(path[place])  # "%" without two digits is itself
            place += 1
    return out


def url_units(url: bytes) -> list[int]:
    """The path that is requested, and the query with it; dot segments are resolved by whoever requests it."""
    path, question, query = url.split(b"#")[0].partition(b"?")
    return remove_dot_segments(units(path)) + list(question) + units(query)


def matches(path: bytes, url: bytes) -> bool:
    """3.2.2: the end of the path from the record is reached before a difference in octets is encountered."""
    rule, target = units(path), url_units(url)
    return target[: len(rule)] == rule


def is_robots_txt(url: bytes) -> bool:
    return url_units(url) == list(b"/robots.txt")


def whole_name(value: bytes) -> bytes:
    """1994: "the name without version information". All words are the name; one alone may have another suffix."""
    name = value.split(b"/")[0].strip(BLANK)
    return name.lower() if len(name.split()) > 1 else name_on_line(name)


def name_on_line(value: bytes) -> bytes:
    """The first word, without its version or any other suffix."""
    end = next((place for place, octet in enumerate(value) if octet in NAME_END), len(value))
    return value[:end].lower()


def in_order(rules: list[Record], url: bytes) -> Decision:
    """1996, 3.2.2: in the order they occur in the record. The first match found is used."""
    for rule in rules:
        if rule.allow and not rule.path:
            continue  # 3.3: the path of an Allow starts with a slash
        if matches(rule.path, url):
            if not rule.path:
                return Decision(allowed=True)  # an empty Disallow: what webcrawler and excite have in section 4
            return Decision(allowed=rule.allow, octets=len(units(rule.path)), lines=frozenset({rule.line}))
    return Decision(allowed=True)


def decide_1996(octets: bytes, name: bytes, url: bytes) -> Decision:
    if is_robots_txt(url):
        return Decision(allowed=True, exempt=True)
    token = name.lower()
    found: list[tuple[list[bytes], list[Record]]] = []
    for lines in records(octets):
        agents_may_follow = False
        named = False
        for number, field, value in lines:
            if field == b"user-agent":
                if not agents_may_follow:
                    found.append(([], []))
                agents_may_follow = named = True
                found[-1][0].append(value)
            else:
                # 3.3: a record is agent lines and then rule lines; ruleline = (disallowline | allowline | extension)
                agents_may_follow = False
                if named and field in {b"allow", b"disallow"}:
                    found[-1][1].append(Record(number, field == b"allow", value))
    # 3.2.1: "whose value contains the name token of the robot as a substring"; the book that describes it says that
    # the robot's name contains the value. Both count.
    for agents, rules in found:
        if any(value != b"*" and (token in value.lower() or _is_in(value, token)) for value in agents):
            return in_order(rules, url)
    return in_order(next((rules for agents, rules in found if b"*" in agents), []), url)


def decide_1994(octets: bytes, name: bytes, url: bytes) -> Decision:
    """User-agent and Disallow; any URL that starts with this value will not be retrieved."""
    if is_robots_txt(url):
        return Decision(allowed=True, exempt=True)
    # "A case insensitive substring match of the name without version information is recommended."
    token = name.split()[0].split(b"/")[0].lower()
    found: list[tuple[list[bytes], list[Record]]] = []
    for lines in records(octets):
        fresh = True
        for number, field, value in lines:
            if field == b"user-agent":
                if fresh or found[-1][1]:
                    found.append(([], []))
                fresh = False
                found[-1][0].append(value)
            elif field == b"disallow" and not fresh:
                found[-1][1].append(Record(number, allow=False, path=value))
            # "Unrecognised headers are ignored."
    named = [rules for agents, rules in found if any(_is_in(value, token) for value in agents)]
    # "It is not allowed to have multiple such records": the first counts.
    everybody = [rules for agents, rules in found if b"*" in agents]
    for rule in (named or everybody or [[]])[0]:
        # "Any empty value, indicates that all URLs can be retrieved."
        if rule.path and matches(rule.path, url):
            return Decision(allowed=False, octets=len(units(rule.path)), lines=frozenset({rule.line}))
    return Decision(allowed=True)


def _is_in(value: bytes, token: bytes) -> bool:
    return value != b"*" and bool(whole_name(value)) and whole_name(value) in token


def decide_2019(octets: bytes, name: bytes, url: bytes) -> Decision:
    """As RFC 9309, but: "crawlers MUST obey the first group with a user-agent line with a "*" value"."""
    groups = reference.groups(octets)
    # "the matching groups' rules MUST be combined into one group"
    named = [record for agents, rules in groups if name.lower() in agents for record in rules]
    if not any(name.lower() in agents for agents, _ in groups):
        named = next((rules for agents, rules in groups if b"*" in agents), [])
    return reference.decide(named, url)

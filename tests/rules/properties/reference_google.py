"""A slow, literal reading of google/robotstxt, robots.cc: the file is read line by line, and nothing is kept of it.

It works on octets and shares no code with the library.
"""

import re
from typing import Final

from tests.rules.properties.reference import Decision, requested_path, split_lines, without_mark

MAX_LINE: Final = 2083 * 8 - 1
USER_AGENT: Final = (b"user-agent", b"useragent", b"user agent")
DISALLOW: Final = (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")

# RFC 3986 2: what a URI may hold raw, the percent sign of an escape included.
RAW: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;="


def key_and_value(line: bytes) -> tuple[bytes, bytes] | None:
    """ParseKeyAndValue."""
    text = line.partition(b"#")[0].strip()
    key, colon, value = text.partition(b":")
    if not colon:
        words = text.split()
        if len(words) != 2:
            return None
        key, value = words
    return (key.strip(), value.strip()) if key.strip() else None


def escaped(text: bytes, *, pattern: bool) -> bytes:
    """MaybeEscapePattern: octets that are no ASCII are escaped, hex digits made upper case; a "%" alone stays.

    The URL has to come escaped. What a client escapes in a URL besides is escaped in a pattern, too, for both are
    given to us as they are written.
    """
    out = b""
    place = 0
    while place < len(text):
        if re.match(rb"%[0-9A-Fa-f]{2}", text[place : place + 3]):
            out += text[place : place + 3].upper()
            place += 3
        else:
            octet = text[place]
            raw = octet in RAW or (pattern and octet == ord("%"))
            out += bytes([octet]) if raw else b"%%%02X" % octet
            place += 1
    return out


def sent(url: bytes) -> bytes:
    """GetPathParamsQuery of the URL as it is sent: escaped, without fragment and dot segments."""
    path, question, query = escaped(url.partition(b"#")[0], pattern=False).partition(b"?")
    return requested_path(path) + question + query


def matches(path: bytes, pattern: bytes) -> bool:
    """RobotsMatchStrategy::Matches: the places that are reached.

    A "%" that is no escape is the same octet in the path, or the escape that a client has made of that octet. As an
    octet it may stand before a digit of either case: those of escapes are upper case here. So it is kept which it was.
    """
    bare = {found.start() for found in re.finditer(rb"%(?![0-9A-Fa-f]{2})", pattern)}
    places = {(0, False)}
    for number in range(len(pattern)):
        octet = pattern[number : number + 1]
        if octet == b"$" and number == len(pattern) - 1:
            return any(place == len(path) for place, _ in places)
        if octet == b"*":
            first = min(place for place, _ in places)
            places = {(place, False) for place in range(first, len(path) + 1)}
        elif number in bare:
            octets = {(place + 1, True) for place, _ in places if path[place : place + 1] == b"%"}
            places = octets | {(place + 3, False) for place, _ in places if path[place : place + 3] == b"%25"}
        else:
            places = {
                (place + 1, False)
                for place, as_octet in places
                if path[place : place + 1] == (octet.upper() if as_octet else octet)
            }
        if not places:
            return False
    return True


class Matcher:
    """RobotsMatcher."""

    def __init__(self, name: bytes, path: bytes) -> None:
        self.name = name
        self.path = path
        self.priorities = {(who, what): -1 for who in ("global", "specific") for what in ("allow", "disallow")}
        self.seen: set[str] = set()
        self.ever_specific = False
        self.separated = False

    def user_agent(self, value: bytes) -> None:
        if self.separated:
            self.seen.clear()
            self.separated = False
        if value[:1] == b"*" and (len(value) == 1 or value[1:2].isspace()):
            self.seen.add("global")
            return
        cut = re.match(rb"[A-Za-z_-]*", value)
        assert cut is not None
        if cut[0].lower() == self.name.lower():
            self.ever_specific = True
            self.seen.add("specific")

    def rule(self, what: str, pattern: bytes) -> None:
        if not self.seen:
            return
        self.separated = True
        if matches(self.path, pattern):
            who = "specific" if "specific" in self.seen else "global"
            self.priorities[who, what] = max(self.priorities[who, what], len(pattern))
        elif what == "allow":
            directory, slash, page = pattern.rpartition(b"/")
            if slash and page.startswith(b"index.htm"):
                self.rule("allow", directory + b"/$")

    def decision(self) -> Decision:
        for who in ("specific", "global"):
            allow, disallow = self.priorities[who, "allow"], self.priorities[who, "disallow"]
            if allow > 0 or disallow > 0:
                return Decision(allowed=disallow <= allow, octets=max(allow, disallow))
            if who == "specific" and self.ever_specific:
                break
        return Decision(allowed=True)


def decide(octets: bytes, name: bytes, url: bytes) -> Decision:
    matcher = Matcher(name, sent(url))
    if matcher.path == b"/robots.txt":
        return Decision(allowed=True, exempt=True)
    for line in split_lines(without_mark(octets)):
        parsed = key_and_value(line[:MAX_LINE])
        if parsed is None:
            continue
        key, value = parsed[0].lower(), parsed[1]
        if key.startswith(USER_AGENT):
            matcher.user_agent(value)
        elif key.startswith(b"allow"):
            matcher.rule("allow", escaped(value, pattern=True))
        elif key.startswith(DISALLOW):
            matcher.rule("disallow", escaped(value, pattern=True))
    return matcher.decision()

"""A slow, literal reading of RFC 9309 2.2: what the compiled rules are held to.

It works on octets, keeps nothing between two questions, and shares no code with the library. The decisions that the
RFC leaves open stand beside the line that takes them.
"""

import re
from dataclasses import dataclass
from typing import Final

ALPHA: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGIT: Final = b"0123456789"
UNRESERVED: Final = ALPHA + DIGIT + b"-._~"  # RFC 3986 2.3
GEN_DELIMS: Final = b":/?#[]@"  # RFC 3986 2.2
SUB_DELIMS: Final = b"!$&'()*+,;="  # RFC 3986 2.2
HEX: Final = b"0123456789ABCDEFabcdef"

STAR: Final = -1
END: Final = -2
PERCENT: Final = -3

USER_AGENT: Final = {b"user-agent", b"useragent", b"user agent"}  # 2.2.4: what real files write
TOKEN: Final = ALPHA + DIGIT + b"_-."  # 2.2.1 has letters, "_" and "-"; real tokens hold digits and dots, too
MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe\0\0", b"\0\0\xfe\xff", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb", b"\xef")

BLANK: Final = b" \t"
ODD_BLANKS: Final = "\u00a0\udca0\ufeff"  # 2.2.4: U+00A0 (or its octet in Latin-1) and byte order marks in pasted files
CONTROL: Final = bytes(range(0x20)) + b"\x7f"


@dataclass(frozen=True)
class Decision:
    """Whether a target is allowed, and how many octets the most specific match has; None where nothing matches."""

    allowed: bool
    octets: int | None = None
    lines: frozenset[int] = frozenset()  # of all rules that may be called the most specific
    exempt: bool = False  # robots.txt itself


@dataclass(frozen=True)
class Record:
    """An Allow or Disallow line."""

    line: int
    allow: bool
    path: bytes


def percent_escape(octet: int) -> list[int]:
    return list(b"%" + f"{octet:02X}".encode("ascii"))


def component(octets: bytes, *, query: bool, pattern: bool) -> list[int]:
    """Bring a path or a query to the form that is compared."""
    out: list[int] = []
    place = 0
    while place < len(octets):
        octet = octets[place]
        digits = octets[place + 1 : place + 3]
        if octet == ord("%") and len(digits) == 2 and digits[0] in HEX and digits[1] in HEX:
            # RFC 9309 2.2.2: an escaped octet is unencoded unless it is reserved or outside of the unreserved range.
            value = int(digits, 16)
            # ... but figure 4, row 2, equates what a query may hold raw of the gen-delims with its escape.
            raw = value in UNRESERVED or (query and value in GEN_DELIMS and value != ord("#"))
            out += [value] if raw else percent_escape(value)
            place += 3
            continue
        place += 1
        if octet == ord("*") and pattern:
            out.append(STAR)
        elif octet == ord("%") and pattern and re.match(rb"[0-9A-Fa-f]?%[0-9A-Fa-f]{2}", octets[place:]) is None:
            # It is no escape: an octet like any other. (Where escapes behind it are hex digits, once unencoded, it is
            # written as one, below: they are digits of no escape.)
            out.append(PERCENT)
        elif octet in UNRESERVED + GEN_DELIMS + SUB_DELIMS and octet not in b"*$":
            out.append(octet)
        else:
            # Not ASCII, or not to be found raw in a URI, as is a percent sign without two digits; and figure 6: where
            # they mean themselves, the two special characters are %2A and %24.
            out += percent_escape(octet)
    return out


def normal_target(url: bytes, *, as_written: bool = False) -> list[int]:
    """Bring a request target to the form that is compared; as written, the escapes of its query stay as in a path."""
    path, question, query = url.split(b"#")[0].partition(b"?")
    octets = remove_dot_segments(component(path, query=False, pattern=False))
    return octets + list(question) + component(query, query=not as_written, pattern=False)


def remove_dot_segments(path: list[int]) -> list[int]:
    """RFC 3986 5.2.4, word by word."""
    source, output = "".join(map(chr, path)), ""
    while source:
        if source.startswith("../"):
            source = source[3:]
        elif source.startswith(("./", "/./")):
            source = source[2:]
        elif source == "/.":
            source = "/"
        elif source.startswith("/../"):
            source = source[3:]
            output = output[: max(output.rfind("/"), 0)]
        elif source == "/..":
            source = "/"
            output = output[: max(output.rfind("/"), 0)]
        elif source in {".", ".."}:
            source = ""
        else:
            slash = source.find("/", 1)
            cut = slash if slash >= 0 else len(source)
            output += source[:cut]
            source = source[cut:]
    return [ord(unit) for unit in output]


def requested_path(path: bytes) -> bytes:
    """Return a path as clients request it: they resolve dot segments, whose dots may be escaped."""
    clean = [re.sub(rb"%2[Ee]", b".", segment) for segment in path.split(b"/")]
    pairs = zip(clean, path.split(b"/"), strict=True)
    dotted = b"/".join(dots if dots in {b".", b".."} else segment for dots, segment in pairs)
    return bytes(remove_dot_segments(list(dotted)))


def normal_pattern(path: bytes) -> list[int]:
    """Bring the path of a rule to the form that is compared and counted."""
    anchored = path.endswith(b"$")  # special at the very end only
    if anchored:
        path = path[:-1]
    before, question, after = path.partition(b"?")
    units = component(before, query=False, pattern=True)
    units += list(question) + component(after, query=True, pattern=True)
    # "**" says what "*" says.
    units = [unit for place, unit in enumerate(units) if unit != STAR or units[place - 1 : place] != [STAR]]
    # A last "*", or "*$", adds nothing to what is matched; its octets are octets of the pattern all the same.
    return [*units, END] if anchored else units


def matches(pattern: list[int], target: list[int]) -> bool:
    """Whether the pattern is exhausted before a difference occurs: after each unit, the places that were reached.

    A "%" that is no escape meets its own escape in a target, or the first octet of any escape. In that one the hex
    digits have no case (RFC 3986 2.1), in the text behind "%25" letters do: so it is kept which of the two it was.
    """
    percent, escape = [ord("%")], list(percent_escape(ord("%")))
    reached = {(0, False)}  # RFC 9309 2.2.2: from the first octet of the path
    for unit in pattern:
        if unit == STAR:
            first = min(place for place, _ in reached)
            reached = {(place, False) for place in range(first, len(target) + 1)}
        elif unit == END:
            reached = {(place, False) for place, _ in reached if place == len(target)}
        elif unit == PERCENT:
            octets = {(place + 1, True) for place, _ in reached if target[place : place + 1] == percent}
            reached = octets | {(place + 3, False) for place, _ in reached if target[place : place + 3] == escape}
        else:
            reached = {
                (place + 1, False)
                for place, in_escape in reached
                if target[place : place + 1] == ([*chr(unit).upper().encode()] if in_escape else [unit])
            }
        if not reached:
            return False
    return True


def counts(record: Record) -> bool:
    """Whether a line is a rule at all."""
    if any(octet in CONTROL.replace(b"\t", b"") for octet in record.path):
        return False
    return record.path.startswith((b"/", b"*"))


def decide(records: list[Record], url: bytes) -> Decision:
    """RFC 9309 2.2.2: the most specific match decides; of equivalent ones the Allow; nothing matches: allowed."""
    target = normal_target(url)
    if bytes(target) == b"/robots.txt":
        return Decision(allowed=True, exempt=True)
    patterns = [(record, normal_pattern(record.path)) for record in records if counts(record)]
    # A pattern that comes to the query by a star, not knowing it, has kept its escapes, and so has one that ends within
    # an escape: the same octets match.
    written = normal_target(url, as_written=True)
    found = [
        (len(pattern), record)
        for record, pattern in patterns
        if matches(pattern, target) or ((STAR in pattern or PERCENT in pattern) and matches(pattern, written))
    ]
    if not found:
        return Decision(allowed=True)
    most = max(octets for octets, _ in found)
    allowed = any(record.allow for octets, record in found if octets == most)
    lines = frozenset(record.line for octets, record in found if octets == most and record.allow == allowed)
    return Decision(allowed=allowed, octets=most, lines=lines)


def split_lines(octets: bytes) -> list[bytes]:
    """RFC 9309 2.2, NL: CR, LF or CRLF, and nothing else."""
    lines, line, place = [], bytearray(), 0
    while place < len(octets):
        if octets[place : place + 2] == b"\r\n":
            place += 1
        if octets[place] in b"\r\n":
            lines.append(bytes(line))
            line = bytearray()
        else:
            line.append(octets[place])
        place += 1
    lines.append(bytes(line))
    return lines


def without_mark(octets: bytes) -> bytes:
    """Without a byte order mark, of whatever kind: what is asked about is ASCII, whatever the mark says."""
    return octets[len(next((mark for mark in MARKS if octets.startswith(mark)), b"")) :]


def without_odd_blanks(line: bytes) -> bytes:
    """A line up to its comment, with odd blanks in its name as spaces, and without those around its value."""
    text = line.partition(b"#")[0].decode("utf-8", "surrogateescape")
    name, colon, value = text.partition(":")
    name = "".join(" " if character in ODD_BLANKS else character for character in name)
    while value and value[0] in ODD_BLANKS + " \t":
        value = value[1:]
    while value and value[-1] in ODD_BLANKS + " \t":
        value = value[:-1]
    return (name + colon + value).encode("utf-8", "surrogateescape")


def name_on_line(value: bytes) -> bytes:
    """2.2.1: the product token, up to the first octet that none holds; "*" for everybody, be words behind it."""
    if value == b"*" or value.startswith((b"* ", b"*\t")):
        return b"*"
    end = next((place for place, octet in enumerate(value) if octet not in TOKEN), len(value))
    return value[:end].lower()


def fields(octets: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return number, field name in lower case and value of each line that has a colon."""
    found = []
    for number, line in enumerate(split_lines(without_mark(octets)), start=1):
        name, colon, value = without_odd_blanks(line).partition(b":")
        if colon:
            found.append((number, name.strip(BLANK).lower(), value.strip(BLANK)))
    return found


def groups(octets: bytes) -> list[tuple[list[bytes], list[Record]]]:
    """Return the names and the rules of each group."""
    found: list[tuple[list[bytes], list[Record]]] = []
    for number, field, value in fields(octets):
        if field in USER_AGENT:
            if not found or found[-1][1]:
                found.append(([], []))
            found[-1][0].append(name_on_line(value))
        elif field in {b"allow", b"disallow"} and found:
            found[-1][1].append(Record(number, field == b"allow", value))
    return found


def records_for(octets: bytes, token: bytes) -> list[Record]:
    """RFC 9309 2.2.1: the rules of all groups that name the token, else of all groups for everybody."""
    found = groups(octets)
    agent = token.lower() if any(token.lower() in agents for agents, _ in found) else b"*"
    return [record for agents, records in found if agent in agents for record in records]

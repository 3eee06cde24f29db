"""A slow, literal reading of the lines of a robots.txt, with which the lexer must agree.

It works on octets and shares no code with the library. ``canonical`` writes a file again in the strict form that the
literal readings of tests/rules/properties know. It spells out lines that are read leniently, and empties lines that the
library documents as void.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from politesse.robots import Dialect
from tests.rules.properties.reference import BLANK, CONTROL, name_on_line, split_lines, without_odd_blanks
from tests.rules.properties.reference import USER_AGENT as MISSPELLED_USER_AGENT
from tests.rules.properties.reference_google import USER_AGENT

LENIENT: Final = frozenset({Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019})
DIRECTIVES: Final = frozenset({b"sitemap", b"crawl-delay", b"request-rate", b"visit-time", b"comment"})
FIELDS: Final = DIRECTIVES | {b"user-agent", b"allow", b"disallow"}
MISSPELLED: Final = (b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")
STARTS: Final = (
    (USER_AGENT, b"user-agent"),
    ((b"allow",), b"allow"),
    ((b"disallow", *MISSPELLED), b"disallow"),
    ((b"sitemap", b"site-map"), b"sitemap"),
)
MARKS: Final = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
UTF_8_MARK: Final = b"\xef\xbb\xbf"

# A rule that matches nothing: a path without its slash, or the URL of another scheme if such paths are relative.
NOTHING: Final = {dialect: b"mailto:x" if dialect is Dialect.PERL else b"x" for dialect in Dialect}


@dataclass(frozen=True)
class Row:
    """A line with a field: its name and its value as written, and the field that the name means."""

    number: int
    name: bytes
    value: bytes
    control: bool
    field: bytes


def transcoded(body: bytes) -> bool:
    return _transcoded(body) is not None


def _transcoded(body: bytes) -> str | None:
    """Return the text after the mark of UTF-16 or UTF-32; None if there is no mark, or no ASCII character."""
    texts = (body.decode(encoding, "replace") for mark, encoding in MARKS if body.startswith(mark))
    return next((text for text in texts if any(0 < ord(character) < 0x80 for character in text)), None)


def utf_8(body: bytes) -> bytes:
    """Return the file in UTF-8, without a byte order mark or a part of such a mark."""
    if (text := _transcoded(body)) is not None:
        return text.encode()
    for mark, _ in MARKS:
        if body.startswith(mark):
            return body[len(mark) :]
    for length in (3, 2, 1):
        if body.startswith(UTF_8_MARK[:length]):
            return body[length:]
    return body


def field_of(name: bytes, dialect: Dialect) -> bytes:
    lower = name.lower()
    if lower in MISSPELLED and dialect in LENIENT:
        return b"disallow"
    if lower in MISSPELLED_USER_AGENT and dialect in LENIENT:
        return b"user-agent"
    if dialect is Dialect.GOOGLE and lower not in FIELDS:
        return next((field for starts, field in STARTS if lower.startswith(starts)), lower)
    return lower


def row(number: int, line: bytes, dialect: Dialect) -> Row | None:
    said = without_odd_blanks(line) if dialect in {Dialect.RFC9309, Dialect.KOSTER_2019} else line.partition(b"#")[0]
    control = any(octet in CONTROL and octet not in BLANK for octet in said)
    name, colon, value = said.partition(b":")
    if colon:
        return Row(number, name.strip(BLANK), value.strip(BLANK), control, field_of(name.strip(BLANK), dialect))
    words = [word for word in said.replace(b"\t", b" ").split(b" ") if word]
    if not words:
        return None
    if dialect in LENIENT and len(words) == 2 and field_of(words[0], dialect) in FIELDS:
        return Row(number, words[0], words[1], control, field_of(words[0], dialect))
    return Row(number, said.strip(BLANK), b"", control, b"")


def rows(body: bytes, dialect: Dialect) -> list[Row]:
    lines = enumerate(split_lines(utf_8(body)), start=1)
    return [found for number, line in lines if (found := row(number, line, dialect)) is not None]


def canonical(body: bytes, dialect: Dialect) -> bytes:
    """Write a file again, line by line, in its strict form."""
    out = []
    for number, line in enumerate(split_lines(utf_8(body)), start=1):
        found = row(number, line, dialect)
        if found is None:
            out.append(b"#" if b"#" in line else b"")  # a line with a comment only is not blank
        elif not found.field:
            out.append(b"noise")
        elif found.field in {b"allow", b"disallow"}:
            out.append(found.field + b": " + _path(found, dialect))
        elif found.field == b"user-agent":
            out.append(b"user-agent: " + agent_on_line(found, dialect))
        elif found.field == b"robot-version":
            # More than four digits are no version.
            out.append(b"robot-version: " + (b"x" if re.search(rb"[0-9]{5}", found.value) else found.value))
        else:
            out.append((found.field if found.field in DIRECTIVES else b"other") + b": x")
    return b"\n".join(out)


def agent_on_line(found: Row, dialect: Dialect) -> bytes:
    """Return the name on a user-agent line if it is read leniently; otherwise its value."""
    value = found.value
    if found.control:
        return b""  # no name
    if dialect in {Dialect.RFC9309, Dialect.KOSTER_2019}:
        return name_on_line(value)  # the product token
    return value


def _path(found: Row, dialect: Dialect) -> bytes:
    if found.control:
        return NOTHING[dialect]  # RFC 9309 3: it binds no crawler
    if dialect is Dialect.PERL:
        return _of_site(found.value)
    return found.value


def _of_site(value: bytes) -> bytes:
    """Spell out a rule that is a URL of http://example.com; rules with other URLs are void."""
    parts = re.fullmatch(rb"(?:(https?):)?//([^/?]*)(.*)", value, re.IGNORECASE | re.DOTALL)
    if parts is None:
        return value
    host, _, port = parts[2].rpartition(b"@")[2].lower().partition(b":")
    of_site = (
        unquote_to_bytes(host).lower() == b"example.com"
        and (port.lstrip(b"0") or b"80") == b"80"
        and b"\\" not in parts[2]
    )
    if not of_site or (parts[1] or b"http").lower() != b"http" or (port and not port.strip(b"0")):
        return NOTHING[Dialect.PERL]
    return b"http://example.com" + (parts[3] if parts[3].startswith(b"/") else b"/" + parts[3])

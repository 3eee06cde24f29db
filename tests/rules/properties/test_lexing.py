"""The lexer against an octet by octet reading of the grammar."""

from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.robots import Dialect, Quirk
from politesse.robots.line import Line
from tests.rules.properties.reference import BLANK, CONTROL, split_lines, without_odd_blanks
from tests.support.lexing import lex

FIELDS = {b"user-agent", b"allow", b"disallow", b"sitemap", b"crawl-delay", b"request-rate", b"visit-time", b"comment"}

PIECES = (
    *(b"\r", b"\n", b"\r\n", b"\n\r", b" ", b"\t", b":", b"#", b"/", b"*", b"$", b"a"),
    *(b"Disallow", b"allow ", b"User-Agent: x", b"Comment:", b"Crawl-delay ", b"foo: bar", b"Disallow: /a"),
    # What str.splitlines splits at, and what is no UTF-8 at all.
    *(b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e", b"\x1f", b"\x85", b"\0", b"\x7f", b"\xe9", b"\xff"),
    *("\x85".encode(), "\u2028".encode(), "\u2029".encode(), "\ufeff".encode(), "é".encode()),
    *("\u00a0".encode(), b"\xa0", "\u00e0".encode()),  # the last octet of the last one is A0, too
)
# A line end first: what could be a byte order mark is none then.
BODIES = st.one_of(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.binary(max_size=60)).map(
    lambda octets: b"\n" + octets
)


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _expected(body: bytes) -> list[tuple[int, bytes, bytes, bool]]:
    """Number, name, value, and whether there is a control character in it."""
    found = []
    for number, octets in enumerate(split_lines(body), start=1):
        row = without_odd_blanks(octets)
        control = any(octet in CONTROL.replace(b"\t", b"") for octet in row)
        name, colon, value = row.partition(b":")
        if colon:
            found.append((number, name.strip(BLANK), value.strip(BLANK), control))
            continue
        words = [word for word in row.replace(b"\t", b" ").split(b" ") if word]
        if len(words) == 2 and words[0].lower() in FIELDS:
            found.append((number, words[0], words[1], control))
        elif words:
            found.append((number, row.strip(BLANK), b"", control))
    return found


def _found(line: Line) -> tuple[int, bytes, bytes, bool]:
    return line.number, _octets(line.name), _octets(line.value), Quirk.CONTROL_CHARACTER in line.quirks


@settings(max_examples=3_000, deadline=None)
@given(BODIES)
def test_lines_are_those_of_an_octet_by_octet_splitter(body: bytes) -> None:
    lines, quirks = lex(body, Dialect.RFC9309.traits.syntax)
    assert [_found(line) for line in lines] == _expected(body)
    assert set(quirks) <= {Quirk.LOOKS_LIKE_HTML}


@settings(max_examples=1_000, deadline=None)
@given(st.text(max_size=60))
def test_text_reads_as_its_utf_8_octets_do(text: str) -> None:
    syntax = Dialect.RFC9309.traits.syntax
    as_text, as_octets = lex("\n" + text, syntax), lex(b"\n" + text.encode(), syntax)
    assert [_found(line) for line in as_text[0]] == [_found(line) for line in as_octets[0]]
    assert as_text[1] == as_octets[1]

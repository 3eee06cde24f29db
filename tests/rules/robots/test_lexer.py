from __future__ import annotations

import codecs
from typing import Final

import pytest

from politesse.robots import Dialect, Line, Quirk
from tests.support.lexing import lex


def read(body: bytes | str) -> tuple[list[Line], tuple[Quirk, ...]]:
    return lex(body, Dialect.RFC9309.traits.syntax)


def told(body: bytes | str) -> list[tuple[int, str, str]]:
    """Number, field and value of each line."""
    return [(line.number, line.field, line.value) for line in read(body)[0]]


def the_line(body: bytes | str) -> Line:
    (line,) = read(body)[0]
    return line


@pytest.mark.parametrize("blank", ["\u2003", "\u3000", "\x0b", "\x0c", "\x85"])
def test_no_other_character_is_a_blank(blank: str) -> None:
    assert the_line(f"disallow: /a{blank}").value == f"/a{blank}"
    assert the_line(f"disallow:{blank}/a").value == f"{blank}/a"
    assert the_line(f"{blank}disallow: /a").field == f"{blank}disallow"


ODD_BLANKS: Final = {
    "no-break space": b"\xc2\xa0",
    "no-break space, Latin-1": b"\xa0",
    "byte order mark": b"\xef\xbb\xbf",
}


@pytest.mark.parametrize("blank", ODD_BLANKS.values(), ids=ODD_BLANKS)
@pytest.mark.parametrize(
    "row",
    [
        *(b"_disallow: /a", b"disallow_: /a", b"disallow:_/a", b"disallow: _ /a", b"disallow: /a_", b"disallow: /a _ "),
        *(b"disallow: /a_# a comment_", b"_ _disallow_:_/a_ _", b"user-agent: *\n_disallow: /a", b"disallow_/a"),
    ],
)
def test_no_break_space_and_byte_order_mark_are_blanks_with_a_quirk(row: bytes, blank: bytes) -> None:
    line = read(b"\n" + row.replace(b"_", blank))[0][-1]
    assert (line.field, line.value) == ("disallow", "/a")
    assert Quirk.ODD_BLANK in line.quirks


@pytest.mark.parametrize("blank", ODD_BLANKS.values(), ids=ODD_BLANKS)
def test_odd_blank_inside_a_value_or_comment_is_no_quirk(blank: bytes) -> None:
    body = b"disallow: /a_b\nallow: /c #_d_".replace(b"_", blank)
    inside = (b"/a" + blank + b"b").decode("utf-8", "surrogateescape")
    assert [(line.value, line.quirks) for line in read(body)[0]] == [(inside, ()), ("/c", ())]


def test_row_of_odd_blanks_says_nothing() -> None:
    assert told("allow: /a\n\u00a0\n\ufeff\n\ufeff# b") == [(1, "allow", "/a")]


@pytest.mark.parametrize("blank", ODD_BLANKS.values(), ids=ODD_BLANKS)
def test_google_reads_odd_blanks_as_text(blank: bytes) -> None:
    body = b"\ndisallow: /a" + blank
    (line,) = lex(body, Dialect.GOOGLE.traits.syntax)[0]
    assert line.value.encode("utf-8", "surrogateescape") == b"/a" + blank


@pytest.mark.parametrize("marks", [1, 2, 3])
def test_file_with_several_marks_at_its_start_is_read(marks: int) -> None:
    assert told(codecs.BOM_UTF8 * marks + b"allow: /a\nallow: /b") == [(1, "allow", "/a"), (2, "allow", "/b")]


MISSPELLED: Final = (Quirk.MISSPELLED_FIELD,)
NO_COLON: Final = (Quirk.MISSING_COLON,)
# Each row, as it is read: name, field, value, quirks.
ROWS: Final[dict[str, tuple[str, str, str, tuple[Quirk, ...]]]] = {
    **{f"{name}: /A": (name, "disallow", "/A", ()) for name in ("Disallow", "DISALLOW", "disallow", "dIsAlLoW")},
    **{f"{name}: /a": (name, "disallow", "/a", MISSPELLED) for name in ("dissallow", "Dissalow", "DISALOW")},
    **{f"{name}: /a": (name, "disallow", "/a", MISSPELLED) for name in ("diasllow", "disallaw")},
    **{f"{name} : Foo": (name, "user-agent", "Foo", MISSPELLED) for name in ("useragent", "User agent", "USERAGENT")},
    **{
        f"{name}: Bar": (name, name.lower(), "Bar", ())  # unknown fields stay as they are: no other mistake is guessed
        for name in (
            *("foo", "Host", "Robot-version", "Disallow[Content-Type]", "user  agent", "user_agent", "site-map", ""),
            *("disallowed", "allowed", "disallows", "all", "disallow /a", "alow", "allaw", "user-agnet", "disalloww"),
            *("ddisallow", "disallow-", "crawldelay"),
        )
    },
    # Two words without a colon are field and value.
    **dict.fromkeys(("disallow /a", " disallow \t /a ", "disallow /a # b"), ("disallow", "disallow", "/a", NO_COLON)),
    **{
        f"{name} x": (name, name.lower(), "x", NO_COLON)
        for name in ("User-agent", "allow", "Sitemap", "crawl-delay", "Request-rate", "visit-time", "comment")
    },
    "dissallow /a": ("dissallow", "disallow", "/a", MISSPELLED + NO_COLON),
    **{
        f"  {row}\t": (row, "", "", (Quirk.NO_SEPARATOR,))
        for row in ("disallow / now", "disallow", "two words", "we disallow /a", "/a", "disallow/a", "<html>")
    },
    "dis\0allow: /a": ("dis\0allow", "dis\0allow", "/a", (Quirk.CONTROL_CHARACTER,)),
    "no colon\0": ("no colon\0", "", "", (Quirk.NO_SEPARATOR, Quirk.CONTROL_CHARACTER)),
    "allow: /b # \x01": ("allow", "allow", "/b", ()),
}


@pytest.mark.parametrize("row", ROWS)
def test_row_is_read_by_its_name_and_its_separator(row: str) -> None:
    line = the_line(row)
    assert (line.number, line.name, line.field, line.value, line.quirks) == (1, *ROWS[row])


@pytest.mark.parametrize("control", [*map(chr, range(9)), "\x0b", "\x0c", *map(chr, range(0x0E, 0x20)), "\x7f"])
def test_control_character_is_a_quirk_of_its_line_only(control: str) -> None:
    before, odd, after = read(f"allow: /a\ndisallow: /a{control}b\nallow: /c")[0]
    assert odd.quirks == (Quirk.CONTROL_CHARACTER,)
    assert odd.value == f"/a{control}b"
    assert before.quirks == after.quirks == ()


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1]])
def test_utf_8_mark_or_a_part_of_one_is_skipped(mark: bytes) -> None:
    lines, quirks = read(mark + b"allow: /a\nallow: /b")
    assert [(line.number, line.field) for line in lines] == [(1, "allow"), (2, "allow")]
    assert quirks == (Quirk.BYTE_ORDER_MARK,)


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_file_with_a_utf_16_or_utf_32_mark_is_transcoded(mark: bytes, encoding: str) -> None:
    body = "User-agent: *\r\nDisallow: /é\n"
    lines, quirks = read(mark + body.encode(encoding))
    assert [(line.number, line.field, line.value) for line in lines] == [(1, "user-agent", "*"), (2, "disallow", "/é")]
    assert quirks == (Quirk.TRANSCODED,)


def test_broken_utf_16_does_not_raise() -> None:
    first, second = ("allow: /a\n".encode("utf-16-le"), "allow: /b\n".encode("utf-16-le"))
    body = codecs.BOM_UTF16_LE + first + b"\x00\xd8\x0a\x00" + second + b"x"
    assert ("allow", "/a") in [(line.field, line.value) for line in read(body)[0]]


def test_utf_16_without_a_mark_is_junk_and_no_rule() -> None:
    lines, quirks = read("User-agent: *\nDisallow: /\n".encode("utf-16-le"))
    assert not {line.field for line in lines} & {"user-agent", "disallow"}
    assert quirks == ()


def test_octets_that_are_no_utf_8_are_kept() -> None:
    line = the_line(b"disallow: /caf\xe9/\xff\xc3")
    assert line.value.encode("utf-8", "surrogateescape") == b"/caf\xe9/\xff\xc3"
    assert "\ufffd" not in line.value
    assert line.quirks == ()


@pytest.mark.parametrize(
    "start",
    [
        *("<!DOCTYPE html>", "<!doctype  HTML>", "<html>", "\n\n  <HTML lang=en>", "<head>", '<?xml version="1.0"?>'),
        "\ufeff<html>",
    ],
)
def test_web_page_has_a_quirk_and_its_lines_are_read(start: str) -> None:
    lines, quirks = read(f"{start}\nUser-agent: *")
    assert quirks[-1] is Quirk.LOOKS_LIKE_HTML
    assert lines[-1].field == "user-agent"


@pytest.mark.parametrize(
    "start", ["User-agent: <html>", "# <html>", "<htmlx>", "<a>", "html", "", " " * 300 + "<html>"]
)
def test_other_files_are_not_taken_for_pages(start: str) -> None:
    assert read(start)[1] == ()


def test_repr_of_a_line_shows_number_text_and_quirks() -> None:
    assert repr(the_line("\ndissallow: /a")) == "<Line 2: 'dissallow': '/a' misspelled-field>"
    assert repr(the_line("allow: /a")) == "<Line 1: 'allow': '/a'>"

import codecs
from typing import Final

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


def test_no_other_character_is_a_blank() -> None:
    for blank in ("\u2003", "\u3000", "\x0b", "\x0c", "\x85"):
        assert the_line(f"disallow: /a{blank}").value == f"/a{blank}"
        assert the_line(f"disallow:{blank}/a").value == f"{blank}/a"
        assert the_line(f"{blank}disallow: /a").field == f"{blank}disallow"


# A no-break space, the same in Latin-1, and a byte order mark.
ODD_BLANKS: Final = (b"\xc2\xa0", b"\xa0", b"\xef\xbb\xbf")


def test_no_break_space_and_byte_order_mark_are_blanks_with_a_quirk() -> None:
    for row in (
        *(b"_disallow: /a", b"disallow_: /a", b"disallow:_/a", b"disallow: _ /a", b"disallow: /a_", b"disallow: /a _ "),
        *(b"disallow: /a_# a comment_", b"_ _disallow_:_/a_ _", b"user-agent: *\n_disallow: /a", b"disallow_/a"),
    ):
        for blank in ODD_BLANKS:
            line = read(b"\n" + row.replace(b"_", blank))[0][-1]
            assert (line.field, line.value) == ("disallow", "/a"), (row, blank)
            assert Quirk.ODD_BLANK in line.quirks, (row, blank)


def test_odd_blank_inside_a_value_or_comment_is_no_quirk() -> None:
    for blank in ODD_BLANKS:
        body = b"disallow: /a_b\nallow: /c #_d_".replace(b"_", blank)
        inside = (b"/a" + blank + b"b").decode("utf-8", "surrogateescape")
        assert [(line.value, line.quirks) for line in read(body)[0]] == [(inside, ()), ("/c", ())]


def test_row_of_odd_blanks_says_nothing() -> None:
    assert told("allow: /a\n\u00a0\n\ufeff\n\ufeff# b") == [(1, "allow", "/a")]


def test_google_reads_odd_blanks_as_text() -> None:
    for blank in ODD_BLANKS:
        (line,) = lex(b"\ndisallow: /a" + blank, Dialect.GOOGLE.traits.syntax)[0]
        assert line.value.encode("utf-8", "surrogateescape") == b"/a" + blank


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


def test_row_is_read_by_its_name_and_its_separator() -> None:
    found = {row: the_line(row) for row in ROWS}
    assert {row: (line.name, line.field, line.value, line.quirks) for row, line in found.items()} == ROWS
    assert {line.number for line in found.values()} == {1}


def test_control_character_is_a_quirk_of_its_line_only() -> None:
    for control in (*map(chr, range(9)), "\x0b", "\x0c", *map(chr, range(0x0E, 0x20)), "\x7f"):
        before, odd, after = read(f"allow: /a\ndisallow: /a{control}b\nallow: /c")[0]
        assert (odd.value, odd.quirks) == (f"/a{control}b", (Quirk.CONTROL_CHARACTER,))
        assert before.quirks == after.quirks == ()


def test_utf_8_marks_or_a_part_of_one_are_skipped() -> None:
    mark = codecs.BOM_UTF8
    for marks in (mark, mark * 2, mark * 3, mark[:2], mark[:1]):
        assert told(marks + b"allow: /a\nallow: /b") == [(1, "allow", "/a"), (2, "allow", "/b")], marks
        assert read(marks + b"allow: /a")[1] == (Quirk.BYTE_ORDER_MARK,), marks


def test_file_with_a_utf_16_or_utf_32_mark_is_transcoded() -> None:
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        body = "\ufeffUser-agent: *\r\nDisallow: /é\n".encode(encoding)
        assert told(body) == [(1, "user-agent", "*"), (2, "disallow", "/é")], encoding
        assert read(body)[1] == (Quirk.TRANSCODED,), encoding


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


def test_web_page_has_a_quirk_and_its_lines_are_read() -> None:
    for start in (
        *("<!DOCTYPE html>", "<!doctype  HTML>", "<html>", "\n\n  <HTML lang=en>", "<head>", '<?xml version="1.0"?>'),
        "\ufeff<html>",
    ):
        lines, quirks = read(f"{start}\nUser-agent: *")
        assert (quirks[-1], lines[-1].field) == (Quirk.LOOKS_LIKE_HTML, "user-agent"), start


def test_other_files_are_not_taken_for_pages() -> None:
    starts = ["User-agent: <html>", "# <html>", "<htmlx>", "<a>", "html", "", " " * 300 + "<html>"]
    assert [start for start in starts if read(start)[1]] == []


def test_repr_of_a_line_shows_number_text_and_quirks() -> None:
    assert repr(the_line("\ndissallow: /a")) == "<Line 2: 'dissallow': '/a' misspelled-field>"
    assert repr(the_line("allow: /a")) == "<Line 1: 'allow': '/a'>"

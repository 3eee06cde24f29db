from __future__ import annotations

import codecs

import pytest

from politesse.robots import Dialect, Line, Quirk
from politesse.robots.lexer import Lexed, lex


def read(body: bytes | str) -> Lexed:
    return lex(body, Dialect.RFC9309.traits.syntax)


def told(body: bytes | str) -> list[tuple[int, str, str]]:
    """Number, field and value of each line."""
    return [(line.number, line.field, line.value) for line in read(body).lines]


def the_line(body: bytes | str) -> Line:
    (line,) = read(body).lines
    return line


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_line_ends_at_lf_cr_and_crlf(end: str) -> None:
    assert told(f"allow: /a{end}disallow: /b{end}") == [(1, "allow", "/a"), (2, "disallow", "/b")]


def test_line_ends_may_be_mixed() -> None:
    body = "allow: /1\rallow: /2\nallow: /3\r\nallow: /4\n\rallow: /6\r\r\nallow: /8"
    assert told(body) == [(number, "allow", f"/{number}") for number in (1, 2, 3, 4, 6, 8)]


def test_crlf_is_one_line_end() -> None:
    assert told("allow: /a\r\n\r\nallow: /b") == [(1, "allow", "/a"), (3, "allow", "/b")]


def test_last_line_needs_no_end() -> None:
    assert told("allow: /a") == told("allow: /a\n") == [(1, "allow", "/a")]


@pytest.mark.parametrize(
    "character", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029", "\0", "\x08"]
)
def test_nothing_else_ends_a_line(character: str) -> None:
    assert told(f"disallow: /a{character}allow: /b") == [(1, "disallow", f"/a{character}allow: /b")]
    assert told(f"# a note{character}allow: /b") == []


def test_a_line_is_never_continued() -> None:
    assert told("disallow:\n /a\n\tb") == [(1, "disallow", ""), (2, "", ""), (3, "", "")]
    assert told("disallow: /a\\\n/b") == [(1, "disallow", "/a\\"), (2, "", "")]


def test_lines_that_say_nothing_are_counted_and_not_emitted() -> None:
    assert told("\n  \t\n# a note\n \t# another: one\nallow: /a") == [(5, "allow", "/a")]
    assert told("") == told(b"") == told("\n\n") == told("#") == []


@pytest.mark.parametrize("name", ["Disallow", "DISALLOW", "disallow", "dIsAlLoW"])
def test_field_is_lower_case_and_name_is_as_written(name: str) -> None:
    line = the_line(f"{name}: /A")
    assert (line.field, line.name, line.value, line.quirks) == ("disallow", name, "/A", ())


@pytest.mark.parametrize(
    "row",
    ["disallow:/a", "disallow: /a", "disallow :/a", "\t disallow \t:\t /a \t", " disallow:/a ", "disallow: /a# note"],
)
def test_blanks_around_field_and_value_are_dropped(row: str) -> None:
    line = the_line(row)
    assert (line.name, line.field, line.value) == ("disallow", "disallow", "/a")


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\x0b", "\x0c", "\x85"])
def test_nothing_but_space_and_tab_is_a_blank(blank: str) -> None:
    assert the_line(f"disallow: /a{blank}").value == f"/a{blank}"
    assert the_line(f"disallow:{blank}/a").value == f"{blank}/a"
    assert the_line(f"{blank}disallow: /a").field == f"{blank}disallow"


def test_blanks_inside_a_value_belong_to_it() -> None:
    assert the_line("disallow: /a b\tc  d  ").value == "/a b\tc  d"


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("disallow: /foo/quz#qux", "/foo/quz"),
        ("disallow: /foo #bar", "/foo"),
        ("disallow: /foo\t#", "/foo"),
        ("disallow: # nothing", ""),
        ("disallow:#", ""),
        ("disallow: /a#b#c:d", "/a"),
        ("disallow: /a%23b", "/a%23b"),
    ],
)
def test_number_sign_starts_a_comment_anywhere(row: str, value: str) -> None:
    line = the_line(row)
    assert (line.field, line.value) == ("disallow", value)


def test_comment_may_hide_the_colon() -> None:
    line = the_line("disallow # : /a")
    assert (line.field, line.value, line.quirks) == ("", "", (Quirk.NO_SEPARATOR,))


def test_only_the_first_colon_separates() -> None:
    assert told("Sitemap: https://h:80/s.xml") == [(1, "sitemap", "https://h:80/s.xml")]
    assert told(":disallow: /a") == [(1, "", "disallow: /a")]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "foo",
            "Host",
            "Expiration",
            "Robot-version",
            "Disallow[Content-Type]",
            "user  agent",
            "user_agent",
            "site-map",
        ),
        *("disallowed", "allowed", "disallows", "all", "disallow /a", ""),
    ],
)
def test_unknown_field_is_kept_as_it_is(name: str) -> None:
    line = the_line(f"{name}: Bar")
    assert (line.name, line.field, line.value, line.quirks) == (name, name.lower(), "Bar", ())


@pytest.mark.parametrize("name", ["dissallow", "Dissalow", "DISALOW", "diasllow", "disallaw"])
def test_misspelled_disallow_is_read_as_disallow(name: str) -> None:
    line = the_line(f"{name}: /a")
    assert (line.name, line.field, line.value) == (name, "disallow", "/a")
    assert line.quirks == (Quirk.MISSPELLED_FIELD,)


@pytest.mark.parametrize("name", ["useragent", "User agent", "USERAGENT"])
def test_misspelled_user_agent_is_read_as_user_agent(name: str) -> None:
    line = the_line(f"{name} : Foo")
    assert (line.name, line.field, line.value) == (name, "user-agent", "Foo")
    assert line.quirks == (Quirk.MISSPELLED_FIELD,)


@pytest.mark.parametrize("name", ["alow", "allaw", "user-agnet", "disalloww", "ddisallow", "disallow-", "crawldelay"])
def test_no_other_misspelling_is_guessed(name: str) -> None:
    line = the_line(f"{name}: /a")
    assert (line.field, line.quirks) == (name, ())


@pytest.mark.parametrize(
    "row", ["disallow /a", "Disallow\t/a", " disallow \t /a ", "disallow /a # note", "disallow  /a"]
)
def test_two_words_without_a_colon_are_field_and_value(row: str) -> None:
    line = the_line(row)
    assert (line.field, line.value, line.quirks) == ("disallow", "/a", (Quirk.MISSING_COLON,))


@pytest.mark.parametrize(
    "name", ["User-agent", "allow", "Sitemap", "crawl-delay", "Request-rate", "visit-time", "comment"]
)
def test_colon_may_be_missing_from_every_field(name: str) -> None:
    line = the_line(f"{name} x")
    assert (line.name, line.field, line.value, line.quirks) == (name, name.lower(), "x", (Quirk.MISSING_COLON,))


def test_misspelled_field_without_a_colon_has_both_quirks() -> None:
    line = the_line("dissallow /a")
    assert (line.name, line.field, line.value) == ("dissallow", "disallow", "/a")
    assert line.quirks == (Quirk.MISSPELLED_FIELD, Quirk.MISSING_COLON)


@pytest.mark.parametrize(
    "row", ["disallow / now", "disallow", "two words", "we disallow /a", "/a", "disallow/a", "<html>"]
)
def test_any_other_line_without_a_colon_is_ignored(row: str) -> None:
    line = the_line(f"  {row}\t")
    assert (line.number, line.name, line.field, line.value, line.quirks) == (1, row, "", "", (Quirk.NO_SEPARATOR,))


@pytest.mark.parametrize("control", [*map(chr, range(9)), "\x0b", "\x0c", *map(chr, range(0x0E, 0x20)), "\x7f"])
def test_control_character_is_a_quirk_of_its_line_only(control: str) -> None:
    before, odd, after = read(f"allow: /a\ndisallow: /a{control}b\nallow: /c").lines
    assert odd.quirks == (Quirk.CONTROL_CHARACTER,)
    assert odd.value == f"/a{control}b"
    assert before.quirks == after.quirks == ()


def test_control_character_in_the_name_is_a_quirk_too() -> None:
    assert the_line("dis\0allow: /a").quirks == (Quirk.CONTROL_CHARACTER,)
    assert the_line("no colon\0").quirks == (Quirk.NO_SEPARATOR, Quirk.CONTROL_CHARACTER)


def test_control_character_in_a_comment_is_ignored() -> None:
    plain, with_comment = read("allow: /a\x01\nallow: /b # \x01").lines
    assert plain.quirks == (Quirk.CONTROL_CHARACTER,)
    assert with_comment.quirks == ()


@pytest.mark.parametrize("character", ["\t", "\x80", "\x85", "\x9f", "\u2028", "é"])
def test_tabs_and_characters_beyond_ascii_are_no_control_characters(character: str) -> None:
    assert the_line(f"allow: /a{character}b").quirks == ()


def test_nul_does_not_cut_the_file() -> None:
    assert told(b"allow: /a\0\0\nallow: /b") == [(1, "allow", "/a\0\0"), (2, "allow", "/b")]


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1]])
def test_utf_8_mark_or_a_part_of_one_is_skipped(mark: bytes) -> None:
    lines, quirks, _ = read(mark + b"allow: /a\nallow: /b")
    assert [(line.number, line.field) for line in lines] == [(1, "allow"), (2, "allow")]
    assert quirks == (Quirk.BYTE_ORDER_MARK,)


def test_utf_8_mark_is_skipped_once_and_at_the_start_only() -> None:
    mark = codecs.BOM_UTF8
    assert told(mark + mark + b"allow: /a") == [(1, "\ufeffallow", "/a")]
    assert told(b"allow: /a\n" + mark + b"allow: /b") == [(1, "allow", "/a"), (2, "\ufeffallow", "/b")]
    assert read(b"\n" + mark + b"allow: /a").quirks == ()


def test_text_with_a_mark_is_like_octets_with_one() -> None:
    lines, quirks, _ = read("\ufeffallow: /a")
    assert [line.field for line in lines] == ["allow"]
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
    lines, quirks, _ = read(mark + body.encode(encoding))
    assert [(line.number, line.field, line.value) for line in lines] == [(1, "user-agent", "*"), (2, "disallow", "/é")]
    assert quirks == (Quirk.TRANSCODED,)


def test_broken_utf_16_does_not_raise() -> None:
    body = (
        codecs.BOM_UTF16_LE
        + "allow: /a\n".encode("utf-16-le")
        + b"\x00\xd8\x0a\x00"
        + "allow: /b\n".encode("utf-16-le")
        + b"x"
    )
    assert ("allow", "/a") in [(line.field, line.value) for line in read(body).lines]


def test_utf_16_without_a_mark_is_junk_and_no_rule() -> None:
    lines, quirks, _ = read("User-agent: *\nDisallow: /\n".encode("utf-16-le"))
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
        "<!DOCTYPE html>",
        "<!doctype  HTML>",
        "<html>",
        "\n\n  <HTML lang=en>",
        "<head>",
        '<?xml version="1.0"?>',
        "\ufeff<html>",
    ],
)
def test_web_page_has_a_quirk_and_its_lines_are_read(start: str) -> None:
    lines, quirks, _ = read(f"{start}\nUser-agent: *")
    assert quirks[-1] is Quirk.LOOKS_LIKE_HTML
    assert lines[-1].field == "user-agent"


@pytest.mark.parametrize(
    "start", ["User-agent: <html>", "# <html>", "<htmlx>", "<a>", "html", "", " " * 300 + "<html>"]
)
def test_other_files_are_not_taken_for_pages(start: str) -> None:
    assert read(start).quirks == ()


def test_repr_of_a_line_shows_number_text_and_quirks() -> None:
    assert repr(the_line("\ndissallow: /a")) == "<Line 2: 'dissallow': '/a' misspelled-field>"
    assert repr(the_line("allow: /a")) == "<Line 1: 'allow': '/a'>"

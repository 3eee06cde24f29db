import pytest

from politesse.usage.model import Mechanism, Place, Preference, Purpose, Statement, Use
from politesse.usage.vocabulary import (
    MAX_OCTETS,
    is_absolute_url,
    parse_content_signal,
    parse_content_usage,
    parse_tdm_reservation,
    statements,
)

ALLOWED, DISALLOWED, UNSTATED = Preference.ALLOWED, Preference.DISALLOWED, Preference.UNSTATED
TRAIN, INPUT, SEARCH = Purpose.AI_TRAIN, Purpose.AI_INPUT, Purpose.SEARCH


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("train-ai=n", {TRAIN: DISALLOWED}),
        ("train-ai=y,search=n", {TRAIN: ALLOWED, SEARCH: DISALLOWED}),
        ("train-ai=y;a=b, search=n;c", {TRAIN: ALLOWED, SEARCH: DISALLOWED}),
        ("train-ai=(n)", {TRAIN: UNSTATED}),
        ("train-ai=:bg==:", {TRAIN: UNSTATED}),
        ("train-ai=1", {TRAIN: UNSTATED}),
        ("train-ai", {TRAIN: UNSTATED}),
        ("other=n, bots=y", {}),
        ("", {}),
        ("train-ai=n,", {}),  # RFC 9651 4.2.2: a trailing comma fails the parse, and with it all of it
        ("train-ai=n; search=y", {TRAIN: DISALLOWED}),  # a semicolon starts a parameter
        ("train-ai=n search=y", {}),
        ("train-ai=n\x00", {}),
        ("train-ai=né", {}),
        ("train-ai=n\udc80", {}),
        ("train-ai=@999999999999999", {}),
        ("train-ai=\uff4e", {}),
    ],
)
def test_content_usage(value: str, expected: dict[Purpose, Preference]) -> None:
    assert parse_content_usage(value) == expected


def test_content_usage_of_more_than_64_kib_is_not_read() -> None:
    start = "train-ai=n, search="
    assert parse_content_usage(start + "y" * (MAX_OCTETS - len(start)))[TRAIN] is DISALLOWED
    assert parse_content_usage(start + "y" * (MAX_OCTETS - len(start) + 1)) == {}


@pytest.mark.parametrize(
    ("value", "expected", "use"),
    [
        ("search=yes, ai-input=no, ai-train=no", {SEARCH: ALLOWED, INPUT: DISALLOWED, TRAIN: DISALLOWED}, None),
        ("search=yes,ai-train=no,use=reference", {SEARCH: ALLOWED, TRAIN: DISALLOWED}, Use.REFERENCE),
        ("\tSEARCH = Yes ,AI-Train\t=NO", {SEARCH: ALLOWED, TRAIN: DISALLOWED}, None),
        ("use=immediate", {}, Use.IMMEDIATE),
        ("use=never,use=full,use=immediate", {}, Use.FULL),
        ("search=maybe, ai-input", {SEARCH: UNSTATED, INPUT: UNSTATED}, None),
        ("search=yes,search=no,search=yes", {SEARCH: DISALLOWED}, None),
        ("search=maybe,search=yes", {SEARCH: ALLOWED}, None),
        ("tdm=no,other=no,,=", {}, None),
        ("search=yes;ai-train=no", {SEARCH: ALLOWED, TRAIN: DISALLOWED}, None),
        ("search=yes; ai-train=no ;use=full;", {SEARCH: ALLOWED, TRAIN: DISALLOWED}, Use.FULL),
        ("search=yes ai-train=no\tai-input=yes", {SEARCH: ALLOWED, TRAIN: DISALLOWED, INPUT: ALLOWED}, None),
        ("search = yes ai-train =no", {SEARCH: ALLOWED, TRAIN: DISALLOWED}, None),
        ("search= ai-train=no", {SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
        ("search=, ai-train=no", {SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
        ("search ai-train=no", {SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
        ("search==yes; = ai-train=no", {SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
        ("", {}, None),
    ],
)
def test_content_signal(value: str, expected: dict[Purpose, Preference], use: Use | None) -> None:
    assert parse_content_signal(value) == (expected, use)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", DISALLOWED), (" 0\t", ALLOWED), ("", UNSTATED), ("2", UNSTATED), ("01", UNSTATED), ("true", UNSTATED)],
)
def test_tdm_reservation(value: str, expected: Preference) -> None:
    assert parse_tdm_reservation(value) is expected


def test_statement_without_a_purpose_is_reported() -> None:
    template = Statement(None, UNSTATED, Mechanism.CONTENT_USAGE, Place.HEADER, "Content-Usage: ?")
    assert statements({}, template) == (template,)
    (one, two) = statements({TRAIN: ALLOWED, SEARCH: UNSTATED}, template)
    assert (one.purpose, one.preference, one.text) == (TRAIN, ALLOWED, template.text)
    assert (two.purpose, two.preference, two.text) == (SEARCH, UNSTATED, template.text)


@pytest.mark.parametrize("text", ["https://rsl.example/l.xml", "http://h", "ftp://h/x"])
def test_license_is_an_absolute_url(text: str) -> None:
    assert is_absolute_url(text) is not None


@pytest.mark.parametrize("text", ["", "/l.xml", "l.xml", "//h/l.xml", "https:///l", "https:// h", "mailto:a@b", "://h"])
def test_other_reference_is_no_license(text: str) -> None:
    assert is_absolute_url(text) is None

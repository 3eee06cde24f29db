"""What is said about the use of a page: the words of each vocabulary, and how statements are joined."""

from dataclasses import replace
from typing import Final

import pytest

from politesse.errors import ConfigurationError
from politesse.usage.model import (
    NOTHING_STATED,
    License,
    Mechanism,
    Place,
    Preference,
    Purpose,
    Statement,
    Usage,
    Use,
    combine,
)
from politesse.usage.vocabulary import (
    MAX_OCTETS,
    is_absolute_url,
    parse_content_signal,
    parse_content_usage,
    parse_tdm_reservation,
    statements,
)

ALLOWED, DISALLOWED, UNSTATED = Preference.ALLOWED, Preference.DISALLOWED, Preference.UNSTATED
SAID = "Content-Usage: train-ai=n"
REFUSED = Statement(Purpose.AI_TRAIN, DISALLOWED, Mechanism.CONTENT_USAGE, Place.ROBOTS_TXT, SAID, 3)
TRAIN, INPUT, SEARCH = Purpose.AI_TRAIN, Purpose.AI_INPUT, Purpose.SEARCH
CONTENT_USAGE: Final[dict[str, dict[Purpose, Preference]]] = {
    "train-ai=n": {TRAIN: DISALLOWED},
    "train-ai=y,search=n": {TRAIN: ALLOWED, SEARCH: DISALLOWED},
    "train-ai=y;a=b, search=n;c": {TRAIN: ALLOWED, SEARCH: DISALLOWED},
    "train-ai=(n)": {TRAIN: UNSTATED},
    "train-ai=:bg==:": {TRAIN: UNSTATED},
    "train-ai=1": {TRAIN: UNSTATED},
    "train-ai": {TRAIN: UNSTATED},
    "other=n, bots=y": {},
    "": {},
    "train-ai=n,": {},  # RFC 9651 4.2.2: a trailing comma fails the parse, and with it all of it
    "train-ai=n; search=y": {TRAIN: DISALLOWED},  # a semicolon starts a parameter
    "train-ai=n search=y": {},
    "train-ai=n\x00": {},
    "train-ai=né": {},
    "train-ai=n\udc80": {},
    "train-ai=@999999999999999": {},
    "train-ai=\uff4e": {},
}
CONTENT_SIGNAL: Final[dict[str, tuple[dict[Purpose, Preference], Use | None]]] = {
    "search=yes, ai-input=no, ai-train=no": ({SEARCH: ALLOWED, INPUT: DISALLOWED, TRAIN: DISALLOWED}, None),
    "search=yes,ai-train=no,use=reference": ({SEARCH: ALLOWED, TRAIN: DISALLOWED}, Use.REFERENCE),
    "\tSEARCH = Yes ,AI-Train\t=NO": ({SEARCH: ALLOWED, TRAIN: DISALLOWED}, None),
    "use=immediate": ({}, Use.IMMEDIATE),
    "use=never,use=full,use=immediate": ({}, Use.FULL),
    "search=maybe, ai-input": ({SEARCH: UNSTATED, INPUT: UNSTATED}, None),
    "search=yes,search=no,search=yes": ({SEARCH: DISALLOWED}, None),
    "search=maybe,search=yes": ({SEARCH: ALLOWED}, None),
    "tdm=no,other=no,,=": ({}, None),
    "search=yes;ai-train=no": ({SEARCH: ALLOWED, TRAIN: DISALLOWED}, None),
    "search=yes; ai-train=no ;use=full;": ({SEARCH: ALLOWED, TRAIN: DISALLOWED}, Use.FULL),
    "search=yes ai-train=no\tai-input=yes": ({SEARCH: ALLOWED, TRAIN: DISALLOWED, INPUT: ALLOWED}, None),
    "search = yes ai-train =no": ({SEARCH: ALLOWED, TRAIN: DISALLOWED}, None),
    "search= ai-train=no": ({SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
    "search=, ai-train=no": ({SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
    "search ai-train=no": ({SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
    "search==yes; = ai-train=no": ({SEARCH: UNSTATED, TRAIN: DISALLOWED}, None),
    "": ({}, None),
}

LICENSE: Final = License("https://rsl.example/l.xml", Place.ROBOTS_TXT, "License: https://rsl.example/l.xml", 1)


def reserved(place: Place, preference: Preference) -> Usage:
    statement = Statement(Purpose.TDM, preference, Mechanism.TDMREP, place, f"{place}: {preference}")
    return Usage((statement,), (statement,))


def test_purpose_without_a_statement_is_unstated() -> None:
    assert [NOTHING_STATED.preference(purpose) for purpose in Purpose] == [UNSTATED] * 4
    assert NOTHING_STATED.deciding(Purpose.SEARCH) == ()
    assert NOTHING_STATED.explain() == str(NOTHING_STATED) == "nothing is stated"


def test_usage_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="preference"):
        bool(NOTHING_STATED)


def test_one_refusal_outweighs_every_permission() -> None:
    signal = replace(REFUSED, preference=ALLOWED, mechanism=Mechanism.CONTENT_SIGNAL)
    header = replace(REFUSED, preference=ALLOWED, place=Place.HEADER, number=0)
    usage = combine(Usage((one,), (one,)) for one in (signal, REFUSED, header))
    assert usage.preference(Purpose.AI_TRAIN) is DISALLOWED
    assert usage.deciding(Purpose.AI_TRAIN) == (REFUSED,)
    assert usage.bearing(Purpose.AI_TRAIN) == (signal, REFUSED, header)


def test_unstated_and_image_only_statements_decide_nothing() -> None:
    images = replace(REFUSED, media="images")
    unknown = replace(REFUSED, preference=UNSTATED)
    usage = Usage((images, unknown), (images, unknown))
    assert usage.preference(Purpose.AI_TRAIN) is UNSTATED
    assert usage.bearing(Purpose.AI_TRAIN) == (images, unknown)


def test_statement_overruled_by_its_own_mechanism_decides_nothing() -> None:
    allowed = replace(REFUSED, preference=ALLOWED, number=4)
    usage = Usage((REFUSED, allowed), (allowed,))
    assert usage.preference(Purpose.AI_TRAIN) is ALLOWED
    assert usage.deciding(Purpose.AI_TRAIN) == (allowed,)


def test_tdmrep_of_a_nearer_place_overrules() -> None:
    # TDMRep, "Processing Priority": file, header, META. Absence never resets, and what cannot be read is absent.
    expected = {
        (DISALLOWED, ALLOWED, None): ALLOWED,
        (ALLOWED, DISALLOWED, None): DISALLOWED,
        (DISALLOWED, ALLOWED, DISALLOWED): DISALLOWED,
        (ALLOWED, DISALLOWED, ALLOWED): ALLOWED,
        (DISALLOWED, None, ALLOWED): ALLOWED,
        (DISALLOWED, UNSTATED, None): DISALLOWED,
        (DISALLOWED, ALLOWED, UNSTATED): ALLOWED,
        (DISALLOWED, None, None): DISALLOWED,
    }
    for said, preference in expected.items():
        places = zip((Place.TDMREP_JSON, Place.HEADER, Place.META), said, strict=True)
        usages = [reserved(place, one) for place, one in places if one is not None]
        for order in (usages, usages[::-1]):
            usage = combine(order)
            assert usage.preference(Purpose.TDM) is preference, said
            assert len(usage.bearing(Purpose.TDM)) == len(usages), said


def test_explanation_names_deciding_and_other_statements_and_licenses() -> None:
    allowed = replace(REFUSED, preference=ALLOWED, number=4, text="Content-Signal: ai-train=yes", use=Use.REFERENCE)
    odd = Statement(None, UNSTATED, Mechanism.CONTENT_USAGE, Place.HEADER, "Content-Usage: \x1b[2J")
    policy = "https://example.com/p"
    tdm = Statement(Purpose.TDM, DISALLOWED, Mechanism.TDMREP, Place.TDMREP_JSON, "{}", 2, policy=policy)
    usage = Usage((allowed, REFUSED, odd, tdm), (allowed, REFUSED, tdm), (LICENSE,))
    assert usage.explain().splitlines() == [
        *("ai-train: disallowed", "  by robots.txt line 3: Content-Usage: train-ai=n"),
        *("  without effect: robots.txt line 4: Content-Signal: ai-train=yes (use: reference)", "tdm: disallowed"),
        "  by tdmrep.json entry 2: {} (policy: https://example.com/p)",
        r"not understood: header: Content-Usage: \x1b[2J",
        "license: https://rsl.example/l.xml (robots.txt line 1: License: https://rsl.example/l.xml)",
    ]
    assert str(usage) == "ai-train=disallowed, tdm=disallowed, license=https://rsl.example/l.xml"
    assert repr(usage) == f"<Usage {usage}: 4 statements>"


def test_explanation_truncates_long_statements() -> None:
    long = replace(REFUSED, text="x" * 10_000)
    assert len(Usage((long,), (long,)).explain()) < 300


def test_explanation_takes_linear_time_in_the_statements() -> None:
    compared = 0

    class Counted(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    said = tuple(replace(REFUSED, number=number, text=Counted("x")) for number in range(2_000))
    assert Usage(said, said).explain().count("\n") == 2_000
    assert compared < 20_000


def test_licenses_are_joined_once_each() -> None:
    other = replace(LICENSE, url="https://rsl.example/2.xml")
    usage = combine([Usage(licenses=(LICENSE,)), Usage(licenses=(other, LICENSE))])
    assert usage.licenses == (LICENSE, other)


def test_a_purpose_may_be_given_by_its_value_and_an_unknown_one_is_refused_by_name() -> None:
    said = Statement(Purpose.AI_TRAIN, Preference.DISALLOWED, Mechanism.NOAI, Place.META, "robots: noai")
    usage = Usage((said,), (said,))
    assert usage.preference("ai-train") is usage.preference(Purpose.AI_TRAIN) is Preference.DISALLOWED
    assert usage.deciding("ai-train") == usage.bearing("ai-train") == usage.statements
    for ask in (usage.preference, usage.deciding, usage.bearing):
        with pytest.raises(ConfigurationError, match="purpose='training': give one of search, ai-train"):
            ask("training")


def test_content_usage_and_content_signal_are_read_by_their_grammars() -> None:
    assert {value: parse_content_usage(value) for value in CONTENT_USAGE} == CONTENT_USAGE
    assert {value: parse_content_signal(value) for value in CONTENT_SIGNAL} == CONTENT_SIGNAL


def test_content_usage_of_more_than_64_kib_is_not_read() -> None:
    start = "train-ai=n, search="
    assert parse_content_usage(start + "y" * (MAX_OCTETS - len(start)))[TRAIN] is DISALLOWED
    assert parse_content_usage(start + "y" * (MAX_OCTETS - len(start) + 1)) == {}


def test_tdm_reservation_is_0_or_1() -> None:
    expected = {"1": DISALLOWED, " 0\t": ALLOWED, **dict.fromkeys(["", "2", "01", "true"], UNSTATED)}
    assert {value: parse_tdm_reservation(value) for value in expected} == expected


def test_statement_without_a_purpose_is_reported() -> None:
    template = Statement(None, UNSTATED, Mechanism.CONTENT_USAGE, Place.HEADER, "Content-Usage: ?")
    assert statements({}, template) == (template,)
    one, two = statements({TRAIN: ALLOWED, SEARCH: UNSTATED}, template)
    assert (one.purpose, one.preference, one.text) == (TRAIN, ALLOWED, template.text)
    assert (two.purpose, two.preference, two.text) == (SEARCH, UNSTATED, template.text)


def test_license_is_an_absolute_url() -> None:
    assert all(is_absolute_url(text) is not None for text in ("https://rsl.example/l.xml", "http://h", "ftp://h/x"))
    others = ["", "/l.xml", "l.xml", "//h/l.xml", "https:///l", "https:// h", "mailto:a@b", "://h"]
    assert [text for text in others if is_absolute_url(text) is not None] == []

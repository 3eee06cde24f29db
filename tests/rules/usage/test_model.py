from dataclasses import replace

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

ALLOWED, DISALLOWED, UNSTATED = Preference.ALLOWED, Preference.DISALLOWED, Preference.UNSTATED
TRAIN = Statement(
    Purpose.AI_TRAIN, DISALLOWED, Mechanism.CONTENT_USAGE, Place.ROBOTS_TXT, "Content-Usage: train-ai=n", 3
)
LICENSE = License("https://rsl.example/l.xml", Place.ROBOTS_TXT, "License: https://rsl.example/l.xml", 1)


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
    signal = replace(TRAIN, preference=ALLOWED, mechanism=Mechanism.CONTENT_SIGNAL)
    header = replace(TRAIN, preference=ALLOWED, place=Place.HEADER, number=0)
    usage = combine(Usage((one,), (one,)) for one in (signal, TRAIN, header))
    assert usage.preference(Purpose.AI_TRAIN) is DISALLOWED
    assert usage.deciding(Purpose.AI_TRAIN) == (TRAIN,)
    assert usage.bearing(Purpose.AI_TRAIN) == (signal, TRAIN, header)


def test_unstated_and_image_only_statements_decide_nothing() -> None:
    images = replace(TRAIN, media="images")
    unknown = replace(TRAIN, preference=UNSTATED)
    usage = Usage((images, unknown), (images, unknown))
    assert usage.preference(Purpose.AI_TRAIN) is UNSTATED
    assert usage.bearing(Purpose.AI_TRAIN) == (images, unknown)


def test_statement_overruled_by_its_own_mechanism_decides_nothing() -> None:
    allowed = replace(TRAIN, preference=ALLOWED, number=4)
    usage = Usage((TRAIN, allowed), (allowed,))
    assert usage.preference(Purpose.AI_TRAIN) is ALLOWED
    assert usage.deciding(Purpose.AI_TRAIN) == (allowed,)


@pytest.mark.parametrize(
    ("file", "header", "meta", "expected"),
    [
        (DISALLOWED, ALLOWED, None, ALLOWED),
        (ALLOWED, DISALLOWED, None, DISALLOWED),
        (DISALLOWED, ALLOWED, DISALLOWED, DISALLOWED),
        (ALLOWED, DISALLOWED, ALLOWED, ALLOWED),
        (DISALLOWED, None, ALLOWED, ALLOWED),
        (DISALLOWED, UNSTATED, None, DISALLOWED),  # absence never resets, and what cannot be read is absent
        (DISALLOWED, ALLOWED, UNSTATED, ALLOWED),
        (DISALLOWED, None, None, DISALLOWED),
    ],
)
def test_tdmrep_of_a_nearer_place_overrules(
    file: Preference, header: Preference | None, meta: Preference | None, expected: Preference
) -> None:
    # TDMRep, "Processing Priority": file, header, META.
    said = [(Place.TDMREP_JSON, file), (Place.HEADER, header), (Place.META, meta)]
    usages = [reserved(place, preference) for place, preference in said if preference is not None]
    for order in (usages, usages[::-1]):
        usage = combine(order)
        assert usage.preference(Purpose.TDM) is expected
        assert len(usage.bearing(Purpose.TDM)) == len(usages)


def test_two_reservations_of_one_place_are_joined_by_the_most_restrictive() -> None:
    usage = combine([reserved(Place.META, ALLOWED), reserved(Place.META, DISALLOWED)])
    assert usage.preference(Purpose.TDM) is DISALLOWED


def test_a_nearer_place_overrules_no_other_mechanism() -> None:
    meta = Statement(Purpose.TDM, ALLOWED, Mechanism.TDMREP, Place.META, "tdm-reservation: 0")
    usage = combine([Usage((meta,), (meta,)), Usage((TRAIN,), (TRAIN,))])
    assert usage.preference(Purpose.AI_TRAIN) is DISALLOWED


def test_explanation_names_deciding_and_other_statements_and_licenses() -> None:
    allowed = replace(TRAIN, preference=ALLOWED, number=4, text="Content-Signal: ai-train=yes", use=Use.REFERENCE)
    odd = Statement(None, UNSTATED, Mechanism.CONTENT_USAGE, Place.HEADER, "Content-Usage: \x1b[2J")
    tdm = Statement(
        Purpose.TDM, DISALLOWED, Mechanism.TDMREP, Place.TDMREP_JSON, "{}", 2, policy="https://example.com/p"
    )
    usage = Usage((allowed, TRAIN, odd, tdm), (allowed, TRAIN, tdm), (LICENSE,))
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
    long = replace(TRAIN, text="x" * 10_000)
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

    said = tuple(replace(TRAIN, number=number, text=Counted("x")) for number in range(2_000))
    assert Usage(said, said).explain().count("\n") == 2_000
    assert compared < 20_000


def test_licenses_are_joined_once_each() -> None:
    other = replace(LICENSE, url="https://rsl.example/2.xml")
    usage = combine([Usage(licenses=(LICENSE,)), Usage(licenses=(other, LICENSE))])
    assert usage.licenses == (LICENSE, other)


def test_a_purpose_may_be_given_by_its_value_and_an_unknown_one_is_refused_by_name() -> None:
    usage = _training_refused()
    assert usage.preference("ai-train") is usage.preference(Purpose.AI_TRAIN) is Preference.DISALLOWED
    assert usage.deciding("ai-train") == usage.bearing("ai-train") == usage.statements
    for ask in (usage.preference, usage.deciding, usage.bearing):
        with pytest.raises(ConfigurationError, match="purpose='training': give one of search, ai-train"):
            ask("training")


def _training_refused() -> Usage:
    said = Statement(Purpose.AI_TRAIN, Preference.DISALLOWED, Mechanism.NOAI, Place.META, "robots: noai")
    return Usage((said,), (said,))

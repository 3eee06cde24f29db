import json

import pytest

from politesse.errors import InvalidURL
from politesse.page.tdmrep import MAX_OCTETS, TdmRep, parse_tdmrep, tdmrep_usage
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Usage

ALLOWED, DISALLOWED, UNSTATED = Preference.ALLOWED, Preference.DISALLOWED, Preference.UNSTATED
POLICY = "https://provider.example/policies/policy.json"


def usage_of(*entries: object, target: str) -> Usage:
    doc = parse_tdmrep(json.dumps(entries).encode())
    assert doc.fault == ""
    return tdmrep_usage(doc, target)


def entry(location: str, reservation: object = None, **more: object) -> dict[str, object]:
    return {"location": location, "tdm-reservation": reservation, **more}


def test_first_location_that_matches_decides() -> None:
    entries = (entry("/directory-b/html/", 1), entry("/", 0), entry("/directory-c/", 1))
    for target, expected in (
        ("/directory-b/html/x", DISALLOWED),
        ("https://example.com/directory-b/html/x?y", DISALLOWED),
        ("/directory-b/", ALLOWED),
        ("/directory-c/", ALLOWED),  # a longer and stricter one that stands behind
    ):
        assert usage_of(*entries, target=target).preference(Purpose.TDM) is expected, target


def test_locations_after_the_first_match_are_reported() -> None:
    usage = usage_of(entry("/x", 1), entry("/a", 0), entry("/", 1), target="/a")
    assert [one.number for one in usage.deciding(Purpose.TDM)] == [2]
    assert [one.number for one in usage.bearing(Purpose.TDM)] == [2, 3]


def test_without_a_match_nothing_is_stated() -> None:
    usage = usage_of(entry("/a", 1), target="/b")
    assert usage.preference(Purpose.TDM) is UNSTATED
    assert usage.statements == ()


@pytest.mark.parametrize(
    ("location", "target", "matches"),
    [
        ("/*.pdf$", "/a/b.pdf", True),
        ("/*.pdf$", "/a/b.pdf?c", False),
        ("*.pdf", "/a.pdf", True),
        ("/a*/b", "/a/c/b", True),
        ("/a$", "/ab", False),
        ("/caf%C3%A9", "/café", True),
        ("/café", "/caf%c3%a9", True),
        ("/*?q=%2F", "/a?q=/", True),
        ("/*%2F", "/a?q=%2F", True),
        ("a", "/a", False),
        ("/*100%x", "/a100%25x", True),
        ("/100%x*", "/100%x", True),
        ("/*%4", "/a%4", True),
        ("/*%4*b", "/%254xb", True),
        ("/a?x=%2", "/a?x=%2F", True),
    ],
)
def test_locations_match_as_paths_of_robots_txt_do(location: str, target: str, matches: bool) -> None:  # noqa: FBT001
    assert (usage_of(entry(location, 1), target=target).preference(Purpose.TDM) is DISALLOWED) is matches


@pytest.mark.parametrize("value", [2, -1, "1", "0", 1.0, True, False, None, [1], {"1": 1}, 10**400])
def test_other_values_than_0_and_1_say_nothing(value: object) -> None:
    usage = usage_of(entry("/a", value), entry("/", 1), target="/a")
    assert usage.preference(Purpose.TDM) is UNSTATED  # and the entry decides all the same
    assert [one.number for one in usage.bearing(Purpose.TDM)] == [1, 2]


def test_statement_has_its_policy_and_its_place() -> None:
    (one,) = usage_of(entry("/", 1, **{"tdm-policy": POLICY}), target="/x").statements
    assert (one.purpose, one.preference, one.policy) == (Purpose.TDM, DISALLOWED, POLICY)
    assert (one.mechanism, one.place, one.number, one.path) == (Mechanism.TDMREP, Place.TDMREP_JSON, 1, "/")
    assert json.loads(one.text) == {"location": "/", "tdm-reservation": 1, "tdm-policy": POLICY}


@pytest.mark.parametrize("odd", [1, None, "x", [], {}, {"location": 1}, {"location": ""}, {"location": "/\ud800"}])
def test_entry_without_a_path_is_left_out(odd: object) -> None:
    usage = usage_of(odd, entry("/", 1, **{"tdm-policy": 5}), target="/x")
    assert [(one.number, one.policy) for one in usage.statements] == [(2, "")]


def test_a_lone_surrogate_is_no_octet_that_was_escaped() -> None:
    assert parse_tdmrep(rb'[{"location": "/\udc80", "tdm-reservation": 1}]') == TdmRep()


def test_empty_array_is_no_fault() -> None:
    assert parse_tdmrep(b"[]") == TdmRep((), "")
    assert tdmrep_usage(parse_tdmrep(b" [ ]\n"), "/").statements == ()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"[", "not JSON"),
        (b"\xff\xfe\xfa", "not JSON"),
        (b'["\xe9"]', "not JSON"),
        (b"1", "not a JSON array"),
        (b"NaN", "not a JSON array"),
        (b"9" * 100_000, "not a JSON array"),
        (b"null", "not a JSON array"),
        (b'{"location": "/", "tdm-reservation": 1}', "not a JSON array"),
        (b"[" * 500_000, "nested too deeply"),
        (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b" " * (MAX_OCTETS + 1), "longer than"),
    ],
)
def test_unreadable_file_is_a_fault_and_never_raises(body: bytes, fault: str) -> None:
    doc = parse_tdmrep(body)
    assert doc.locations == ()
    assert fault in doc.fault
    usage = tdmrep_usage(doc, "/x")
    assert usage.preference(Purpose.TDM) is UNSTATED
    (told,) = usage.statements
    assert told.purpose is None
    assert fault in told.text
    assert "could not be read" in usage.explain()


def test_odd_numbers_and_a_byte_order_mark_are_read_over() -> None:
    body = b'\xef\xbb\xbf[{"location":"/a","tdm-reservation":NaN},{"location":"/b","tdm-reservation":1e999}'
    body += b',{"location":"/c","tdm-reservation":' + b"9" * 10_000 + b'},{"location":"/d","tdm-reservation":1}]'
    doc = parse_tdmrep(body)
    assert [one.statement.preference for one in doc.locations] == [UNSTATED, UNSTATED, UNSTATED, DISALLOWED]


def test_file_of_many_entries_is_read_within_its_limit() -> None:
    small = b"[" + b",".join([b"{}"] * 300_000) + b"]"
    assert len(small) < MAX_OCTETS
    assert parse_tdmrep(small) == TdmRep()
    assert parse_tdmrep(b"[" + b",".join([b'{"location":"/"}'] * 1_000_000) + b"]").fault != ""


def test_invalid_target_raises() -> None:
    for doc in (TdmRep(), TdmRep(fault="it is not JSON")):
        with pytest.raises(InvalidURL):
            tdmrep_usage(doc, "mailto:us")


def test_only_a_reserving_location_counts_beyond_the_bound() -> None:
    def said(reservation: int, target: str) -> Preference:
        needles = [f"/*{'a' * 60}b{number:b}aa" for number in range(5_000)]
        body = json.dumps([{"location": needle, "tdm-reservation": reservation} for needle in needles])
        return tdmrep_usage(parse_tdmrep(body.encode()), target).preference(Purpose.TDM)

    slow = "/b" + "a" * 20_000
    assert [said(1, slow), said(0, slow), said(1, "/a")] == [
        Preference.DISALLOWED,
        Preference.UNSTATED,
        Preference.UNSTATED,
    ]

"""What a response says about the use of its page, and a site by its tdmrep.json."""

import json
from collections.abc import Sequence

import pytest
from multidict import CIMultiDict

from politesse.errors import InvalidURL
from politesse.page import Html, Meta, PageDirectives, response_usage, tdmrep
from politesse.page.preferences import header_usage, meta_usage
from politesse.page.tdmrep import TdmRep, parse_tdmrep, tdmrep_usage
from politesse.robots import RobotsTxt
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Usage, Use, combine
from politesse.usage.vocabulary import MAX_OCTETS

ALLOWED, DISALLOWED, UNSTATED = Preference.ALLOWED, Preference.DISALLOWED, Preference.UNSTATED
TRAIN, SEARCH, TDM = Purpose.AI_TRAIN, Purpose.SEARCH, Purpose.TDM
PAGE = "https://example.com/dir/page"
POLICY = "https://example.com/policies/1,2.json"


def stated(usage: Usage) -> dict[Purpose, Preference]:
    return {purpose: said for purpose in Purpose if (said := usage.preference(purpose)) is not UNSTATED}


def said_by_response(headers: list[tuple[str, str]], body: bytes | None = None) -> Usage:
    """Return what a whole response says."""
    return response_usage(headers, PageDirectives.from_response(headers, body), PAGE)


def test_content_usage_header_is_the_same_dictionary() -> None:
    usage = header_usage({"content-USAGE": "train-ai=n, search=y"}, PAGE)
    assert stated(usage) == {TRAIN: DISALLOWED, SEARCH: ALLOWED}
    (one, _) = usage.statements
    assert (one.mechanism, one.place, one.number) == (Mechanism.CONTENT_USAGE, Place.HEADER, 0)
    assert one.text == "Content-Usage: train-ai=n, search=y"


def test_repeated_lines_are_one_dictionary() -> None:
    lines = [("Content-Usage", "train-ai=n, search=n"), ("content-usage", "train-ai=y")]
    for headers in (lines, CIMultiDict(lines)):
        usage = header_usage(headers, PAGE)
        assert stated(usage) == {TRAIN: ALLOWED, SEARCH: DISALLOWED}  # the last of a key counts


def test_unreadable_header_is_reported_and_states_nothing() -> None:
    usage = header_usage([("Content-Usage", "train-ai=n"), ("Content-Usage", "???")], PAGE)
    assert usage.preference(TRAIN) is UNSTATED
    assert [one.text for one in usage.statements] == ["Content-Usage: train-ai=n, ???"]


def test_other_headers_say_nothing() -> None:
    assert header_usage([("X-Robots-Tag", "noindex"), ("Content-Type", "text/html")], PAGE).statements == ()


def test_content_signal_header_is_read_as_the_line_of_robots_txt() -> None:
    for line in ("search=yes, ai-train=no", "search=yes;ai-train=no", "search=yes ai-train=no"):
        usage = said_by_response([("content-SIGNAL", line)])
        assert stated(usage) == {TRAIN: DISALLOWED, SEARCH: ALLOWED}
        (one,) = usage.deciding(TRAIN)
        assert (one.mechanism, one.place) == (Mechanism.CONTENT_SIGNAL, Place.HEADER)
        assert one.text == f"Content-Signal: {line}"


def test_repeated_content_signal_headers_are_joined_by_the_most_restrictive() -> None:
    usage = said_by_response([("Content-Signal", "ai-train=yes, use=reference"), ("Content-Signal", "ai-train=no")])
    assert usage.preference(TRAIN) is DISALLOWED
    assert [one.use for one in usage.statements] == [Use.REFERENCE, None]


def test_content_signal_header_outweighs_the_permission_of_robots_txt() -> None:
    of_file = RobotsTxt.parse("User-agent: *\nContent-Signal: ai-train=yes\n").rules_for("x").usage("/")
    assert of_file is not None
    assert combine([of_file, said_by_response([("Content-Signal", "ai-train=no")])]).preference(TRAIN) is DISALLOWED


def test_cut_content_signal_header_counts_up_to_the_cut() -> None:
    usage = said_by_response([("Content-Signal", "ai-train=no," + "x" * MAX_OCTETS + ", search=no")])
    assert (usage.preference(TRAIN), usage.preference(SEARCH)) == (DISALLOWED, UNSTATED)


def test_linked_license_of_a_page() -> None:
    of_rsl = '<link rel="license" type="application/rsl+xml" href="https://rsl.example/l.xml">'
    licenses = {
        of_rsl: ["https://rsl.example/l.xml"],
        "<LINK HREF=' l.xml ' REL='next License'>": ["https://example.com/dir/l.xml"],
        "<base href=/base/><link rel=license href=l.xml>": ["https://example.com/base/l.xml"],
        "<link rel=license href=l.xml><base href=//other.example/>": ["https://other.example/l.xml"],
        "<link rel=license href=/a><link rel=license href=b>": ["https://example.com/a", "https://example.com/dir/b"],
        "<link rel=license href=/a><link rel=license href=/a>": ["https://example.com/a"],
        "<link rel=license>": [],
        "<link rel=license href=''>": [],
        "<link rel=licensed href=/a>": [],
        "<link rel=next href=license>": [],
        "<link rel=license href=mailto:a@b>": [],
        "<link rel=license href='http://[::1'>": [],
        "<script><link rel=license href=/a></script>": [],
        "<body><link rel=license href=/a>": [],
        f"<link rel=license href='/{'x' * 10_000}'>": [],
    }
    found = {body: said_by_response([("Content-Type", "text/html")], body.encode()).licenses for body in licenses}
    assert {body: [one.url for one in said] for body, said in found.items()} == licenses
    assert {one.place for said in found.values() for one in said} == {Place.LINK}


def test_linked_license_in_body_is_read_where_its_metas_are() -> None:
    page = PageDirectives.from_response([("Content-Type", "text/html")], b"<p><link rel=license href=/a>", in_body=True)
    assert [one.url for one in response_usage([], page, PAGE).licenses] == ["https://example.com/a"]


def test_linked_license_is_reported_with_its_place() -> None:
    usage = said_by_response([("Content-Type", "text/html")], b"<link rel=license href=/a>")
    assert usage.explain() == "license: https://example.com/a (link: rel=license href=/a)"


def test_of_linked_licenses_the_first_256_are_read() -> None:
    body = b"".join(b"<link rel=license href=/%d>" % number for number in range(300))
    page = PageDirectives.from_response([("Content-Type", "text/html")], body)
    assert len(response_usage([], page, PAGE).licenses) == 256
    assert page.truncated


def test_tdm_reservation_header_is_read_line_by_line() -> None:
    expected = {
        ("1",): DISALLOWED,
        ("0",): ALLOWED,
        ("2",): UNSTATED,
        ("0", "1"): DISALLOWED,
        ("0, 1",): DISALLOWED,
        ("0", "x"): ALLOWED,
    }
    found = {lines: header_usage([("TDM-Reservation", line) for line in lines], PAGE) for lines in expected}
    assert {lines: usage.preference(TDM) for lines, usage in found.items()} == expected


def test_tdm_policy_belongs_to_the_reservation() -> None:
    (one,) = header_usage([("tdm-policy", POLICY), ("tdm-reservation", "1")], PAGE).statements
    assert (one.preference, one.policy, one.text) == (DISALLOWED, POLICY, "tdm-reservation: 1")


def test_policy_without_a_reservation_and_second_policy_are_reported() -> None:
    (alone,) = header_usage([("tdm-policy", POLICY)], PAGE).statements
    assert (alone.purpose, alone.preference, alone.policy) == (TDM, UNSTATED, POLICY)
    usage = header_usage([("tdm-policy", POLICY), ("tdm-policy", "https://b"), ("tdm-reservation", "0")], PAGE)
    assert [one.policy for one in usage.statements] == [POLICY, "https://b"]
    assert usage.preference(TDM) is ALLOWED


def test_links_to_licenses_are_read_as_headers_have_them() -> None:
    licenses: dict[str, list[str]] = {
        '<https://rsl.example/l.xml>; rel="license"': ["https://rsl.example/l.xml"],
        "<l.xml>;rel=license": ["https://example.com/dir/l.xml"],
        "</l.xml> ; title=x ; REL=License": ["https://example.com/l.xml"],
        '</a>; rel="next license  x"': ["https://example.com/a"],
        "</a>; rel=next, </b>; rel=license, </c>; rel=license": ["https://example.com/b", "https://example.com/c"],
        '</a>; title="a, <x>; rel=license \\" ;"; rel=license': ["https://example.com/a"],
        '</a>; title="</b>; rel=license"': [],
        "</a,b;c>; rel=license": ["https://example.com/a,b;c"],
        "</a>; rel=next; rel=license": [],  # RFC 8288 3.3: the first rel counts
        "</a>; rel": [],
        "</a>": [],
        "</a> rel=license": [],
        "</a>; rel=licensed": [],
        "</a; rel=license": [],
        '</a>; rel="license': ["https://example.com/a"],
        '</a>; x="\\': [],
        "garbage, </a>; ; =x; rel = license;": ["https://example.com/a"],
        "<http://[::1>; rel=license, </b>; rel=license": ["https://example.com/b"],
        "<mailto:a@b>; rel=license": [],
        "": [],
    }
    found = {value: header_usage({"Link": value}, PAGE).licenses for value in licenses}
    assert {value: [one.url for one in said] for value, said in found.items()} == licenses
    assert {one.place for said in found.values() for one in said} == {Place.HEADER}


def test_license_shows_its_own_link_only() -> None:
    (one,) = header_usage([("Link", "</a>; rel=next"), ("link", "</n>; rel=next, </l>; rel=license ,")], PAGE).licenses
    assert one.text == "Link: </l>; rel=license"


def test_of_each_header_64_kib_are_read() -> None:
    filling = "x" * (MAX_OCTETS - 30)
    for header, value in (("Link", "</l>; rel=license"), ("tdm-reservation", "1")):
        near = header_usage([(header, filling), (header, value)], PAGE)
        assert near.licenses or near.preference(TDM) is DISALLOWED
        far = header_usage([(header, filling * 2), (header, value)], PAGE)
        assert not far.licenses
        assert far.preference(TDM) is UNSTATED
    usage = header_usage([("Content-Usage", "train-ai=n"), ("Content-Usage", f"a={filling}{filling}")], PAGE)
    assert usage.preference(TRAIN) is UNSTATED  # half of a dictionary would be another one
    assert len(usage.statements) == 1
    assert len(usage.statements[0].text) < MAX_OCTETS + 100


def test_odd_characters_never_raise() -> None:
    for value in ("\x00", "\ud800", "\udcff<\x7f>; rel=license", "\uffff", "<\n>;rel=license"):
        headers = [(name, value) for name in ("Link", "Content-Usage", "tdm-reservation", "tdm-policy")]
        header_usage(headers, PAGE).explain()
        said([("robots", value), ("tdm-reservation", value), ("tdm-policy", value), (value, value)], "x").explain()


def said(metas: list[tuple[str, str]], agent: str | list[str], headers: Sequence[tuple[str, str]] = ()) -> Usage:
    page = PageDirectives.from_html(headers, Html(tuple(Meta(*meta) for meta in metas)), agent)
    return response_usage(headers, page, PAGE)


def test_noai_forbids_training() -> None:
    (one,) = said([("ROBOTS", "noindex,NOAI")], "ExampleBot").statements
    assert (one.purpose, one.preference) == (TRAIN, DISALLOWED)
    assert (one.mechanism, one.place, one.agent, one.text) == (Mechanism.NOAI, Place.META, "", "robots: noindex,NOAI")


def test_noimageai_is_reported_and_decides_nothing_for_the_page() -> None:
    usage = said([("robots", "noimageai")], "ExampleBot")
    assert usage.preference(TRAIN) is UNSTATED
    assert [(one.preference, one.media) for one in usage.statements] == [(DISALLOWED, "images")]
    assert "images only" in usage.explain()
    both = said([("robots", "noai, noimageai")], "ExampleBot")
    assert both.preference(TRAIN) is DISALLOWED
    assert len(both.statements) == 2


def test_noai_counts_for_robots_and_the_crawlers_own_name() -> None:
    for name, agent in (
        ("robots", "ExampleBot"),
        ("examplebot", "ExampleBot"),
        (" ExampleBot ", "ExampleBot/1.0 (+https://example.com)"),
        ("examplebot", ["ExampleBot-Image", "ExampleBot"]),
    ):
        assert said([(name, "noai")], agent).preference(TRAIN) is DISALLOWED, (name, agent)
    for name in ("otherbot", "example", "description"):
        assert said([(name, "noai")], "ExampleBot").preference(TRAIN) is UNSTATED, name
    assert said([("", "noai")], "").preference(TRAIN) is UNSTATED


def test_word_that_contains_noai_is_another_word() -> None:
    assert said([("robots", "noaid, nonoai, noaitraining")], "x").statements == ()


def test_scoped_noai_of_a_header_counts_for_its_crawler() -> None:
    headers = [("X-Robots-Tag", "examplebot: noai"), ("X-Robots-Tag", "otherbot: noimageai")]
    (one,) = said([], "ExampleBot", headers).statements
    assert (one.place, one.agent, one.text) == (Place.HEADER, "examplebot", "X-Robots-Tag: examplebot: noai")
    assert said([], "x", headers).statements == ()


def test_tdm_reservation_meta_with_its_policy() -> None:
    (one,) = meta_usage([("TDM-reservation", " 1 "), ("tdm-policy", POLICY)]).statements
    assert (one.preference, one.place, one.policy) == (DISALLOWED, Place.META, POLICY)
    assert meta_usage([("tdm-reservation", "0"), ("tdm-reservation", "1")]).preference(TDM) is DISALLOWED


def test_everything_together() -> None:
    body = "User-agent: *\nContent-Usage: train-ai=y\nLicense: https://h/l\n"
    robots = RobotsTxt.parse(body).rules_for("x").usage(PAGE)
    assert robots is not None
    doc = parse_tdmrep(b'[{"location": "/dir/", "tdm-reservation": 1}]')
    headers = header_usage({"tdm-reservation": "0", "Link": "</l>; rel=license"}, PAGE)
    metas = said([("robots", "noai")], "x")
    usage = combine([robots, tdmrep_usage(doc, PAGE), headers, metas])
    assert usage.preference(TDM) is ALLOWED  # the header is nearer than the file
    assert usage.preference(TRAIN) is DISALLOWED  # META against robots.txt: another mechanism
    assert [one.url for one in usage.licenses] == ["https://h/l", "https://example.com/l"]
    assert len(usage.statements) == 4


def test_licenses_are_read_up_to_a_bound() -> None:
    link = ", ".join(f"<{number}>;rel=license" for number in range(3_000))
    licenses = header_usage({"Link": link}, PAGE).licenses
    assert [one.url for one in licenses] == [f"https://example.com/dir/{number}" for number in range(256)]


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
        assert usage_of(*entries, target=target).preference(TDM) is expected, target


def test_locations_after_the_first_match_are_reported() -> None:
    usage = usage_of(entry("/x", 1), entry("/a", 0), entry("/", 1), target="/a")
    assert [one.number for one in usage.deciding(TDM)] == [2]
    assert [one.number for one in usage.bearing(TDM)] == [2, 3]


def test_without_a_match_nothing_is_stated() -> None:
    usage = usage_of(entry("/a", 1), target="/b")
    assert usage.preference(TDM) is UNSTATED
    assert usage.statements == ()


def test_locations_match_as_paths_of_robots_txt_do() -> None:
    matches = {
        ("/*.pdf$", "/a/b.pdf"): True,
        ("/*.pdf$", "/a/b.pdf?c"): False,
        ("*.pdf", "/a.pdf"): True,
        ("/a*/b", "/a/c/b"): True,
        ("/a$", "/ab"): False,
        ("/caf%C3%A9", "/café"): True,
        ("/café", "/caf%c3%a9"): True,
        ("/*?q=%2F", "/a?q=/"): True,
        ("/*%2F", "/a?q=%2F"): True,
        ("a", "/a"): False,
        ("/*%4*b", "/%254xb"): True,
    }
    found = {row: usage_of(entry(row[0], 1), target=row[1]).preference(TDM) for row in matches}
    assert {row: preference is DISALLOWED for row, preference in found.items()} == matches


def test_other_values_than_0_and_1_say_nothing() -> None:
    for value in (2, -1, "1", "0", 1.0, True, False, None, [1], {"1": 1}, 10**400):
        usage = usage_of(entry("/a", value), entry("/", 1), target="/a")
        assert usage.preference(TDM) is UNSTATED, value  # and the entry decides all the same
        assert [one.number for one in usage.bearing(TDM)] == [1, 2], value


def test_statement_has_its_policy_and_its_place() -> None:
    (one,) = usage_of(entry("/", 1, **{"tdm-policy": POLICY}), target="/x").statements
    assert (one.purpose, one.preference, one.policy) == (TDM, DISALLOWED, POLICY)
    assert (one.mechanism, one.place, one.number, one.path) == (Mechanism.TDMREP, Place.TDMREP_JSON, 1, "/")
    assert json.loads(one.text) == {"location": "/", "tdm-reservation": 1, "tdm-policy": POLICY}


def test_entry_without_a_path_is_left_out() -> None:
    paths: list[object] = [1, None, "x", [], {}, {"location": 1}, {"location": ""}, {"location": "/\ud800"}]
    for odd in paths:
        usage = usage_of(odd, entry("/", 1, **{"tdm-policy": 5}), target="/x")
        assert [(one.number, one.policy) for one in usage.statements] == [(2, "")], odd


def test_a_lone_surrogate_is_no_octet_that_was_escaped() -> None:
    assert parse_tdmrep(rb'[{"location": "/\udc80", "tdm-reservation": 1}]') == TdmRep()


def test_empty_array_is_no_fault() -> None:
    assert parse_tdmrep(b"[]") == TdmRep((), "")
    assert tdmrep_usage(parse_tdmrep(b" [ ]\n"), "/").statements == ()


def test_unreadable_file_is_a_fault_and_never_raises() -> None:
    faults = {
        **dict.fromkeys([b"", b"<html>", b"[", b"\xff\xfe\xfa", b'["\xe9"]'], "not JSON"),
        **dict.fromkeys([b"1", b"NaN", b"9" * 100_000, b"null", b'{"location": "/"}'], "not a JSON array"),
        b"[" * 500_000: "nested too deeply",
        b"[" * 200_000 + b"]" * 200_000: "nested too deeply",
        b'{"a":' * 200_000: "nested too deeply",
        b" " * (tdmrep.MAX_OCTETS + 1): "longer than",
    }
    for body, fault in faults.items():
        doc = parse_tdmrep(body)
        assert doc.locations == ()
        assert fault in doc.fault, body[:20]
        usage = tdmrep_usage(doc, "/x")
        assert usage.preference(TDM) is UNSTATED
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
    assert len(small) < tdmrep.MAX_OCTETS
    assert parse_tdmrep(small) == TdmRep()
    assert parse_tdmrep(b"[" + b",".join([b'{"location":"/"}'] * 1_000_000) + b"]").fault != ""


def test_invalid_target_raises() -> None:
    for doc in (TdmRep(), TdmRep(fault="it is not JSON")):
        with pytest.raises(InvalidURL):
            tdmrep_usage(doc, "mailto:us")


def test_only_a_reserving_location_counts_beyond_the_bound() -> None:
    def said(reservation: int, target: str) -> Preference:
        needles = [f"/*{'a' * 60}b{number:b}aa" for number in range(2_000)]
        body = json.dumps([{"location": needle, "tdm-reservation": reservation} for needle in needles])
        return tdmrep_usage(parse_tdmrep(body.encode()), target).preference(TDM)

    slow = "/b" + "a" * 20_000
    assert [said(1, slow), said(0, slow), said(1, "/a")] == [DISALLOWED, UNSTATED, UNSTATED]

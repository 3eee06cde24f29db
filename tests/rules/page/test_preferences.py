from collections.abc import Sequence

import pytest
from multidict import CIMultiDict

from politesse.page import Html, Meta, PageDirectives, response_usage
from politesse.page.preferences import header_usage, meta_usage
from politesse.page.tdmrep import parse_tdmrep, tdmrep_usage
from politesse.robots import RobotsTxt
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Usage, Use, combine
from politesse.usage.vocabulary import MAX_OCTETS

ALLOWED, DISALLOWED, UNSTATED = Preference.ALLOWED, Preference.DISALLOWED, Preference.UNSTATED
TRAIN, SEARCH, TDM = Purpose.AI_TRAIN, Purpose.SEARCH, Purpose.TDM
PAGE = "https://example.com/dir/page"
POLICY = "https://example.com/policies/1,2.json"


def said_by_response(headers: list[tuple[str, str]], body: bytes | None = None) -> Usage:
    """Return what a whole response says."""
    return response_usage(headers, PageDirectives.from_response(headers, body), PAGE)


def test_content_usage_header_is_the_same_dictionary() -> None:
    usage = header_usage({"content-USAGE": "train-ai=n, search=y"}, PAGE)
    assert (usage.preference(TRAIN), usage.preference(SEARCH)) == (DISALLOWED, ALLOWED)
    (one, _) = usage.statements
    assert (one.mechanism, one.place, one.number) == (Mechanism.CONTENT_USAGE, Place.HEADER, 0)
    assert one.text == "Content-Usage: train-ai=n, search=y"


@pytest.mark.parametrize("kind", [tuple, CIMultiDict])
def test_repeated_lines_are_one_dictionary(kind: type) -> None:
    usage = header_usage(kind([("Content-Usage", "train-ai=n, search=n"), ("content-usage", "train-ai=y")]), PAGE)
    assert (usage.preference(TRAIN), usage.preference(SEARCH)) == (ALLOWED, DISALLOWED)  # the last of a key counts


def test_unreadable_header_is_reported_and_states_nothing() -> None:
    usage = header_usage([("Content-Usage", "train-ai=n"), ("Content-Usage", "???")], PAGE)
    assert usage.preference(TRAIN) is UNSTATED
    assert [one.text for one in usage.statements] == ["Content-Usage: train-ai=n, ???"]


def test_other_headers_say_nothing() -> None:
    assert header_usage([("X-Robots-Tag", "noindex"), ("Content-Type", "text/html")], PAGE).statements == ()


@pytest.mark.parametrize("lines", [["search=yes, ai-train=no"], ["search=yes;ai-train=no"], ["search=yes ai-train=no"]])
def test_content_signal_header_is_read_as_the_line_of_robots_txt(lines: list[str]) -> None:
    usage = said_by_response([("content-SIGNAL", line) for line in lines])
    assert (usage.preference(TRAIN), usage.preference(SEARCH)) == (DISALLOWED, ALLOWED)
    (one,) = usage.deciding(TRAIN)
    assert (one.mechanism, one.place, one.text) == (
        Mechanism.CONTENT_SIGNAL,
        Place.HEADER,
        f"Content-Signal: {lines[0]}",
    )


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


@pytest.mark.parametrize(
    ("body", "urls"),
    [
        (
            '<link rel="license" type="application/rsl+xml" href="https://rsl.example/l.xml">',
            ["https://rsl.example/l.xml"],
        ),
        ("<LINK HREF=' l.xml ' REL='next License'>", ["https://example.com/dir/l.xml"]),
        ("<base href=/base/><link rel=license href=l.xml>", ["https://example.com/base/l.xml"]),
        ("<link rel=license href=l.xml><base href=//other.example/>", ["https://other.example/l.xml"]),
        ("<link rel=license href=/a><link rel=license href=/b>", ["https://example.com/a", "https://example.com/b"]),
        ("<link rel=license href=/a><link rel=license href=/a>", ["https://example.com/a"]),
        ("<link rel=license>", []),
        ("<link rel=license href=''>", []),
        ("<link rel=licensed href=/a>", []),
        ("<link rel=next href=license>", []),
        ("<link rel=license href=mailto:a@b>", []),
        ("<link rel=license href='http://[::1'>", []),
        ("<script><link rel=license href=/a></script>", []),
        ("<body><link rel=license href=/a>", []),
        (f"<link rel=license href='/{'x' * 10_000}'>", []),
    ],
)
def test_linked_license_of_a_page(body: str, urls: list[str]) -> None:
    usage = said_by_response([("Content-Type", "text/html")], body.encode())
    assert [one.url for one in usage.licenses] == urls
    assert {one.place for one in usage.licenses} <= {Place.LINK}


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


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1"], DISALLOWED),
        (["0"], ALLOWED),
        (["2"], UNSTATED),
        (["0", "1"], DISALLOWED),
        (["0, 1"], DISALLOWED),
        (["0", "x"], ALLOWED),
    ],
)
def test_tdm_reservation_header(lines: list[str], expected: Preference) -> None:
    usage = header_usage([("TDM-Reservation", line) for line in lines], PAGE)
    assert usage.preference(TDM) is expected


def test_tdm_policy_belongs_to_the_reservation() -> None:
    (one,) = header_usage([("tdm-policy", POLICY), ("tdm-reservation", "1")], PAGE).statements
    assert (one.preference, one.policy, one.text) == (DISALLOWED, POLICY, "tdm-reservation: 1")


def test_policy_without_a_reservation_and_second_policy_are_reported() -> None:
    (alone,) = header_usage([("tdm-policy", POLICY)], PAGE).statements
    assert (alone.purpose, alone.preference, alone.policy) == (TDM, UNSTATED, POLICY)
    usage = header_usage([("tdm-policy", POLICY), ("tdm-policy", "https://b"), ("tdm-reservation", "0")], PAGE)
    assert [one.policy for one in usage.statements] == [POLICY, "https://b"]
    assert usage.preference(TDM) is ALLOWED


@pytest.mark.parametrize(
    ("value", "urls"),
    [
        ('<https://rsl.example/l.xml>; rel="license"', ["https://rsl.example/l.xml"]),
        ("<l.xml>;rel=license", ["https://example.com/dir/l.xml"]),
        ("</l.xml> ; title=x ; REL=License", ["https://example.com/l.xml"]),
        ('</a>; rel="next license  x"', ["https://example.com/a"]),
        ("</a>; rel=next, </b>; rel=license, </c>; rel=license", ["https://example.com/b", "https://example.com/c"]),
        ('</a>; title="a, <x>; rel=license \\" ;"; rel=license', ["https://example.com/a"]),
        ('</a>; title="</b>; rel=license"', []),
        ("</a,b;c>; rel=license", ["https://example.com/a,b;c"]),
        ("</a>; rel=next; rel=license", []),  # RFC 8288 3.3: the first rel counts
        ("</a>; rel", []),
        ("</a>", []),
        ("</a> rel=license", []),
        ("</a>; rel=licensed", []),
        ("</a; rel=license", []),
        ('</a>; rel="license', ["https://example.com/a"]),
        ('</a>; x="\\', []),
        ("garbage, </a>; ; =x; rel = license;", ["https://example.com/a"]),
        ("<http://[::1>; rel=license, </b>; rel=license", ["https://example.com/b"]),
        ("<mailto:a@b>; rel=license", []),
        ("", []),
    ],
)
def test_links_to_licenses(value: str, urls: list[str]) -> None:
    licenses = header_usage({"Link": value}, PAGE).licenses
    assert [one.url for one in licenses] == urls
    assert {one.place for one in licenses} <= {Place.HEADER}


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


@pytest.mark.parametrize("value", ["\x00", "\ud800", "\udcff<\x7f>; rel=license", "\uffff", "<\n>;rel=license"])
def test_odd_characters_never_raise(value: str) -> None:
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


@pytest.mark.parametrize(
    ("name", "agent", "counts"),
    [
        ("robots", "ExampleBot", True),
        ("examplebot", "ExampleBot", True),
        (" ExampleBot ", "ExampleBot/1.0 (+https://example.com)", True),
        ("examplebot", ["ExampleBot-Image", "ExampleBot"], True),
        ("otherbot", "ExampleBot", False),
        ("example", "ExampleBot", False),
        ("", "", False),
        ("description", "ExampleBot", False),
    ],
)
def test_noai_counts_for_robots_and_the_crawlers_own_name(name: str, agent: str | list[str], counts: bool) -> None:  # noqa: FBT001
    usage = said([(name, "noai")], agent)
    assert (usage.preference(TRAIN) is DISALLOWED) is counts


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
    robots = (
        RobotsTxt.parse("User-agent: *\nContent-Usage: train-ai=y\nLicense: https://h/l\n").rules_for("x").usage(PAGE)
    )
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

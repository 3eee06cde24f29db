import json
from collections.abc import Sequence
from itertools import chain, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.page.preferences import header_usage, meta_usage
from politesse.page.tdmrep import parse_tdmrep, tdmrep_usage
from politesse.robots import Dialect, RobotsTxt
from politesse.robots.pattern import normalise_pattern
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Statement, Usage, combine
from politesse.usage.vocabulary import parse_content_signal, parse_content_usage

STRICTNESS = {Preference.UNSTATED: 0, Preference.ALLOWED: 1, Preference.DISALLOWED: 2}
PURPOSES = st.sampled_from(Purpose)
PREFERENCES = st.sampled_from(Preference)
MECHANISMS = st.sampled_from([one for one in Mechanism if one is not Mechanism.TDMREP])

# TDMRep is spoken at three places, all others anywhere; a few numbers, so that statements are repeated.
PLACES = st.sampled_from([Place.TDMREP_JSON, Place.HEADER, Place.META])
TEXT_AND_NUMBER = (st.just("t"), st.integers(0, 3))
TDMREP = st.builds(Statement, st.just(Purpose.TDM), PREFERENCES, st.just(Mechanism.TDMREP), PLACES, *TEXT_AND_NUMBER)
MEDIA = st.sampled_from(["", "", "images"])
OTHERS = st.builds(Statement, PURPOSES, PREFERENCES, MECHANISMS, st.sampled_from(Place), *TEXT_AND_NUMBER, media=MEDIA)


def usages(statements: st.SearchStrategy[Statement]) -> st.SearchStrategy[Usage]:
    """What one place says: some of it overruled there."""
    pairs = st.lists(st.tuples(statements, st.booleans()), max_size=4)
    return pairs.map(lambda said: Usage(tuple(one for one, _ in said), tuple(one for one, applies in said if applies)))


WORDS = st.sampled_from([*"=yn,; \t/(:é*", "train-ai", "search", '"n"', "?1"])
VALUES = st.one_of(st.text(), st.lists(WORDS).map("".join))
PATHS = st.sampled_from(["", "/", "/a", "/a/b", "/a*b", "/*b$", "/%61", "/*", "/a/", "/b"])
TARGETS = st.sampled_from(["/", "/a", "/a/b", "/ab", "/b", "/a/x/b", "/%61/", "/c"])
RULES = st.lists(st.tuples(PATHS, st.sampled_from(["train-ai=y", "train-ai=n", "search=n", "???"])), max_size=6)


@given(st.lists(usages(OTHERS), max_size=4))
def test_between_mechanisms_the_most_restrictive_wins(given_usages: list[Usage]) -> None:
    joined = combine(given_usages)
    for purpose in Purpose:
        strictest = max((STRICTNESS[one.preference(purpose)] for one in given_usages), default=0)
        assert STRICTNESS[joined.preference(purpose)] == strictest


@given(st.lists(usages(st.one_of(OTHERS, TDMREP)), max_size=4))
def test_no_statement_is_lost_and_deciding_statements_state_the_result(given_usages: list[Usage]) -> None:
    joined = combine(given_usages)
    assert set(joined.statements) == set(chain.from_iterable(one.statements for one in given_usages))
    assert set(joined.applied) <= set(joined.statements)
    for purpose in Purpose:
        deciding, preference = joined.deciding(purpose), joined.preference(purpose)
        assert bool(deciding) is (preference is not Preference.UNSTATED)
        assert {one.preference for one in deciding} <= {preference}
        assert set(deciding) <= set(joined.bearing(purpose))
    shown = joined.explain().splitlines()
    told = [one for one in joined.statements if one.purpose is not None]
    assert sum(line.startswith(("  by ", "  without effect: ")) for line in shown) == len(told)


@given(st.lists(usages(st.one_of(OTHERS, TDMREP)), min_size=1, max_size=3))
def test_neither_order_nor_repetition_nor_steps_matter(given_usages: list[Usage]) -> None:
    def said(usage: Usage) -> tuple[list[Preference], set[Statement], set[Statement]]:
        return [usage.preference(one) for one in Purpose], set(usage.statements), set(usage.applied)

    expected = said(combine(given_usages))
    for order in permutations(given_usages):
        assert said(combine(order)) == expected
    assert said(combine([*given_usages, *given_usages])) == expected
    assert said(combine([combine(given_usages[:1]), combine(given_usages[1:])])) == expected


@given(st.lists(TDMREP, max_size=6))
def test_the_nearest_statement_of_tdmrep_wins(said: list[Statement]) -> None:
    joined = combine(Usage((one,), (one,)) for one in said)
    expected = Preference.UNSTATED
    for place in (Place.TDMREP_JSON, Place.HEADER, Place.META):
        there = [one.preference for one in said if one.place is place and one.preference is not Preference.UNSTATED]
        expected = max(there, key=STRICTNESS.__getitem__, default=expected)
    assert joined.preference(Purpose.TDM) is expected


@given(VALUES)
def test_vocabularies_never_raise(value: str) -> None:
    parse_content_usage(value)
    parse_content_signal(value)
    names = ("Content-Usage", "Content-Signal", "Link", *TDM_FIELDS)
    header_usage([(name, value) for name in names], "https://h/")
    meta_usage([("tdm-policy", value), ("tdm-reservation", value), (value, "1")])


@given(st.one_of(st.binary(), VALUES.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_arbitrary_octets_as_tdmrep_never_raise(body: bytes) -> None:
    doc = parse_tdmrep(body)
    assert not (doc.fault and doc.locations)
    tdmrep_usage(doc, "/a").explain()


TDM_FIELDS = ("tdm-reservation", "tdm-policy")
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["location", *TDM_FIELDS]), inner),
)


@given(JSON)
def test_arbitrary_json_as_tdmrep_never_raises(value: object) -> None:
    tdmrep_usage(parse_tdmrep(json.dumps(value).encode()), "/a").explain()


@settings(max_examples=700)
@given(
    st.sampled_from(Dialect),
    st.lists(st.tuples(st.sampled_from(["Content-Usage", "Content-Signal", "License", "User-agent"]), VALUES)),
)
def test_usage_lines_never_raise_and_disallow_nothing(dialect: Dialect, lines: list[tuple[str, str]]) -> None:
    body = "User-agent: *\n" + "\n".join(f"{name}: {value}" for name, value in lines)
    robots = RobotsTxt.parse(body, dialect)
    usage = robots.rules_for("x").usage("/")
    assert usage is not None
    usage.explain()
    assert [one.url for one in usage.licenses] == robots.licenses


@given(RULES, TARGETS)
def test_the_longest_path_wins_as_in_the_literal_reference(rules: Sequence[tuple[str, str]], target: str) -> None:
    lines = [f"Content-Usage: {path} {words}" for path, words in rules]
    usage = RobotsTxt.parse("\n".join(["User-agent: *", *lines])).rules_for("x").usage(target)
    assert usage is not None
    longest, expected = -1, set[str]()
    for path, words in rules:
        pattern = path or "/"
        alone = RobotsTxt.parse(f"User-agent: *\nDisallow: {pattern}\n").rules_for("x")
        if alone.allowed(target):
            continue
        length = len(normalise_pattern(pattern)) or 1  # all stars match what the slash does
        if length >= longest:
            expected = {words} if length > longest else expected | {words}
            longest = length
    for purpose, key in ((Purpose.AI_TRAIN, "train-ai"), (Purpose.SEARCH, "search")):
        preference = usage.preference(purpose)
        assert (preference is Preference.DISALLOWED) is (f"{key}=n" in expected)
        assert (preference is Preference.ALLOWED) is (f"{key}=y" in expected and f"{key}=n" not in expected)


def test_refusal_that_was_not_compared_counts_and_a_permission_does_not() -> None:
    """DESIGN.md, Limits: the matching work of one decision is bounded; what is left undone never opens anything."""

    def usage_of(word: str, target: str) -> Usage:
        needles = [f"Content-Usage: /*{'a' * 60}b{number:b}aa train-ai={word}" for number in range(1_000)]
        usage = RobotsTxt.parse("\n".join(["User-agent: *", "Allow: /", *needles])).rules_for("x").usage(target)
        assert usage is not None
        return usage

    refused = usage_of("n", "/b" + "a" * 20_000)
    assert (refused.preference("ai-train"), len(refused.statements)) == (Preference.DISALLOWED, 1)
    assert usage_of("y", "/b" + "a" * 20_000).preference("ai-train") is Preference.UNSTATED
    assert usage_of("n", "/a").preference("ai-train") is Preference.UNSTATED

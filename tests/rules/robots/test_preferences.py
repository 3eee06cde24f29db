import pytest

from politesse.errors import InvalidURL
from politesse.robots import Dialect, Quirk, RobotsTxt
from politesse.usage.model import NOTHING_STATED, Mechanism, Place, Preference, Purpose, Usage, Use

ALLOWED, DISALLOWED = Preference.ALLOWED, Preference.DISALLOWED
TRAIN, INPUT, SEARCH = Purpose.AI_TRAIN, Purpose.AI_INPUT, Purpose.SEARCH


def usage_of(*lines: str, target: str = "/", agent: str = "x", dialect: Dialect = Dialect.RFC9309) -> Usage:
    usage = RobotsTxt.parse("\n".join(lines), dialect).rules_for(agent).usage(target)
    assert usage is not None
    return usage


def stated(usage: Usage) -> dict[Purpose, Preference]:
    return {purpose: said for purpose in Purpose if (said := usage.preference(purpose)) is not Preference.UNSTATED}


def test_file_without_preferences_costs_no_rule_set_anything() -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: /a\n").rules_for("x")
    assert rules.site_usage is None
    assert rules.usage("/b") is NOTHING_STATED


def test_statement_has_its_place_and_its_agent() -> None:
    (one,) = usage_of(
        "# note", "User-agent: b", "User-agent: A", "content-USAGE :  /p/ train-ai=n # so", agent="a", target="/p/q"
    ).statements
    assert (one.purpose, one.preference) == (TRAIN, DISALLOWED)
    assert (one.mechanism, one.place, one.number) == (Mechanism.CONTENT_USAGE, Place.ROBOTS_TXT, 4)
    assert (one.path, one.agent, one.text) == ("/p/", "a", "content-USAGE: /p/ train-ai=n")


def test_url_and_target_give_the_same_answer() -> None:
    rules = RobotsTxt.parse("User-agent: *\nContent-Usage: /a train-ai=n\n").rules_for("x")
    assert rules.usage("https://example.com/a#b") == rules.usage("/a")
    with pytest.raises(InvalidURL):
        rules.usage("mailto:us")
    with pytest.raises(InvalidURL):
        rules.usage("/a\x00")


def test_denied_target_has_no_usage() -> None:
    body = "User-agent: *\nDisallow: /a\nContent-Usage: train-ai=y\nLicense: https://h/l\n"
    rules = RobotsTxt.parse(body).rules_for("x")
    assert rules.usage("/a") is None
    assert rules.usage("/b") is not None


def test_overruled_statements_are_reported() -> None:
    usage = usage_of("User-agent: *", "Content-Usage: train-ai=n", "Content-Usage: /a train-ai=y", target="/a/b")
    assert usage.preference(TRAIN) is ALLOWED
    assert [one.number for one in usage.deciding(TRAIN)] == [3]
    assert [one.number for one in usage.bearing(TRAIN)] == [2, 3]


def test_longest_rule_counts_as_a_whole_even_for_purposes_that_it_does_not_name() -> None:
    usages = ("Content-Usage: train-ai=n, search=n", "Content-Usage: /a search=y", "Content-Usage: /b =")
    lines = ("User-agent: *", *usages)
    assert stated(usage_of(*lines, target="/a")) == {SEARCH: ALLOWED}
    usage = usage_of(*lines, target="/b")
    assert stated(usage) == {}
    assert [(one.purpose, one.number) for one in usage.statements if one.purpose is None] == [(None, 4)]


def test_rule_without_a_path_ranks_with_that_of_the_slash() -> None:
    # Both are about the whole site, so they are two words on the same paths.
    for lines in (
        ["Content-Usage: train-ai=n", "Content-Usage: / train-ai=y"],
        ["Content-Usage: / train-ai=n", "Content-Usage: train-ai=y"],
        ["Content-Usage: /* train-ai=n", "Content-Usage: train-ai=y"],
    ):
        assert stated(usage_of("User-agent: *", *lines)) == {TRAIN: DISALLOWED}


def test_paths_match_as_those_of_rules_do() -> None:
    for path, target, matches in (
        ("/*?a=%2F", "/p?a=/", True),
        ("/*%2F", "/p?a=%2F", True),
        ("/p%2F", "/p/", False),
        ("/a$", "/a", True),
        ("/a$", "/ab", False),
        ("/*100%x", "/a100%25x", True),
        ("/100%x*", "/100%x", True),
        ("/*%4", "/a%4", True),
        ("/*%4*b", "/%254xb", True),
        ("/a?x=%2", "/a?x=%2F", True),
        ("/a?x=%", "/a?x=%3A", True),
    ):
        ruled = not RobotsTxt.parse(f"User-agent: *\nDisallow: {path}\n").rules_for("x").allowed(target)
        said = stated(usage_of("User-agent: *", f"Content-Usage: {path} train-ai=n", target=target))
        assert (ruled, said) == (matches, {TRAIN: DISALLOWED} if matches else {}), path


def test_content_usage_before_any_group_binds_no_crawler() -> None:
    robots = RobotsTxt.parse("Content-Usage: train-ai=n\nUser-agent: *\nDisallow: /a\n")
    assert robots.lines[0].quirks == (Quirk.BEFORE_ANY_GROUP,)
    assert robots.rules_for("x").usage("/") == NOTHING_STATED


def test_line_with_a_control_character_is_ignored() -> None:
    body = "License: https://h/\x01\nContent-Signal: search=no\x02\nUser-agent: *\nContent-Usage: train-ai=n\x03\n"
    robots = RobotsTxt.parse(body)
    assert [line.quirks[-1] for line in robots.lines if line.field != "user-agent"] == [Quirk.INVALID_VALUE] * 3
    assert robots.rules_for("x").usage("/") == NOTHING_STATED


def test_content_usage_is_read_where_paths_are_those_of_rfc_9309() -> None:
    for dialect in Dialect:
        usage = usage_of("User-agent: *", "Content-Usage: train-ai=n", "Disallow:", dialect=dialect)
        knows = dialect in {Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019}
        assert stated(usage) == ({TRAIN: DISALLOWED} if knows else {}), dialect


def test_content_usage_ends_the_list_of_agents_where_the_draft_updates_the_dialect() -> None:
    for dialect in Dialect:
        # KOSTER_1996 takes any field for a rule, RFC9309 this one; to all others it is another record.
        ends = dialect in {Dialect.RFC9309, Dialect.KOSTER_1996}
        robots = RobotsTxt.parse("User-agent: a\nContent-Usage: train-ai=n\nUser-agent: b\nDisallow: /x\n", dialect)
        assert len(robots.groups) == (2 if ends else 1), dialect
        assert [robots.rules_for(agent).allowed("/x") for agent in "ab"] == [ends, False], dialect


def test_content_signal_and_license_are_read_in_every_dialect() -> None:
    lines = ("User-agent: *", "Content-Signal: ai-train=no", "License: https://h/l", "Disallow: /a")
    for dialect in Dialect:
        usage = usage_of(*lines, dialect=dialect)
        assert stated(usage) == {TRAIN: DISALLOWED}, dialect
        assert [license_.url for license_ in usage.licenses] == ["https://h/l"], dialect


def test_content_signal_does_not_end_the_list_of_agents() -> None:
    lines = ("User-agent: a", "Content-Signal: ai-train=no", "User-agent: b", "Disallow: /x")
    robots = RobotsTxt.parse("\n".join(lines))
    assert len(robots.groups) == 1
    assert not robots.rules_for("a").allowed("/x")
    assert stated(usage_of(*lines, agent="a")) == {TRAIN: DISALLOWED}
    # It binds who was named before it, as every other record of a group.
    assert stated(usage_of(*lines, agent="b")) == {}


def test_content_signal_in_the_words_of_cloudflare() -> None:
    usage = usage_of("User-agent: *", "Content-Signal: search=yes,ai-train=no,use=reference", "Allow: /")
    assert stated(usage) == {SEARCH: ALLOWED, TRAIN: DISALLOWED}
    assert {one.use for one in usage.statements} == {Use.REFERENCE}


SCOPES = (
    "Content-Signal: search=no",
    "User-agent: own",
    "Content-Signal: ai-train=no",
    "Disallow: /x",
    "User-agent: without",
    "Disallow: /y",
    "User-agent: *",
    "Content-Signal: ai-input=no",
    "Disallow: /z",
)


def test_content_signal_of_the_own_group_then_of_everybody_then_of_the_file() -> None:
    assert stated(usage_of(*SCOPES, agent="own")) == {TRAIN: DISALLOWED}
    assert stated(usage_of(*SCOPES, agent="without")) == {INPUT: DISALLOWED}
    assert stated(usage_of(*SCOPES, agent="unnamed")) == {INPUT: DISALLOWED}
    assert stated(usage_of(*SCOPES[:6], agent="without")) == {SEARCH: DISALLOWED}
    (of_file,) = usage_of(*SCOPES[:6], agent="without").statements
    assert (of_file.agent, of_file.number) == ("", 1)
    (of_everybody,) = usage_of(*SCOPES, agent="without").statements
    assert (of_everybody.agent, of_everybody.number) == ("*", 8)


def test_content_signals_of_one_scope_are_joined_by_the_most_restrictive() -> None:
    usage = usage_of("User-agent: *", "Content-Signal: search=yes", "Content-Signal: search=no, ai-train=yes")
    assert stated(usage) == {SEARCH: DISALLOWED, TRAIN: ALLOWED}


def test_mechanisms_are_joined_by_the_most_restrictive() -> None:
    lines = ("User-agent: *", "Content-Signal: ai-train=yes, search=no", "Content-Usage: train-ai=n, search=y")
    usage = usage_of(*lines)
    assert stated(usage) == {TRAIN: DISALLOWED, SEARCH: DISALLOWED}
    assert [one.mechanism for one in usage.deciding(TRAIN)] == [Mechanism.CONTENT_USAGE]
    assert [one.mechanism for one in usage.deciding(SEARCH)] == [Mechanism.CONTENT_SIGNAL]


def test_unreadable_line_is_reported_and_states_nothing() -> None:
    usage = usage_of("User-agent: *", "Content-Signal: whatever", "Content-Usage: ???")
    assert stated(usage) == {}
    assert {one.text for one in usage.statements} == {"Content-Signal: whatever", "Content-Usage: ???"}
    assert usage.explain().count("not understood: robots.txt line") == 2


def test_licenses_are_for_everybody_wherever_they_stand() -> None:
    robots = RobotsTxt.parse(
        "LICENSE: https://h/A.xml\nUser-agent: a\nDisallow: /x\nLicense: http://other.example:80/ü\n"
        "User-agent: b\nlicense : /relative.xml\nLicense: https://h/A.xml\nDisallow: /y\n"
    )
    assert robots.licenses == ["https://h/A.xml", "http://other.example:80/ü", "https://h/A.xml"]
    assert robots.lines[5].quirks == (Quirk.INVALID_VALUE,)
    for agent in ("a", "b", "c"):
        usage = robots.rules_for(agent).usage("/")
        assert usage is not None
        assert [(one.url, one.number) for one in usage.licenses] == list(zip(robots.licenses, (1, 4, 7), strict=True))


def test_invalid_content_usage_does_not_end_the_row_of_agents() -> None:
    for value in ("", " ", " # train-ai=n", " train-ai=n\x01"):
        robots = RobotsTxt.parse(f"User-agent: a\nContent-Usage:{value}\nUser-agent: b\nDisallow: /\n")
        assert [robots.rules_for(agent).allowed("/") for agent in "ab"] == [False, False], value


def test_license_neither_ends_a_group_nor_separates_its_agents() -> None:
    robots = RobotsTxt.parse("User-agent: a\nLicense: https://h/l\nUser-agent: b\nDisallow: /x\nLicense: https://h/m\n")
    assert len(robots.groups) == 1


def test_noindex_is_ignored_for_access() -> None:
    # Google, 2019-09-01: unsupported.
    rules = RobotsTxt.parse("User-agent: *\nNoindex: /a\n", Dialect.GOOGLE).rules_for("x")
    assert rules.allowed("/a")
    assert rules.usage("/a") is NOTHING_STATED


def test_weight_of_preferences_follows_their_text() -> None:
    light = RobotsTxt.parse("User-agent: *\nContent-Usage: train-ai=n\n").rules_for("x")
    heavy = RobotsTxt.parse(f"User-agent: *\nContent-Usage: /{'a' * 10_000} train-ai=n\n").rules_for("x")
    assert heavy.weight_bytes > light.weight_bytes + 10_000


def test_a_group_of_many_agents_and_lines_is_not_walked_for_each() -> None:
    names = "".join(f"User-agent: bot{number}\n" for number in range(20_000))
    lines = "".join(f"Content-Usage: /{number} train-ai=n\n" for number in range(1_000))
    usage = RobotsTxt.parse(f"{names}{lines}").rules_for("bot19999").usage("/77")
    assert usage is not None
    assert {one.agent for one in usage.statements} == {"bot19999"}
    assert [one.path for one in usage.applied] == ["/77"]


def test_of_lines_beyond_a_thousand_a_refusal_counts_for_all_paths_and_a_permission_for_none() -> None:
    many = "".join(f"Content-Usage: /{number} search=y\nContent-Signal: search=yes\n" for number in range(1_000))
    more = "Content-Usage: /a train-ai=n\nContent-Usage: / search=y\nContent-Signal: ai-input=no, ai-train=yes\n"
    usage = RobotsTxt.parse(f"User-agent: *\n{many}{more}").rules_for("x").usage("/b")
    assert usage is not None
    assert [usage.preference(purpose) for purpose in ("ai-train", "ai-input")] == ["disallowed", "disallowed"]
    assert [(one.mechanism, one.number) for one in usage.statements if one.preference is Preference.DISALLOWED] == [
        (Mechanism.CONTENT_USAGE, 2_002),
        (Mechanism.CONTENT_SIGNAL, 2_004),
    ]
    assert not any(one.number > 2_001 for one in usage.statements if one.preference is Preference.ALLOWED)

import pytest

from politesse.robots import Dialect, Quirk, RequestRate, RobotsTxt, TimeWindow
from politesse.verdict import Reason


def read(*lines: str) -> RobotsTxt:
    return RobotsTxt.parse("\n".join(lines), Dialect.CONNER_2)


@pytest.mark.clause("Conner 2.0, Request-rate")
@pytest.mark.parametrize(
    ("value", "rate"),
    [
        ("10/60", RequestRate(10, 60)),  # no more than 10 documents per 60 secs
        ("10/10m", RequestRate(10, 600)),  # no more than 10 documents per 10 mins
        ("20/1h", RequestRate(20, 3_600)),  # no more than 20 documents per hour
        ("1/10m 1300-1659", RequestRate(1, 600, TimeWindow(13 * 60, 16 * 60 + 59))),
        ("1/10m 1300 1659", RequestRate(1, 600, TimeWindow(13 * 60, 16 * 60 + 59))),
    ],
)
@pytest.mark.parametrize("version", ["", "Robot-version: 2.0.0"])
def test_request_rate_is_documents_per_time(value: str, rate: RequestRate, version: str) -> None:
    rules = read("User-agent: x", version, f"Request-rate: {value}", "Disallow: /a").rules_for("x")
    assert rules.request_rates == (rate,)


@pytest.mark.clause("Conner 2.0, Request-rate")
def test_of_several_rates_the_fewest_documents_per_unit_of_time_bind() -> None:
    rates = (
        read("User-agent: x", "Request-rate: 10/60", "Request-rate: 10/10m", "Request-rate: 20/1h")
        .rules_for("x")
        .request_rates
    )
    assert max(rate.interval_s for rate in rates) == 3_600 / 20


@pytest.mark.clause("Conner 2.0, Request-rate")
@pytest.mark.parametrize("value", ["9/banana", "0/60", "5/0", "-1/5", "", "10/60 2542-3199"])
def test_invalid_rate_is_ignored(value: str) -> None:
    robots = read("User-agent: x", f"Request-rate: {value}", "Disallow: /a")
    assert robots.lines[1].quirks == (Quirk.INVALID_VALUE,)
    assert robots.rules_for("x").request_rates == ()


@pytest.mark.clause("Conner 2.0, Visit-time")
@pytest.mark.parametrize("value", ["0600-0845", "0600 0845", "0600 - 0845"])
def test_visit_time_is_from_minute_to_minute(value: str) -> None:
    (window,) = read("User-agent: x", "Robot-version: 2.0.0", f"Visit-time: {value}").rules_for("x").visit_times
    hour_s = 3_600
    assert [window.contains(time * hour_s) for time in (5.99, 6.0, 8.75, 9.0)] == [False, True, True, False]


@pytest.mark.clause("Conner 2.0, Comment")
def test_all_comments_of_the_rule_set_are_returned_in_order() -> None:
    rules = read(
        *("User-agent: x", "Robot-version: 2.0.0", "Comment: we know you", "Disallow: /a", "Comment: write to us"),
        *("User-agent: y", "Comment: not you"),
    ).rules_for("x")
    assert rules.comments == ("we know you", "write to us")


@pytest.mark.clause("Conner 2.0, Visit-time")
def test_group_for_everybody_does_not_bind_a_named_robot() -> None:
    robots = read("User-agent: *", "Request-rate: 1/10m", "", "User-agent: mybot", "Disallow: /b")
    assert robots.rules_for("mybot").request_rates == ()
    assert robots.rules_for("other").request_rates == (RequestRate(1, 600),)


@pytest.mark.clause("Conner 2.0, Robot-version")
def test_versions_are_kept_with_their_groups_and_faults_with_their_lines() -> None:
    robots = read(
        *("User-agent: a", "Robot-version: 2.2.1", "Robot-version: 2.0.0", "Disallow: /x"),
        *("User-agent: b", "Robot-version: two", "Disallow: /x"),
        *("User-agent: c", "Disallow: /x", "Robot-version: 2.0.0"),
    )
    assert [group.version for group in robots.groups] == [(2, 2, 1), (1, 0, 0), (1, 0, 0)]
    assert [line.quirks for line in robots.lines if line.field == "robot-version"] == [
        (),
        (Quirk.MISPLACED_VERSION,),
        (Quirk.INVALID_VALUE,),
        (Quirk.MISPLACED_VERSION,),
    ]


@pytest.mark.clause("Conner 2.0, Allow and Disallow")
def test_deciding_line_is_reported() -> None:
    rules = read(
        "User-agent: x", "Robot-version: 2.0.0", "Allow: /a*", "Allow: /b", "Disallow: /a/c*", "Disallow: /a/c"
    ).rules_for("x")
    for target, reason, line in (
        ("/ab", Reason.ALLOW_RULE, 3),
        ("/b", Reason.ALLOW_RULE, 4),
        ("/a/cd", Reason.DISALLOW_RULE, 5),
        ("/a/c", Reason.DISALLOW_RULE, 6),
        ("/other", Reason.NOT_ALLOWED, 3),
    ):
        match = rules.match(target)
        assert match.rule is not None
        assert (match.reason, match.rule.line) == (reason, line), target
        assert match.allowed is (reason is Reason.ALLOW_RULE)

import pytest

from politesse.errors import ConfigurationError
from politesse.robots import RobotsTxt


@pytest.mark.clause("RFC 9309 2.2.1")
def test_product_token_is_found_in_the_identification_string_of_figure_1() -> None:
    # Figure 1: the token is a part of the header; a crawler that sends a browser's header tells its token itself.
    robots = RobotsTxt.parse("user-agent: ExampleBot\ndisallow: /\n")
    header = "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)"
    assert not robots.rules_for("ExampleBot").allowed("/a")
    with pytest.raises(ConfigurationError, match="Mozilla"):
        robots.rules_for(header)
    with pytest.raises(ConfigurationError, match="Mozilla"):
        robots.rules_for(["ExampleBot", header])


@pytest.mark.clause("RFC 9309 3")
def test_a_pattern_of_many_stars_costs_no_more_than_pattern_times_path() -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: /" + "*a" * 200 + "b").rules_for("ExampleBot")
    assert rules.allowed("/" + "a" * 8_192)
    assert rules.allowed("/" + "a" * 199 + "b")
    assert not rules.allowed("/" + "a" * 8_192 + "b")

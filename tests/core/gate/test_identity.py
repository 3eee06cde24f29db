import re
import warnings
from typing import Any

import pytest

from politesse import ConfigurationError, Gatekeeper
from politesse.errors import PolitesseWarning

UA = "ExampleBot/1.0 (+https://example.com/bot)"


@pytest.mark.clause("RFC 9309 2.2.1")
def test_token_is_the_first_product_of_the_user_agent() -> None:
    assert Gatekeeper(UA).identity.tokens == ("examplebot",)


def test_several_tokens_keep_their_order_and_make_one_name() -> None:
    identity = Gatekeeper(UA, token=["ExampleBot-Image", "ExampleBot"]).identity
    assert identity.tokens == ("examplebot-image", "examplebot")
    assert identity.agent == "examplebot-image,examplebot"


@pytest.mark.parametrize(
    "user_agent", ["", " ", "Bot/1.0\r\nX-Evil: y", "Bot/1.0\n", "Böt/1.0", " Bot/1.0", "Bot/1.0 ", "Bot\t/1.0"]
)
def test_user_agent_that_is_no_header_value_is_refused(user_agent: str) -> None:
    with pytest.raises(ConfigurationError, match="user_agent="):
        Gatekeeper(user_agent)


@pytest.mark.parametrize(
    "user_agent",
    [
        "Python/3.11 aiohttp/3.14.5",
        "python-requests/2.32",
        "Scrapy/2.14 (+https://scrapy.org)",
        "curl/8.0",
        "httpx/1",
        "python-httpx2/2.16.2",
    ],
)
def test_default_user_agent_of_a_library_is_refused(user_agent: str) -> None:
    with pytest.raises(ConfigurationError, match=r"library's default; .*, as in 'ExampleBot/1\.0 \("):
        Gatekeeper(user_agent, token="MyBot")


def test_mozilla_needs_a_token() -> None:
    browser_like = "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)"
    with pytest.raises(ConfigurationError, match="token="):
        Gatekeeper(browser_like)
    assert Gatekeeper(browser_like, token="ExampleBot").identity.tokens == ("examplebot",)


@pytest.mark.parametrize("token", ["", "Foo Bar", "Foobot/2.1", "Foobot*", " Foobot ", "ツ", "a,b", "*"])
def test_invalid_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="token="):
        Gatekeeper(UA, token=token)


def test_no_tokens_at_all_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        Gatekeeper(UA, token=[])


def test_token_with_digits_is_accepted_with_a_warning() -> None:
    with pytest.warns(PolitesseWarning, match="mj12bot"):
        assert Gatekeeper("MJ12bot/1.0 (+https://example.com)").identity.tokens == ("mj12bot",)


def test_warning_names_the_character_and_points_at_the_line_of_the_caller() -> None:
    with pytest.warns(PolitesseWarning, match="'bot_2' before '2'") as caught:
        gate = Gatekeeper("bot_2/1.0")
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(PolitesseWarning, match="'bot.x' before '.'") as caught:
        gate.agent(tokens="bot.x", user_agent="bot.x/1.0")
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("user_agent", ["*", "/1.0", "[x]/1.0", "(compatible)"])
def test_a_user_agent_whose_first_word_is_no_token_is_named_in_the_error(user_agent: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"user_agent={re.escape(repr(user_agent))}: its first word"):
        Gatekeeper(user_agent)
    assert Gatekeeper(user_agent + " ExampleBot", token="ExampleBot").identity.tokens == ("examplebot",)


def test_token_missing_from_the_user_agent_causes_a_warning() -> None:
    with pytest.warns(PolitesseWarning, match="occurs in the User-Agent"):
        Gatekeeper(UA, token="OtherBot")


def test_ordinary_identity_causes_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Gatekeeper(UA, token="examplebot")


@pytest.mark.parametrize("given", [None, 5, b"ExampleBot/1.0"])
def test_a_user_agent_that_is_no_str_is_refused_by_name(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"user_agent=.*: give a str"):
        Gatekeeper(given)

from __future__ import annotations

import pytest

from politesse.robots import RobotsTxt
from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize("row", rows("google-url-matching"))
def test_url_matching(row: PathMatch) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("google-order-of-precedence"))
def test_order_of_precedence(row: Access) -> None:
    check(row)


@pytest.mark.clause("Google robots.txt specification, Order of precedence for user agents")
def test_a_crawler_with_several_tokens_obeys_the_most_specific_group() -> None:
    news, both, everybody = (
        "user-agent: googlebot-news\ndisallow: /n\n",
        "user-agent: googlebot\ndisallow: /g\n",
        "user-agent: *\ndisallow: /e\n",
    )
    tokens = ["Googlebot-News", "Googlebot"]
    for body, denied in ((everybody + both + news, "/n"), (both + everybody, "/g"), (everybody, "/e")):
        rules = RobotsTxt.parse(body).rules_for(tokens)
        assert [path for path in ("/n", "/g", "/e") if not rules.allowed(path)] == [denied]

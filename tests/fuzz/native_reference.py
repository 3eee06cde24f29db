"""The compiled core and the reference.

Invariant: for all octets, in each dialect that the core serves and within any budget, both say that the same groups
bind a crawler, and give the same rules, the same answers about the crawler, and the same match of each target, or the
same error.

Input: as for ``matching``. The octet for the dialect chooses the budget, too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Final, TypeVar
from unittest.mock import patch

from politesse.errors import InvalidURL
from politesse.robots import Dialect, RobotsTxt, RuleSet, budget, native
from politesse.robots.budget import BUDGET
from tests.fuzz import matching
from tests.fuzz.rows import rows
from tests.fuzz.target import Target, choose, dictionary, text
from tests.support.pure_robots import pure_robots

T = TypeVar("T")

_MODES: Final = tuple(product((BUDGET, 1_500, 5_000, 600), (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019)))
_MOST_TARGETS: Final = 12
_SITE: Final = "https://example.com"


def check(octets: bytes) -> None:
    """Hold both to the invariant: on the target, and on targets made from the rules."""
    most_octets, dialect = choose(octets[:1], _MODES)
    agent, _, rest = octets[1:].partition(b"\n")
    path, _, body = rest.partition(b"\n")
    lines = rows(body, dialect)
    values = [line.value for line in lines if line.field in {b"allow", b"disallow"}]
    named = [line.value for line in lines if line.field == b"user-agent"]
    paths = [path, *(matching.near_target(value, path) for value in values[:_MOST_TARGETS])]
    with _bounded_to(most_octets):
        core, reference = RobotsTxt.parse(body, dialect), pure_robots(body, dialect)
        assert core.sitemaps == reference.sitemaps
        assert core.sitemap_lines.lines == reference.sitemap_lines.lines
        assert core.licenses == reference.licenses
        assert core.quirks == reference.quirks
        tokens = [matching.product_token(one).decode() for one in (agent, *named[:2])]
        for name in (*tokens, tokens[::-1]):
            assert core.binding(name) == reference.binding(name)
            assert list(map(repr, core.groups_for(name))) == list(map(repr, reference.groups_for(name)))
            _compare(core.rules_for(name), reference.rules_for(name), paths)


@contextmanager
def _bounded_to(octets: int) -> Iterator[None]:
    """Give each decision another budget, in both implementations."""
    with (
        patch.object(budget, "BUDGET", octets),
        patch.object(budget, "WORK", (octets, *budget.WORK[1:])),
        patch.object(native, "_dialect", native._dialect.__wrapped__),
    ):
        yield


def _compare(core: RuleSet, reference: RuleSet, paths: list[bytes]) -> None:
    assert type(core) is not type(reference), "the compiled core is not built"
    assert len(core) == len(reference)
    assert core.rules == reference.rules
    for name in ("crawl_delay", "request_rates", "visit_times", "comments"):
        assert getattr(core, name) == getattr(reference, name), name
    for path in paths:
        target = "/" + text(path).removeprefix("/")
        for url in (target, _SITE + target):
            match = _answer(core.match, url)
            assert match == _answer(reference.match, url), url
            assert _answer(core.allowed, url) == (match if isinstance(match, str) else match.allowed), url
        assert _answer(core.judge, target) == _answer(reference.judge, target), target
        assert _answer(core.usage, target) == _answer(reference.usage, target), target


def _answer(ask: Callable[[str], T], url: str) -> T | str:
    try:
        return ask(url)
    except InvalidURL as error:
        return str(error)


TARGET: Final = Target(
    "native_reference", check, matching.TARGET.words + dictionary("native_reference"), 1_024, seeds="matching"
)

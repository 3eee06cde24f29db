"""The weight of rule sets, by which the cache is bounded, beside the memory that tracemalloc sees."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Final

import pytest
from benchmarks.generator import generate

from politesse.robots import IMPLEMENTATION, RobotsTxt, RuleSet
from tests.support.tiers import first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_BYTES: Final = 500 * 1024
traced: Final = pytest.mark.skipif(
    IMPLEMENTATION == "native", reason="tracemalloc sees no C; test_native weighs the core"
)
HOSTILE: Final[dict[str, Callable[[int], str]]] = {
    "tiny rules": "Disallow:/{}\n".format,
    "tiny anchored rules": "Disallow:/{}$\n".format,
    "tiny wildcards": "Disallow:/*{}\n".format,
    "tiny wildcards with heads": "Disallow:/{}/*a\n".format,
    "tiny rules without a colon": "disallow /{}\n".format,
    "escaped rules": "Disallow:/%41é{}\n".format,
    "rules cut within an escape": "Disallow:/{}*%4*\n".format,
    "rules that end within an escape": "Disallow:/{}%4\n".format,
    "groups for everybody": "User-agent:*\nDisallow:/{}\n".format,
    "long rules": lambda place: f"Disallow:/{place}{'a' * 5_000}\n",
    "one long rule": lambda place: f"{'' if place else 'Disallow:/'}{'a' * 5_000}",
    "one long rule in Cyrillic": lambda place: f"{'' if place else 'Disallow:/'}{'я' * 5_000}",
    "rules of many stars": lambda place: f"Disallow:/{place}{'*abcd' * 500}\n",
    "one rule of many stars": lambda place: f"{'' if place else 'Disallow:/'}{'*abcd' * 500}",
    "comments": "Comment:{}\n".format,
    "rates": "Request-rate:1/{}\n".format,
    "visit times": "Visit-time:0000-2359\n".format,
    "sitemaps": "Sitemap:/{}\n".format,
    "usage preferences": "Content-Usage:/{} train-ai=n\n".format,
}


def ratio(bodies: Sequence[bytes]) -> float:
    """Return the weight of rule sets, divided by the memory that they take."""
    RobotsTxt.parse(bodies[0]).rules_for("examplebot")
    gc.collect()
    tracemalloc.start()
    kept: list[RuleSet] = [RobotsTxt.parse(body).rules_for("examplebot") for body in bodies]
    gc.collect()
    traced_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return sum(rules.weight_bytes for rules in kept) / traced_bytes


@traced
@pytest.mark.full
def test_weight_of_ordinary_files_is_the_memory_that_they_take() -> None:
    assert 0.85 < ratio(list(generate(500, 9309))) < 1.15


@traced
@pytest.mark.parametrize("made_of", first_of(2, HOSTILE))
def test_weight_of_a_hostile_file_is_hardly_less_than_its_memory(made_of: str) -> None:
    lines, size, place = ["User-agent: *\n"], 0, 0
    while size < MAX_BYTES:
        lines.append(HOSTILE[made_of](place))
        size += len(lines[-1])
        place += 1
    assert 0.9 < ratio(["".join(lines).encode()]) < 3


def test_rules_of_one_agent_do_not_keep_the_rest_of_the_file() -> None:
    others = "".join(f"User-agent: bot{number}\nDisallow: /{number}\n# {'x' * 100}\n" for number in range(2_000))
    body = f"{others}User-agent: *\nDisallow: /private\n".encode()
    assert len(body) > 200_000
    assert 0.5 < ratio([body] * 5) < 2
    assert RobotsTxt.parse(body).rules_for("examplebot").weight_bytes < 2_000

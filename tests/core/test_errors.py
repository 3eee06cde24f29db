"""Errors go from one process to another, as those of workers do."""

import builtins
import pickle
import re
from importlib import import_module

import aiohttp
import httpx
import httpx2
import requests

from politesse import Bound, Disallowed, Gatekeeper, NotYet, TooFar, errors
from politesse.integrations.httpx import RequestTooFar
from politesse.integrations.httpx2 import RequestTooFar as Httpx2RequestTooFar
from politesse.testing import ScriptedFetcher

TREE = re.compile(r"^    (?P<indent>[│ ├└─]*)(?P<name>\w+) *(?:[^\n]*\(also an? (?P<also>[\w.]+)\))?", re.MULTILINE)
ALSO: dict[str, type | tuple[type, ...]] = {
    "aiohttp.ClientError": aiohttp.ClientError,
    "aiohttp.InvalidURL": aiohttp.InvalidURL,
    "httpx.RequestError": (httpx.RequestError, httpx2.RequestError, requests.RequestException),
}


def drawn() -> dict[str, tuple[str, str]]:
    """Return for each exception of the drawing its parent and its other base."""
    found: dict[str, tuple[str, str]] = {}
    path: list[str] = []
    for line in TREE.finditer((errors.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]):
        del path[len(line["indent"]) // 4 :]
        found[line["name"]] = (path[-1] if path else "", line["also"] or "")
        path.append(line["name"])
    return found


def subclasses(base: type[Exception]) -> list[type[Exception]]:
    return [base, *(below for one in base.__subclasses__() for below in subclasses(one))]


def test_drawn_tree_of_exceptions_matches_the_classes() -> None:
    integrations = (f"integrations.{name}" for name in ("aiohttp", "httpx", "httpx2", "requests", "scrapy"))
    for module in ("audit", "queue", *integrations):
        import_module(f"politesse.{module}")
    tree = drawn()
    public = [
        one for one in subclasses(errors.PolitesseError) if one.__name__[0] != "_" and "tests" not in one.__module__
    ]
    assert {one.__name__ for one in public} == set(tree)
    for one in public[1:]:
        parent, also = tree[one.__name__]
        bases = {base.__name__ for base in one.__bases__}
        assert parent in bases
        assert len(one.__bases__) == 1 + bool(also)
        if also:
            assert issubclass(one, ALSO.get(also) or getattr(builtins, also))


def test_too_far_survives_a_pickle() -> None:
    for kind in (TooFar, RequestTooFar, Httpx2RequestTooFar):
        one = kind("example.com", NotYet(1_800_000_000.0, Bound.CRAWL_DELAY), 5.0)
        again = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own octets
        assert type(again) is kind
        assert str(again) == str(one)
        assert (again.host, again.max_wait_s) == ("example.com", 5.0)
        assert (again.not_yet.not_before, again.not_yet.bound_by) == (1_800_000_000.0, Bound.CRAWL_DELAY)


async def test_a_refusal_survives_a_pickle() -> None:
    fetcher = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private\n"})
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher) as gate:
        error = Disallowed(await gate.check("https://example.com/private"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own octets
    assert str(again) == str(error)
    assert again.verdict.rule is not None
    assert again.verdict.rule.line == 2

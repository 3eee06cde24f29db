"""What hypothesis draws: files and URLs over a small alphabet, so that rules match often and collide often.

One draw of octets drives all choices of an example. That is some ten times faster than a draw for each choice, which
buys ten times the examples, and it still shrinks: fewer octets and smaller ones choose less and simpler things.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

# Each row spells one thing in several ways: equal ones, and ones that only look so. A URL is made by spelling
# a rule anew, so that both kinds of pair meet all the time.
SPELLINGS: Final[tuple[tuple[str, ...], ...]] = (
    ("a", "%61", "A"),
    ("/", "/", "%2F", "%2f"),
    ("b", "b", "%62", ""),
    ("*", "*", "%2A", "%2a"),
    ("?", "?", "%3F", "??"),
    ("$", "%24", "$$"),
    ("~", "%7E", "%7e"),
    ("é", "%C3%A9", "%c3%a9", "e"),
    (":", "%3A", "%3a"),
    ("&", "%26", "="),
    ("[", "%5B", "]"),
    ("@", "%40"),
    (" ", "%20", "+"),
    ("%", "%25", "%zz", "%4", "%2", "%c", "%C3%A9", "%22", "%4%34"),
    ("<", "%3C", "%3c"),
    ("..", ".", "%2e%2E", "/./", "/.."),
    ("\\", "%5C", "|"),
    ("robots.txt", "%72obots.txt"),
    ("%00", "%7F", "%23"),
)
WILD: Final = frozenset({"*", "$"})
STOPGAPS: Final = ("", "a", "/", "ab", "?", "b/a", "%2F", "é", "*")
ENDS: Final = ("", "", "", "a", "/", "?", "?b", "#a", "$", "/..", "*")
STARTS: Final = ("/", "/", "/", "/", "*", "/*", "//", "/robots.txt", "", "a")
AGENTS: Final = (
    *("*", "FooBot", "foobot", "Bar-Bot", "baz_bot"),
    *("FooBot+(+http://foo.example/)", "Bar-Bot/2.1 (x)", "FooBoté", "+FooBot", "* foo", "*foo"),
)
NOISE: Final = (
    *("", "# a note", "\t # a note with a colon: /a", "Sitemap: https://example.com/s.xml", "Crawl-delay: 5"),
    *("Host: example.com", "no colon here", "Disallow[Content-Type]: image/jpeg", "Useragent: FooBot"),
    *("USER AGENT : *", "User  agent: FooBot"),
)
# What the other dialects tell apart: names that hold one another, versions, what is misread on purpose, blank lines.
DIALECT_AGENTS: Final = (
    *("*", "FooBot", "foobot/2.1", "Bar-Bot", "bot", "Foo", "FooBot-News (x)", "", "* foo"),
    *("Bot mailto:craftbot@yahoo.com", "Bar Bot/1.0", "foobot*", "Bot (x/y)", "Bot é", "FooBot+x"),
)
DIALECT_NOISE: Final = (
    *("", "", " \t", "# a note", "\t # a note with a colon: /a", "Crawl-delay: 5", "foo: bar", "no colon here"),
    *("Robot-version: 2.0.0", "Robot-version: 1.0.0", "Robot-version: 2.1.0", "Robot-version: x"),
    *("Request-rate: 1/5", "disallowed: /a", "Allowed: /a/b", "dissalow: /a/b", "useragent: FooBot", "disallow /b"),
    *("Allow: /a/index.html", "Allow: /index.htm", "Disallow: http://example.com/a"),
    *("Disallow: http://other.example/", "Disallow: a/../b", "Disallow: ?b"),
)
MARKS: Final = (b"", b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\xef")
LINE_ENDS: Final = ("\n", "\r\n", "\r")


class Choices:
    """Makes one choice from each octet; when they are used up, always the first."""

    def __init__(self, octets: bytes) -> None:
        self._octets = iter(octets)

    def number(self, below: int) -> int:
        return next(self._octets, 0) % below

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]


@dataclass(frozen=True)
class Path:
    """The path of a rule, as places in SPELLINGS, so that a URL can be made from it."""

    start: str
    places: tuple[int, ...]
    end: str
    text: str


def _path(choices: Choices) -> Path:
    places = tuple(choices.number(len(SPELLINGS)) for _ in range(choices.number(6)))
    start, end = choices.one_of(STARTS), choices.one_of(("", "", "", "$", "*", "*$"))
    text = start + "".join(choices.one_of(SPELLINGS[place]) for place in places) + end
    return Path(start, places, end, text)


def _rival(choices: Choices, path: Path) -> Path:
    """A path of the same length that matches what the other does: one character of it is a star."""
    place = choices.number(max(len(path.text), 1))
    return replace(path, text=path.text[:place] + "*" + path.text[place + 1 :])


def _paths(choices: Choices, most: int) -> list[Path]:
    paths = [_path(choices)]
    for _ in range(choices.number(most)):
        paths.append(_path(choices) if choices.number(3) else _rival(choices, choices.one_of(paths)))
    return paths


def _url(choices: Choices, paths: Sequence[Path]) -> str:
    """A target that is near one of the paths: its stars filled in, all else spelled anew."""
    path = choices.one_of(paths)
    pieces = [choices.one_of(STOPGAPS) if path.start in {"*", "/*"} else path.start.removeprefix("/")]
    for place in path.places:
        spelling = choices.one_of(SPELLINGS[place])
        pieces.append(choices.one_of(STOPGAPS) if spelling in WILD else spelling)
    return "/" + "".join(pieces) + choices.one_of(ENDS)


@dataclass(frozen=True)
class Case:
    """A file, and targets to ask about."""

    robots_txt: bytes
    targets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Case({self.robots_txt!r}, {self.targets!r})"


def _one_group(octets: bytes) -> Case:
    choices = Choices(octets)
    paths = _paths(choices, 6)
    lines = [f"{choices.one_of(('Disallow', 'Allow'))}: {path.text}" for path in paths]
    targets = tuple(_url(choices, paths) for _ in range(1 + choices.number(6)))
    return Case("\n".join(["User-agent: *", *lines]).encode(), targets)


def _many_groups(octets: bytes, agents: Sequence[str] = AGENTS, noise: Sequence[str] = NOISE) -> Case:
    choices = Choices(octets)
    paths = _paths(choices, 3)
    text = ""
    for _ in range(2 + choices.number(12)):
        line = choices.one_of(
            (
                f"User-agent: {choices.one_of(agents)}",
                f" user-AGENT\t: {choices.one_of(agents)} # {choices.one_of(agents)}",
                f"Disallow: {choices.one_of(paths).text}",
                f"aLLOW :{choices.one_of(paths).text}",
                "Disallow:",
                "Disallow: /",
                choices.one_of(noise),
            )
        )
        text += line + choices.one_of(LINE_ENDS)
    targets = tuple(_url(choices, paths) for _ in range(1 + choices.number(3)))
    return Case(choices.one_of(MARKS) + text.encode(), targets)


ONE_GROUP: Final = st.binary(min_size=140, max_size=140).map(_one_group)
"""One group for everybody with up to six rules, and up to six targets: for the matching."""

MANY_GROUPS: Final = st.binary(min_size=120, max_size=120).map(_many_groups)
"""Up to thirteen lines of groups, rules and noise: for the selection of groups."""

DIALECT_GROUPS: Final = st.binary(min_size=120, max_size=120).map(
    lambda octets: _many_groups(octets, DIALECT_AGENTS, DIALECT_NOISE)
)
"""The same, with what only some dialects tell apart."""

# What makes, ends and only looks like an escape.
ESCAPES: Final = ("%", "%", "4", "a", "2", "5", "*", "*", "%25", "%4F", "%ab", "z", "?", "%3A", "/", "%%", "%a", "")
SENT: Final = ("%", "4", "a", "25", "%4f", "%AB", "%254", "%25a", "z", "?", "%3a", "/", "%C3", "5", "%25")


def _percent_signs(octets: bytes) -> Case:
    choices = Choices(octets)
    lines = []
    for _ in range(1 + choices.number(3)):
        path = "".join(choices.one_of(ESCAPES) for _ in range(choices.number(7)))
        end = choices.one_of(("", "", "$", "*", "*$"))
        lines.append(f"{choices.one_of(('Disallow', 'Allow'))}: {choices.one_of(('/', '*'))}{path}{end}")
    pieces = ([choices.one_of(SENT) for _ in range(choices.number(8))] for _ in range(1 + choices.number(6)))
    targets = tuple("/" + "".join(some) for some in pieces)
    return Case("\n".join(["User-agent: *", *lines]).encode(), targets)


PERCENT_SIGNS: Final = st.binary(min_size=100, max_size=100).map(_percent_signs)
"""Patterns and targets of escapes, and of percent signs that are none."""

HOSTS: Final = (
    *("example.com", "EXAMPLE.com", "example.com.", "exämple.com", "BÜCHER.example", "xn--exmple-cua.com"),
    *("a_b.example", "日本語.jp", "☃.net", "faß.de", "127.0.0.1", "[::1]", "[2001:DB8:0:0::1]", "[::ffff:192.0.2.1]"),
    *("localhost", "1.2.3", "1.2.3.4.", "a..b", "ex%61mple.com", "www.m%C3%BCnich.com", "a%2Fb.com", "a%2561.com"),
    *("m%FC.de", "a\u3002b"),
)
PORTS: Final = ("", "", ":", ":80", ":443", ":0080", ":8080", ":0", ":65535", ":65536", ":x")
USERS: Final = ("", "", "", "user@", "user:pw@", "us%40er@", "a@b@", ":@")
SCHEMES: Final = ("http", "https", "HTTP", "Https")


def _absolute_url(octets: bytes) -> str:
    choices = Choices(octets)
    origin = f"{choices.one_of(SCHEMES)}://{choices.one_of(USERS)}{choices.one_of(HOSTS)}{choices.one_of(PORTS)}"
    if not choices.number(6):
        return origin + choices.one_of(("", "?a", "#a", "/"))
    return origin + _url(choices, [_path(choices)])


ABSOLUTE_URLS: Final = st.binary(min_size=40, max_size=40).map(_absolute_url)
"""URLs of http and https with all that a URL may have, a few of them not valid."""

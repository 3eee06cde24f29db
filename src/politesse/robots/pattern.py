"""The normal forms of paths and path patterns, and the comparison of a path with a pattern (``PathPattern``).

Both sides of a comparison get the same form (RFC 9309 2.2.2, RFC 3986 6.2.2). Octets that a URI cannot contain are
percent-encoded. Escapes of unreserved octets are decoded. Hex digits are upper case. Reserved octets stay as written.
In the query, escapes of the six characters ``: / ? @ [ ]`` are also decoded, because these need no escape there. A
literal ``*`` or ``$`` is written as ``%2A`` or ``%24``. The form is ASCII, so that its length in characters is its
length in octets. In a pattern a ``%`` without two hex digits does not change, and counts as one octet; see
``cut_at_stars``.

The dialects RFC9309 and KOSTER_2019 use this form, NORMALISED. Other dialects use other forms. DECODED decodes every
escape but ``%2F``. Two other forms decode no escape, so that different spellings of an octet stay different. WRITTEN
keeps escapes exactly as written. FOLDED only changes their hex digits to upper case. In each form, a plain target is
its own normal form.
"""

from __future__ import annotations

import re
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.checks import InvalidURL
from politesse._base.text import CONTROL, has_utf_8
from politesse.origin import MAX_URL_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_QUERY_LITERALS: Final = frozenset(b":/?@[]")
_KEPT: Final = r"A-Za-z0-9._~!&'()+,;=:@/?\[\]-"

_UP_TO: Final = f"{{0,{MAX_URL_LENGTH - 1}}}+"  # a longer target is not plain, and the slow path rejects it


# The repetition is possessive, so that a path that is not plain fails at its first escape without backtracking (105 ns
# instead of 240 to 430).
is_plain: Final = re.compile(f"[{_KEPT}]{_UP_TO}").fullmatch
"""Whether a target is already in normal form, except for dot segments; takes linear time."""

PLAIN: Final = frozenset(octet for octet in range(128) if is_plain(chr(octet)))
"""The octets that are the same in every normal form."""

match_simple_url: Final = re.compile(r"https?://[A-Za-z0-9.-]+(/[^\x00-\x20\x7f#]*)").fullmatch
"""Match a URL of which only the target, group 1, needs to be normalised, as in the compiled core."""

_query_escape: Final = re.compile("%(?:2F|3A|3F|40|5B|5D)", re.IGNORECASE).search  # the escapes of _QUERY_LITERALS

_TO_CHANGE = re.compile(r"%[0-9A-Fa-f]{2}|[^" + _KEPT + r"]", re.DOTALL)
# A "%" without two hex digits stays in a pattern, unless decoding the next escape would complete it to an escape:
# "%%32%46" is the text "%2F", so its first "%" is escaped.
_TO_CHANGE_IN_PATTERN = re.compile(r"%[0-9A-Fa-f]{2}|%(?=[0-9A-Fa-f]?%[0-9A-Fa-f]{2})|[^%" + _KEPT + r"]", re.DOTALL)
_TO_CHANGE_BUT_ESCAPES = re.compile(r"[^%*$" + _KEPT + r"]", re.DOTALL)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})(?P<cut>[0-9A-Fa-f]?(?=\*|\Z))?")
_DOT_SEGMENT = re.compile(r"/(?:\.|%2[Ee]){1,2}(?![^/])")
_STARS = re.compile(r"\*+")
_CUT_BEHIND_A_DIGIT = re.compile(r"%[013-9A-Fa-f](?=\*|\Z)")
_NONE: Final = " "
_MORE_IF_CUT: Final = 16  # as in _native/rules.c
_FIRST_WIDTH: Final = 64  # of the part of a target that is searched first for the spellings of a cut escape
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")


class Changes(dict[str, str]):
    """Maps each octet, and each escape, to its form; computed at the first use, because most are never used.

    Args:
        decoded: the octets whose escapes are decoded; the other escapes get upper-case hex digits.
        kept: characters that stay, besides those that are plain.
        to_change: finds the octets and escapes that may change.

    Attributes:
        decoded: see above.
        kept: the octets that stay.
    """

    def __init__(self, decoded: frozenset[int], kept: str = "", to_change: re.Pattern[str] = _TO_CHANGE) -> None:
        super().__init__({character: character for character in kept})
        self.decoded: frozenset[int] = decoded
        self.kept: frozenset[int] = PLAIN | frozenset(kept.encode())
        self._to_change = to_change

    def __missing__(self, text: str) -> str:
        octet = int(text[1:], 16) if len(text) > 1 else ord(text)
        form = chr(octet) if len(text) > 1 and octet in self.decoded else f"%{octet:02X}"
        self[text] = form
        return form

    def applied(self, text: str) -> str:
        """Return a text in this form. Each octet or escape is replaced once, so no text is decoded twice."""
        if is_plain(text) is not None:
            return text
        if not text.isascii():
            # Latin-1 makes each octet one character. In a pattern, an octet that is not UTF-8 is a lone surrogate.
            text = text.encode("utf-8", "surrogateescape").decode("latin-1")
        return self._to_change.sub(lambda matched: self[matched[0]], text)


class Form(NamedTuple):
    """A normal form of targets.

    The compiled core gets it as data. If no escape is decoded, the core takes it for FOLDED, otherwise for NORMALISED.

    Attributes:
        in_path: the changes in the path.
        in_query: the changes in the query.
    """

    in_path: Changes
    in_query: Changes

    def of_target(self, target: str) -> tuple[str, ...]:
        """Return the forms of a request target with which rules are compared, the normal form first.

        The fragment is dropped. Dot segments are resolved, including those with escaped dots.

        In the normal form, six characters that are escaped in the query may be decoded: ``: / ? @ [ ]``. A pattern
        without ``?`` may reach the query through a star. Such a pattern was normalised as a path, so its escapes of
        these characters were not decoded. It is also compared with the second form, in which the six characters stay
        escaped, so that equal escapes match. If none is escaped, there is no second form.

        Raises:
            InvalidURL: ``target`` exceeds MAX_URL_LENGTH, contains a control character, or cannot be encoded in UTF-8.
                Clients send such characters in different ways.
        """
        path, question, query = _components(target)
        before = _without_dots(self.in_path.applied(path)) + question
        normal = _bounded(before + self.in_query.applied(query))
        if self.in_path is self.in_query or _query_escape(query) is None:
            return (normal,)
        return normal, before + self.in_path.applied(query)


_but_slash = Changes(PLAIN - frozenset(b"/"))
_folded = Changes(frozenset(), "*$")
_written = Changes(frozenset(), "*$", _TO_CHANGE_BUT_ESCAPES)

NORMALISED: Final = Form(Changes(_UNRESERVED), Changes(_UNRESERVED | _QUERY_LITERALS))
"""The form of RFC 9309; see the module."""
DECODED: Final = Form(_but_slash, _but_slash)
"""Every escape but ``%2F`` is decoded once (draft-koster-robots-00 3.2.2).

Octets that a URI cannot contain are escaped, so that ``%252F`` does not become the slash that ``%2F`` protects."""
FOLDED: Final = Form(_folded, _folded)
"""The target as it is sent, with its escapes, but with hex digits in upper case."""
WRITTEN: Final = Form(_written, _written)
"""The target as it is sent, with its escapes exactly as written."""

_normalised_path = Changes(_UNRESERVED, "*", _TO_CHANGE_IN_PATTERN)
_normalised_query = Changes(_UNRESERVED | _QUERY_LITERALS, "*", _TO_CHANGE_IN_PATTERN)
_decoded = Changes(_but_slash.decoded, "*")

decode_prefix: Final = _but_slash.applied
"""Return the path of a rule in the form DECODED; ``*`` and ``$`` are literal."""
fold_pattern: Final = Changes(frozenset(), "*$%").applied
"""Return a path pattern in the form FOLDED; ``*`` and ``$`` do not change."""
keep_prefix: Final = _written.applied
"""Return the path of a rule in the form WRITTEN."""


def decode_pattern(value: str) -> str:
    """Return a path pattern in the form DECODED; each run of ``*`` becomes one ``*``."""
    return _STARS.sub("*", _decoded.applied(value))


def normalise_pattern(value: str) -> str:
    """Return the normal form of a path pattern; each run of ``*`` becomes one ``*``, and only a final ``$`` is kept.

    A trailing ``*`` or ``*$`` also stays: it does not change the matches, but its octets add to the length (RFC 9309
    2.2.2: the match with the most octets is the most specific).
    """
    if is_plain(value) is not None:
        return value  # four of five real patterns have no star, no anchor and no escape
    path, question, query = value.removesuffix("$").partition("?")
    pattern = _normalised_path.applied(path) + question + _normalised_query.applied(query)
    return _STARS.sub("*", pattern) + ("$" if value.endswith("$") else "")


def allowed_directory(pattern: str) -> str | None:
    """Return the pattern of the directory whose index page ``pattern`` allows, or None.

    google/robotstxt, HandleAllow: an Allow of ``/a/index.html``, or of any path that starts with ``/a/index.htm``,
    allows ``/a/``.
    """
    directory, slash, page = pattern.rpartition("/")
    return f"{directory}{slash}$" if slash and page.startswith("index.htm") else None


def _components(target: str) -> tuple[str, str, str]:
    """Return path, question mark and query of a target, without its fragment; non-ASCII characters are escaped.

    Raises:
        InvalidURL: see ``Form.of_target``.
    """
    _bounded(target)
    if target.isascii() and target.isprintable():
        return target.partition("#")[0].partition("?")
    if (control := CONTROL.search(target)) is not None:
        raise InvalidURL(target, f"holds the control character {control.group()!r}; percent-encode it")
    if not has_utf_8(target):
        raise InvalidURL(target, "holds a lone surrogate, which has no UTF-8 form")
    # The length is checked again, because escaping turns a character into up to twelve octets.
    return _bounded(_BEYOND_ASCII.sub(_escaped, target.partition("#")[0]), target).partition("?")


def _escaped(characters: re.Match[str]) -> str:
    return "%" + characters[0].encode().hex("%").upper()


def has_dot_segments(path: str) -> bool:
    """Whether a path, without its query, has dot segments, with plain or with escaped dots."""
    return _DOT_SEGMENT.search(path) is not None


def _bounded(sent: str, target: str = "") -> str:
    """Return ``sent`` unchanged.

    Raises:
        InvalidURL: ``sent`` exceeds MAX_URL_LENGTH; the error names ``target``.
    """
    if len(sent) > MAX_URL_LENGTH:
        problem = f"has a target of {len(sent)} octets; {MAX_URL_LENGTH} are more than servers take"
        raise InvalidURL(target or sent, problem)
    return sent


def _without_dots(path: str) -> str:
    """Resolve dot segments as clients do before sending, including segments with escaped dots."""
    if not ("/." in path or "/%2" in path) or not has_dot_segments(path):  # most paths have neither
        return path
    return without_dot_segments(_DOT_SEGMENT.sub(lambda dots: dots[0].replace("%2E", ".").replace("%2e", "."), path))


def without_dot_segments(path: str) -> str:
    """Return ``path`` with its dot segments removed, as clients do before sending (RFC 3986 5.2.4).

    Empty segments are kept.
    """
    segments = path.split("/")[1:]
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


class PathPattern:
    """A path pattern that is cut at its stars.

    A comparison never goes back: each segment is searched for after the previous segment, and if a segment is not
    found, the target does not match. So each octet of the target is compared at most once with each octet of a segment.

    A text may end within an escape, in ``%`` and one hex digit. A target has two spellings of such a text: ``%4`` at
    the end matches the start of an escape such as ``%4F``, and also the text ``%4``, which is ``%254`` in a target.
    (``%2`` needs only one spelling, because ``%25`` starts with ``%2``.)

    Args:
        form: the pattern as it is compared; see ``cut_at_stars``.

    Attributes:
        head: the text before the first star, without the digit of a cut escape; a target has to start with it.
        segments: the texts after the stars, in the same way; a literal, which is a pattern without a star, has none.
        digits: the digit of the cut escape at the end of each text, or a blank; empty if no escape is cut.
        anchored: whether the last text has to end the target.
        octets: the total length of all texts; no shorter target matches.
        costs: see ``reckoned``; None before the first comparison.
    """

    __slots__ = ("anchored", "costs", "digits", "head", "octets", "segments")

    def __init__(self, form: str) -> None:
        texts = form.removesuffix("$").split("*")
        is_cut = _CUT_BEHIND_A_DIGIT.search
        # One str for all texts takes the least memory.
        digits = "".join([text[-1] if is_cut(text) else _NONE for text in texts]) if "%" in form else ""
        self.digits: str = digits if digits.strip(_NONE) else ""
        if self.digits:
            texts = [text if digit == _NONE else text[:-1] for text, digit in zip(texts, digits, strict=True)]
        self.head: str = texts[0]
        self.segments: tuple[str, ...] = tuple(texts[1:])
        self.anchored: bool = form.endswith("$")
        self.octets: int = sum(map(len, texts))
        self.costs: tuple[int, int, str] | None = None

    def reckoned(self) -> tuple[int, int, str]:
        """Return the number of segments, the length of the longest, and the different octets with which they start.

        They are kept for the next comparison. A literal has none, and is not reckoned.
        A segment that ends in a cut escape counts as 17, and as 16 octets longer: its two spellings are searched for
        step by step.
        """
        more = [0 if digit == _NONE else _MORE_IF_CUT for digit in self.digits[1:]] or [0] * len(self.segments)
        longest = max(map(add, map(len, self.segments), more))
        firsts = "".join({segment[:1]: None for segment in self.segments})
        self.costs = len(more) + sum(more), longest, firsts
        return self.costs

    @property
    def pieces(self) -> tuple[object, ...]:
        """The objects that the pattern consists of, for the measure of its memory."""
        costs = (self.costs or self.reckoned()) if self.segments else ()  # as it will be once it is compared
        return (self, self.digits, self.segments, self.head, *self.segments, costs, *costs)

    def matches(self, target: str) -> bool:
        """Whether ``target``, in normal form, matches from its first octet (RFC 9309 2.2.2)."""
        if not target.startswith(self.head):
            return False
        position, end, segments = len(self.head), len(target), self.segments
        if self.anchored:  # RFC 9309 2.2.3: "$" is the end of the pattern, and of the target
            if not segments:
                return position == end
            if not target.endswith(segments[-1]):
                return False
            end -= len(segments[-1])
            segments = segments[:-1]
        if self.digits:
            return 0 <= self._behind_cut(target, segments) <= end
        for segment in segments:  # RFC 9309 2.2.3: "*" stands for any octets, or none
            # The leftmost match leaves the most room for later segments.
            position = target.find(segment, position)
            if position < 0:
                return False
            position += len(segment)
        return position <= end

    def _behind_cut(self, target: str, segments: Sequence[str]) -> int:
        """Return the index after the head and ``segments``, some of which end within an escape; -1 without a match."""
        texts = zip((self.head, *segments), self.digits, strict=False)  # the last digit may belong to an anchored text
        head, *others = [_spellings(text, digit) for text, digit in texts]
        position = max([len(spelling) for spelling in head if target.startswith(spelling)], default=-1)
        for spellings in others:
            if position < 0:
                break
            position = _behind(target, spellings, position)
        return position


def _spellings(text: str, digit: str) -> tuple[str, ...]:
    """Return the spellings of a text in targets; two if the text ends in ``%``, and the pattern had ``digit`` there."""
    return (text,) if digit == _NONE else (text + digit.upper(), f"{text}25{digit}")


def _behind(target: str, spellings: Sequence[str], position: int) -> int:
    """Return the index after the leftmost of some texts, from ``position`` on; -1 if ``target`` has none of them.

    The search widens by and by. So one pass of the target suffices for all segments, also if one spelling is missing.
    """
    width = _FIRST_WIDTH if len(spellings) > 1 else len(target)
    while True:
        end = position + width
        found = [(place, len(text)) for text in spellings if (place := target.find(text, position, end)) >= 0]
        if found or end >= len(target):
            # The leftmost match leaves the most room for later segments; the two spellings never overlap.
            return sum(min(found, default=(-1,)))
        width *= 4


def cut_at_stars(pattern: str) -> PathPattern:
    """Return a pattern, in normal form, as it is compared.

    A trailing ``*`` or ``*$`` is dropped, because it does not change the matches. A ``%`` without two hex digits
    becomes ``%25``, as in targets. An incomplete escape is an exception: a ``%``, alone or with one hex digit, before a
    star or at the end of the pattern. This ``%`` stays, and matches the start of any escape in the target.
    """
    unanchored = pattern.removesuffix("$")
    if unanchored.endswith("*"):
        pattern = unanchored.rstrip("*")
        if pattern.endswith("$"):
            pattern += "*"  # a literal dollar before the star must not become an anchor
    if "%" in pattern:
        pattern = _BARE_PERCENT.sub(lambda bare: "%25" if bare["cut"] is None else bare[0], pattern)
    if "*" not in pattern and _BARE_PERCENT.search(pattern) is not None:
        pattern += "*"  # the pattern ends within an escape, which goes on in the target
    return PathPattern(pattern)

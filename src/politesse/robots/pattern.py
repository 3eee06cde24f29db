"""The normal forms of paths and path patterns, and the comparison of a path with a pattern (``PathPattern``).

Both sides of a comparison get the same form (RFC 9309 2.2.2, RFC 3986 6.2.2). Octets that a URI cannot contain are
percent-encoded. Escapes of unreserved octets are decoded. Hex digits are upper case. Reserved octets stay as written.
In the query, escapes of the six characters ``: / ? @ [ ]`` are also decoded, because these need no escape there. A
literal ``*`` or ``$`` is written as ``%2A`` or ``%24``. The form is ASCII, so that its length in characters is its
length in octets. In a pattern a ``%`` without two hex digits does not change, and counts as one octet; see
``match_form``.

The dialects RFC9309 and KOSTER_2019 use this form. Other dialects use other forms. ``decode_target``, ``decode_prefix``
and ``decode_pattern`` decode every escape but ``%2F``. Two other forms decode no escape, so that different spellings of
an octet stay different. ``keep_target`` and ``keep_prefix`` keep escapes exactly as written. ``fold_target`` and
``fold_pattern`` only change their hex digits to upper case. In each form, a plain target is its own normal form.
"""

from __future__ import annotations

import re
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.checks import InvalidURL
from politesse._base.text import CONTROL, has_utf_8
from politesse.origin import MAX_URL_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


class _Changes(dict[str, str]):
    """Maps each octet, and each escape, to its form; computed at the first use, because most are never used.

    Args:
        decoded: the octets whose escapes are decoded; the other escapes get upper-case hex digits.
        kept: other characters that stay.
    """

    def __init__(self, decoded: frozenset[int], kept: str = "") -> None:
        super().__init__({character: character for character in kept})
        self._decoded = decoded

    def __missing__(self, text: str) -> str:
        octet = int(text[1:], 16) if len(text) > 1 else ord(text)
        form = chr(octet) if len(text) > 1 and octet in self._decoded else f"%{octet:02X}"
        self[text] = form
        return form

    def applied(self, text: str, to_change: re.Pattern[str] = _TO_CHANGE) -> str:
        """Return a text in this form. Each octet or escape is replaced once, so no text is decoded twice."""
        if is_plain(text) is not None:
            return text
        if not text.isascii():
            # Latin-1 makes each octet one character. In a pattern, an octet that is not UTF-8 is a lone surrogate.
            text = text.encode("utf-8", "surrogateescape").decode("latin-1")
        return to_change.sub(lambda matched: self[matched[0]], text)


_in_path = _Changes(_UNRESERVED)
_in_query = _Changes(_UNRESERVED | _QUERY_LITERALS)
_in_pattern_path = _Changes(_UNRESERVED, "*")
_in_pattern_query = _Changes(_UNRESERVED | _QUERY_LITERALS, "*")
_but_slash = _Changes(PLAIN - frozenset(b"/"))
_but_slash_and_star = _Changes(PLAIN - frozenset(b"/"), "*")
_folded = _Changes(frozenset(), "*$")
_folded_pattern = _Changes(frozenset(), "*$%")


class TargetForm(NamedTuple):
    """A normal form as data, for the compiled core.

    If no escape is decoded, it is the form of ``fold_target`` and ``fold_pattern``, otherwise the form of
    ``normalise_target`` and ``normalise_pattern``.

    Attributes:
        kept: octets that stay; any other octet is escaped.
        decoded_in_path: octets whose escapes are decoded in the path.
        decoded_in_query: octets whose escapes are decoded in the query.
    """

    kept: frozenset[int]
    decoded_in_path: frozenset[int] = frozenset()
    decoded_in_query: frozenset[int] = frozenset()


NORMALISED: Final = TargetForm(PLAIN, _UNRESERVED, _UNRESERVED | _QUERY_LITERALS)
FOLDED: Final = TargetForm(PLAIN | frozenset(b"*$"))


def normalise_target(target: str) -> str:
    """Return the normal form of a request target, without its fragment and dot segments; see the module.

    Raises:
        InvalidURL: ``target`` exceeds MAX_URL_LENGTH, contains a control character, or cannot be encoded in UTF-8.
            Clients send such characters in different ways.
    """
    path, question, query = _components(target)
    return _bounded(_without_dots(_in_path.applied(path)) + question + _in_query.applied(query))


def decode_target(target: str) -> str:
    """Return a request target with every escape but ``%2F`` decoded once (draft-koster-robots-00 3.2.2).

    Octets that a URI cannot contain are escaped, so that ``%252F`` does not become the slash that ``%2F`` protects.
    Dot segments are resolved, the fragment is dropped.

    Raises:
        InvalidURL: see ``normalise_target``.
    """
    path, question, query = _components(target)
    return _bounded(_without_dots(_but_slash.applied(path)) + question + _but_slash.applied(query))


def decode_prefix(value: str) -> str:
    """Return the path of a rule in the form of ``decode_target``; ``*`` and ``$`` are literal."""
    return _but_slash.applied(value)


def decode_pattern(value: str) -> str:
    """Return a path pattern in the form of ``decode_target``; each run of ``*`` becomes one ``*``."""
    return _STARS.sub("*", _but_slash_and_star.applied(value))


def fold_target(target: str) -> str:
    """Return a request target as it is sent, with its escapes, but with hex digits in upper case.

    Octets that a URI cannot contain are escaped; dot segments are resolved, including those with escaped dots; the
    fragment is dropped.

    Raises:
        InvalidURL: see ``normalise_target``.
    """
    return _as_sent(_folded.applied("".join(_components(target))))


def fold_pattern(value: str) -> str:
    """Return a path pattern in the form of ``fold_target``; ``*`` and ``$`` do not change."""
    return _folded_pattern.applied(value)


def keep_target(target: str) -> str:
    """Return a request target in the form of ``fold_target``, but with its escapes exactly as written."""
    return _as_sent(keep_prefix("".join(_components(target))))


def keep_prefix(value: str) -> str:
    """Return the path of a rule in the form of ``keep_target``."""
    return _folded.applied(value, _TO_CHANGE_BUT_ESCAPES)


def query_as_written(target: str) -> str | None:
    """Return the normal form of a target in which six characters stay escaped in the query; None if none is escaped.

    The six characters are ``: / ? @ [ ]``. A pattern without ``?`` may reach the query through a star. Such a pattern
    was normalised as a path, so its escapes of these characters were not decoded. It is also compared with this form,
    so that equal escapes match.
    """
    path, question, query = target.partition("#")[0].partition("?")
    if _query_escape(query) is None:
        return None
    return normalise_target(path) + question + _in_path.applied(query)


def normalise_pattern(value: str) -> str:
    """Return the normal form of a path pattern; each run of ``*`` becomes one ``*``, and only a final ``$`` is kept.

    A trailing ``*`` or ``*$`` also stays: it does not change the matches, but its octets add to the length (RFC 9309
    2.2.2: the match with the most octets is the most specific).
    """
    if is_plain(value) is not None:
        return value  # four of five real patterns have no star, no anchor and no escape
    path, question, query = value.removesuffix("$").partition("?")
    pattern = (
        _in_pattern_path.applied(path, _TO_CHANGE_IN_PATTERN)
        + question
        + _in_pattern_query.applied(query, _TO_CHANGE_IN_PATTERN)
    )
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
        InvalidURL: see ``normalise_target``.
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


def _as_sent(target: str) -> str:
    """Resolve dot segments as clients do before sending, including segments with escaped dots."""
    path, question, query = target.partition("?")
    if has_dot_segments(path):
        path = _DOT_SEGMENT.sub(lambda matched: matched[0].replace("%2E", ".").replace("%2e", "."), path)
        path = without_dot_segments(path)
    return _bounded(path + question + query)


def _without_dots(path: str) -> str:
    return without_dot_segments(path) if "/." in path else path


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


def _no_other_form(_: str) -> None:
    """Return None; pickle cannot copy a lambda."""


class Matching(NamedTuple):
    """How paths are compared.

    Attributes:
        dialect: name of the dialect.
        normalise_target: returns a request target in the form that is compared; a plain target is already in this form.
        normalise_pattern: returns the path of a rule in the same form.
        query_as_written: returns another form of a target, with which wildcards are also compared, or None.
        leading: the characters with which the path of a rule may start; other paths match no target.
        implied_allow: returns the path of a second Allow that an Allow implies, or None.
        empty_disallow_ends: whether an empty Disallow allows all targets that no earlier rule matches, in dialects that
            try rules in order.
        of_site: whether rules may be URLs, which apply only to their own site.
        form: ``normalise_target`` as data, if the compiled core supports the dialect; else None.
    """

    dialect: str
    normalise_target: Callable[[str], str]
    normalise_pattern: Callable[[str], str]
    query_as_written: Callable[[str], str | None] = _no_other_form
    leading: tuple[str, ...] = ("/", "*")  # RFC 9309 2.2 permits only "/", but 5.1 uses "*.gif$"
    implied_allow: Callable[[str], str | None] | None = None
    empty_disallow_ends: bool = False
    of_site: bool = False
    form: TargetForm | None = None

    def forms(self, target: str) -> tuple[str, ...]:
        """Return the forms of a request target with which rules are compared, the normal form first.

        Raises:
            InvalidURL: see ``RuleSet.match``.
        """
        normal, written = self.normalise_target(target), self.query_as_written(target)
        return (normal,) if written is None else (normal, written)


class PathPattern:
    """A path pattern that is cut at its stars.

    A comparison never goes back: each segment is searched for after the previous segment, and if a segment is not
    found, the target does not match. So each octet of the target is compared at most once with each octet of a segment.

    A text may end within an escape, in ``%`` and one hex digit. A target has two spellings of such a text: ``%4`` at
    the end matches the start of an escape such as ``%4F``, and also the text ``%4``, which is ``%254`` in a target.
    (``%2`` needs only one spelling, because ``%25`` starts with ``%2``.)

    Args:
        form: a result of ``match_form``.

    Attributes:
        head: the text before the first star, without the digit of a cut escape; a target has to start with it.
        segments: the texts after the stars, in the same way; a literal, which is a pattern without a star, has none.
        digits: the digit of the cut escape at the end of each text, or a blank; empty if no escape is cut.
        anchored: whether the last text has to end the target.
        octets: the total length of all texts; no shorter target matches.
        costs: the number of segments, and the length of the longest. 17, and 16 octets more, for a segment that
            ends in a cut escape: its two spellings are searched for step by step.
    """

    __slots__ = ("anchored", "digits", "head", "octets", "segments")

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

    @property
    def costs(self) -> tuple[int, int]:
        """See the class."""
        if not self.digits:
            return len(self.segments), max(map(len, self.segments))
        more = [0 if digit == _NONE else _MORE_IF_CUT for digit in self.digits[1:]]
        return len(more) + sum(more), max(map(add, map(len, self.segments), more))

    @property
    def is_prefix(self) -> bool:
        """Whether each target that starts with the head matches."""
        return not self.segments and not self.anchored

    @property
    def pieces(self) -> tuple[object, ...]:
        """The objects that the pattern consists of, for the measure of its memory."""
        return (self, self.digits, self.segments, self.head, *self.segments)

    def matches(self, target: str) -> bool:
        """Whether ``target``, in normal form, matches from its first octet (RFC 9309 2.2.2)."""
        if not target.startswith(self.head):
            return False
        if self.digits:
            return self._matches_cut(target)
        position, end, segments = len(self.head), len(target), self.segments
        if self.anchored:  # RFC 9309 2.2.3: "$" is the end of the pattern, and of the target
            if not segments:
                return position == end
            if not target.endswith(segments[-1]):
                return False
            end -= len(segments[-1])
            segments = segments[:-1]
        for segment in segments:  # RFC 9309 2.2.3: "*" stands for any octets, or none
            # The leftmost match leaves the most room for later segments.
            position = target.find(segment, position)
            if position < 0:
                return False
            position += len(segment)
        return position <= end

    def _matches_cut(self, target: str) -> bool:
        if self.anchored and not target.endswith(self.segments[-1]):
            return False
        texts = (self.head, *self.segments)
        head, *segments = [_spellings(text, digit) for text, digit in zip(texts, self.digits, strict=True)]
        position = max([len(spelling) for spelling in head if target.startswith(spelling)], default=-1)
        end = len(target)
        if self.anchored:
            end -= len(segments.pop()[0])
        for segment in segments:
            if position < 0:
                return False
            position = _behind(target, segment, position)
        return 0 <= position <= end


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


def match_form(pattern: str) -> str:
    """Return the text with which targets are compared, from ``pattern`` in normal form.

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
        return _BARE_PERCENT.sub(lambda bare: "%25" if bare["cut"] is None else bare[0], pattern)
    return pattern


def cut_at_stars(pattern: str) -> PathPattern:
    """Return a pattern, in normal form, as it is compared."""
    form = match_form(pattern)
    if "*" not in form and _BARE_PERCENT.search(form) is not None:
        form += "*"  # the pattern ends within an escape, which goes on in the target
    return PathPattern(form)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate, which pickle can copy, that matches targets with ``pattern``, in the same normal form.

    Use this function for a single pattern; a rule set compiles all rules of an agent together.
    """
    return cut_at_stars(pattern).matches

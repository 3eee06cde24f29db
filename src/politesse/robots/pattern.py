"""The normal form in which paths are compared, and wildcard patterns that are matched without backtracking.

Both sides of a comparison are brought to one form (RFC 9309 2.2.2, RFC 3986 6.2.2): octets that a URI cannot hold
raw are percent-encoded, unreserved ones are decoded, hex digits are upper case, reserved ones stay as written. In the
query the six characters that are legal there raw (``: / ? @ [ ]``) equal their escapes. ``*`` and ``$`` that are
meant literally are ``%2A`` and ``%24``. The form is ASCII, so that its length in characters is its length in octets.
In a pattern a ``%`` without two hex digits stays as it is and counts as one octet; ``match_form`` says what it matches.

That is the form of RFC 9309. Other dialects have others: one in which every escape but that of the slash is decoded
(``decode_target``, ``decode_prefix``, ``decode_pattern``), and two in which none is, so that the spellings of one
octet differ (``keep_target``, ``keep_prefix``) but for the case of the hex digits (``fold_target``, ``fold_pattern``).
A plain target is its own normal form in all of them.

Worst case: a match reads each octet of the target at most once for each octet of the pattern. ``str.find`` runs in
linear time for long needles and in needle times haystack for short ones, each segment searches only behind the one
before, and the first segment that is not found ends the match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.errors import InvalidURL
from politesse.origin import MAX_URL_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_QUERY_LITERALS: Final = frozenset(b":/?@[]")
_ASCII: Final = bytes(range(128))
_KEPT: Final = r"A-Za-z0-9._~!&'()+,;=:@/?\[\]-"

_UP_TO: Final = f"{{0,{MAX_URL_LENGTH - 1}}}"  # what is longer is not plain, and refused on the slow road

is_plain: Final = re.compile(f"[{_KEPT}]{_UP_TO}").fullmatch
"""Whether a target is in normal form already, but for dot segments: a constant pattern, linear in the target."""

match_plain_url: Final = re.compile(rf"https?://[A-Za-z0-9.-]+(/[{_KEPT}]{_UP_TO})").fullmatch
"""Match an URL whose target, group 1, is plain; a third of what the validating split costs."""

match_simple_url: Final = re.compile(r"https?://[A-Za-z0-9.-]+(/[^\x00-\x20\x7f#]*)").fullmatch
"""Match an URL of which only the target, group 1, needs work."""

# The escapes that browsers make of what is not ASCII stay as they are, in path and query alike.
_is_plain_or_escaped: Final = re.compile(f"[%{_KEPT}]{_UP_TO}").fullmatch
_any_other_escape: Final = re.compile("%(?!20|[89A-F][0-9A-F])").search
_query_escape: Final = re.compile("%(?:2F|3A|3F|40|5B|5D)", re.IGNORECASE).search  # of _QUERY_LITERALS
_is_plain_pattern: Final = re.compile(rf"[*{_KEPT}]*\$?").fullmatch

_TO_CHANGE = re.compile(rb"%[0-9A-Fa-f]{2}|[^" + _KEPT.encode() + rb"]", re.DOTALL)
_TO_CHANGE_IN_PATTERN = re.compile(rb"%[0-9A-Fa-f]{2}|[^*" + _KEPT.encode() + rb"]", re.DOTALL)
_TO_CHANGE_OR_FOLD = re.compile(rb"%[0-9A-Fa-f]{2}|[^*$" + _KEPT.encode() + rb"]", re.DOTALL)
# The same two for patterns in which a "%" without two hex digits stays. One that would become an escape by what is
# decoded behind it ("%%32%46" is the text "%2F") is escaped.
_TO_CHANGE_BUT_BARE_PERCENT = re.compile(
    rb"%[0-9A-Fa-f]{2}|%(?=[0-9A-Fa-f]?%[0-9A-Fa-f]{2})|[^%*" + _KEPT.encode() + rb"]", re.DOTALL
)
_TO_FOLD_BUT_BARE_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}|[^%*$" + _KEPT.encode() + rb"]", re.DOTALL)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})(?P<cut>[0-9A-Fa-f]?(?=\*|\Z))?")
_CUT_BEHIND_A_DIGIT = re.compile(r"%[013-9A-Fa-f](?=\*|\Z)")
_TO_CHANGE_OR_KEEP = re.compile(rb"[^%*$" + _KEPT.encode() + rb"]", re.DOTALL)
_DOT_SEGMENT = re.compile(r"/(?:\.|%2[Ee]){1,2}(?![^/])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_STARS = re.compile(r"\*+")


def _replacements(decoded: frozenset[int]) -> Callable[[re.Match[bytes]], bytes]:
    """Return what each octet or escape that is not kept becomes, as a look-up: one pass, nothing decoded twice."""
    table = {bytes([octet]): b"%%%02X" % octet for octet in range(256)}
    for high in b"0123456789ABCDEFabcdef":
        for low in b"0123456789ABCDEFabcdef":
            octet = int(bytes([high, low]), 16)
            table[b"%%%c%c" % (high, low)] = bytes([octet]) if octet in decoded else b"%%%02X" % octet
    return lambda matched: table[matched[0]]


_in_path = _replacements(_UNRESERVED)
_in_query = _replacements(_UNRESERVED | _QUERY_LITERALS)
_but_slash = _replacements(frozenset(octet for octet in range(128) if is_plain(chr(octet))) - frozenset(b"/"))
_upper_case = _replacements(frozenset())


def normalise_target(target: str) -> str:
    """Return the normal form of a request target: no fragment, no dot segments, escapes by component.

    Raises InvalidURL for control characters and for text that has no UTF-8 form, because clients disagree about what
    they would send for it, and for what is longer than MAX_URL_LENGTH.
    """
    if "/." not in target and _is_plain_or_escaped(target) is not None and _any_other_escape(target) is None:
        return target
    path, question, query = _components(target)
    if (path := _normalise(path, _TO_CHANGE, _in_path)) and "/." in path:
        path = without_dot_segments(path)
    return _bounded(path + question + _normalise(query, _TO_CHANGE, _in_query))


def decode_target(target: str) -> str:
    """Return a request target with every escape decoded once but that of the slash (draft-koster-robots-00 3.2.2).

    What no URI holds raw is escaped, so that ``%252F`` does not become the slash that ``%2F`` protects. Dot segments
    are resolved, the fragment is dropped. Raises InvalidURL as ``normalise_target`` does.
    """
    path, question, query = _components(target)
    path, query = _normalise(path, _TO_CHANGE, _but_slash), _normalise(query, _TO_CHANGE, _but_slash)
    return _bounded((without_dot_segments(path) if "/." in path else path) + question + query)


def decode_prefix(value: str) -> str:
    """Return the path of a rule in the form of ``decode_target``; a star and a dollar are themselves."""
    return _normalise(value, _TO_CHANGE, _but_slash)


def decode_pattern(value: str) -> str:
    """Return a path pattern in the form of ``decode_target``, with ``*`` kept and runs of it folded."""
    return _STARS.sub("*", _normalise(value, _TO_CHANGE_IN_PATTERN, _but_slash))


def fold_target(target: str) -> str:
    """Return a request target as it is sent, its escapes kept, their hex digits in upper case.

    What no URI holds raw is escaped; dot segments are resolved, be their dots escaped; the fragment is dropped. Raises
    InvalidURL as ``normalise_target`` does.
    """
    path, question, query = _components(target)
    return _as_sent(_normalise(path + question + query, _TO_CHANGE_OR_FOLD, _upper_case))


def fold_pattern(value: str) -> str:
    """Return a path pattern in the form of ``fold_target``; its stars and dollars are left as they stand."""
    return _normalise(value, _TO_FOLD_BUT_BARE_PERCENT, _upper_case)


def keep_target(target: str) -> str:
    """Return a request target as it is sent, its escapes kept as they are written; else as ``fold_target``."""
    path, question, query = _components(target)
    return _as_sent(_normalise(path + question + query, _TO_CHANGE_OR_KEEP, _upper_case))


def keep_prefix(value: str) -> str:
    """Return the path of a rule in the form of ``keep_target``."""
    return _normalise(value, _TO_CHANGE_OR_KEEP, _upper_case)


def no_other_form(_: str) -> None:
    """Tell of a target that it is compared in one form only."""


def query_as_written(target: str) -> str | None:
    """Return the normal form of a target with the escapes of its query kept; None where that makes no difference.

    A pattern that reaches into the query by its star alone knows of no query, and so its escapes were kept too: octets
    that are the same have to match.
    """
    path, question, query = target.partition("#")[0].partition("?")
    if _query_escape(query) is None:
        return None
    return normalise_target(path) + question + _normalise(query, _TO_CHANGE, _in_path)


def normalise_pattern(value: str) -> str:
    """Return the normal form of a path pattern: ``*`` kept, runs of it folded, ``$`` kept at the very end only.

    A trailing ``*`` or ``*$`` stays too: it changes nothing about what is matched, but its octets count (RFC 9309
    2.2.2: the most specific match is the one with the most octets).
    """
    if is_plain(value) is not None:
        return value  # four of five patterns in the field: no star, no anchor, no escape
    anchored = value.endswith("$")
    pattern = value.removesuffix("$")
    if _is_plain_pattern(value) is None:
        path, question, query = pattern.partition("?")
        pattern = (
            _normalise(path, _TO_CHANGE_BUT_BARE_PERCENT, _in_path)
            + question
            + _normalise(query, _TO_CHANGE_BUT_BARE_PERCENT, _in_query)
        )
    if "**" in pattern:
        pattern = _STARS.sub("*", pattern)
    return pattern + "$" if anchored else pattern


def allowed_directory(pattern: str) -> str | None:
    """Return the pattern of the directory whose index page ``pattern`` allows; None if it allows no index page.

    google/robotstxt, HandleAllow: an Allow of ``/a/index.html``, or of any path that starts like it, allows ``/a/``.
    """
    directory, slash, page = pattern.rpartition("/")
    return f"{directory}{slash}$" if slash and page.startswith("index.htm") else None


def match_form(pattern: str) -> str:
    """Return what ``pattern``, in normal form, matches: without what matches nothing more, its bare ``%`` resolved.

    A star at the end is dropped, and so is ``*$``. A ``%`` without two hex digits is an octet. Targets hold no such
    octet: one that was written so is ``%25`` in them. So it is ``%25`` here, too; but where the pattern ends behind
    it, or behind one more hex digit, or goes on with a star, it is the start of whatever escape the target has there,
    and stays.
    """
    unanchored = pattern.removesuffix("$")
    if unanchored.endswith("*"):
        pattern = unanchored.rstrip("*")
        if pattern.endswith("$"):
            pattern += "*"  # where a dollar may stand raw within a pattern, it shall not become an anchor
    if "%" in pattern:
        return _BARE_PERCENT.sub(lambda bare: "%25" if bare["cut"] is None else bare[0], pattern)
    return pattern


def is_literal(form: str) -> bool:
    """Whether what ``match_form`` returned is one text, to compare targets with: no star, no start of an escape."""
    return "*" not in form and ("%" not in form or _BARE_PERCENT.search(form) is None)


def has_two_forms(pattern: str) -> bool:
    """Whether a target is compared with ``pattern``, in normal form, as it was written, too; see ``query_as_written``.

    So it is where the pattern may come to the query without knowing it, by a star, or ends within an escape.
    """
    return not is_literal(match_form(pattern))


def wildcard_of(form: str) -> Wildcard:
    """Return the wildcard of what ``match_form`` returned and ``is_literal`` denied."""
    if "*" not in form:
        form += "*"  # a pattern that ends within an escape
    return _CutEscapes(form) if _CUT_BEHIND_A_DIGIT.search(form) is not None else Wildcard(form)


def _normalise(text: str, to_change: re.Pattern[bytes], change: Callable[[re.Match[bytes]], bytes]) -> str:
    if is_plain(text) is not None:
        return text
    octets = text.encode("utf-8", "surrogateescape")  # in a pattern an octet that is not UTF-8 stands as a surrogate
    return to_change.sub(change, octets).decode("ascii")


def _components(target: str) -> tuple[str, str, str]:
    """Return path, question mark and query without the fragment; raises InvalidURL for what nobody could send."""
    _bounded(target)
    if (control := _CONTROL.search(target)) is not None:
        raise InvalidURL(target, f"holds the control character {control.group()!r}; percent-encode it")
    try:
        target.encode()
    except UnicodeEncodeError:
        raise InvalidURL(target, "holds a lone surrogate, which has no UTF-8 form") from None
    sent = target.partition("#")[0]
    if not sent.isascii():
        # Before any work: one character may be four octets, and each of them three once it is escaped.
        octets = sent.encode()
        _check_octets(target, len(octets) + 2 * len(octets.translate(None, _ASCII)))
    return sent.partition("?")


def has_dot_segments(path: str) -> bool:
    """Whether a path (without query) holds segments that clients resolve before they send, be their dots escaped."""
    return _DOT_SEGMENT.search(path) is not None


def _bounded(target: str) -> str:
    """Return ``target``; raises InvalidURL for one that is longer than servers take, be it as it is sent."""
    _check_octets(target, len(target))
    return target


def _check_octets(target: str, octets: int) -> None:
    if octets > MAX_URL_LENGTH:
        raise InvalidURL(target, f"has a target of {octets} octets; {MAX_URL_LENGTH} are more than servers take")


def _as_sent(target: str) -> str:
    """Resolve dot segments whose dots may be escaped: clients decode those before they send."""
    path, question, query = target.partition("?")
    if has_dot_segments(path):
        path = _DOT_SEGMENT.sub(lambda matched: matched[0].replace("%2E", ".").replace("%2e", "."), path)
        path = without_dot_segments(path)
    return _bounded(path + question + query)


def without_dot_segments(path: str) -> str:
    """RFC 3986 5.2.4, as clients do before they send; empty segments are kept."""
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


class Wildcard:
    """A pattern in normal form with a ``*`` inside, cut at its stars.

    Attributes:
        head: what the target must start with.
        needle: the longest of the other segments; a target without it cannot match.
        searches: how many segments a match searches for at most.
        restarts: for how many of them a search may have to go on behind each ``%`` of the target.
    """

    __slots__ = ("_anchored", "_last", "_middle", "head", "needle", "restarts", "searches")

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$")
        self.head, *middle, self._last = pattern.removesuffix("$").split("*")
        self._middle = tuple(middle)
        self.needle = max((*middle, self._last), key=len)
        self.searches = len(middle) + 1
        self.restarts = 0

    def matches(self, target: str, find: Callable[[str, int], int] | None = None) -> bool:
        """Whether ``target``, in normal form, matches from its first octet.

        ``find`` searches the target for a segment from a place on, as ``target.find`` does.
        """
        if not target.startswith(self.head) or (self._anchored and not target.endswith(self._last)):
            return False
        position = len(self.head)
        if find is None:
            find = target.find
        for segment in self._middle:
            # The leftmost place is as good as any: what follows has the more room.
            position = find(segment, position)
            if position < 0:
                return False
            position += len(segment)
        if self._anchored:
            return len(target) - len(self._last) >= position
        return find(self._last, position) >= 0


class _CutEscapes(Wildcard):
    """One with segments that end in ``%`` and one hex digit, for which there are two spellings in a target.

    ``%4`` is the start of ``%4F``, and also the text that targets hold as ``%254``. (For ``%2`` one spelling does:
    ``%25`` starts with it.) What is searched for is what both have in common, so that each place is passed once.
    """

    __slots__ = ("_tails",)

    def __init__(self, form: str) -> None:
        super().__init__(_CUT_BEHIND_A_DIGIT.sub("%", form))
        self._tails = tuple(map(_tails, form.removesuffix("$").split("*")))
        self.restarts = sum(len(tails) > 1 for tails in self._tails[1:])

    def matches(self, target: str, find: Callable[[str, int], int] | None = None) -> bool:
        """Do as ``Wildcard.matches`` does."""
        if not target.startswith(self.head) or (self._anchored and not target.endswith(self._last)):
            return False
        if find is None:
            find = target.find
        position = _behind(target, len(self.head), self._tails[0])
        segments = self._middle if self._anchored else (*self._middle, self._last)
        for segment, tails in zip(segments, self._tails[1:], strict=False):
            if position < 0:
                return False
            # The leftmost place is as good as any: two spellings that overlap do not exist.
            place = find(segment, position)
            while place >= 0 and (position := _behind(target, place + len(segment), tails)) < 0:
                place = find(segment, place + 1)
            if place < 0:
                return False
        return position >= 0 and (not self._anchored or position <= len(target) - len(self._last))


def _tails(segment: str) -> tuple[str, ...]:
    """Return what may stand behind the part of a segment that is searched for."""
    if _CUT_BEHIND_A_DIGIT.search(segment) is None:
        return ("",)
    return (segment[-1].upper(), f"25{segment[-1]}")


def _behind(target: str, place: int, tails: tuple[str, ...]) -> int:
    """Return the place behind the one of ``tails`` that stands at ``place``, -1 for none."""
    if not target.startswith(tails, place):  # once for each "%" of a target: no generator
        return -1
    return place + len(tails[0] if target.startswith(tails[0], place) else tails[1])


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a target matches ``pattern``, both in one normal form; for patterns that stand alone.

    Rules that compete are compiled together, by the rule sets.
    """
    form = match_form(pattern)
    if not is_literal(form):
        return wildcard_of(form).matches
    if form.endswith("$"):
        return form[:-1].__eq__
    return lambda target: target.startswith(form)

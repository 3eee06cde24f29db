"""Which start tags a page of HTML has, and which of them lie in its HEAD: one pass, in linear time. Pure.

A parser that builds the tree takes quadratic time for half a megabyte of ``<div>``, and quadratic memory for misnested
``<b>``. So this tells the tags from text, comments and scripts (WHATWG HTML 13.2.5), keeps the few that are asked for,
and leaves it to a parser to read their attributes. What it needs to know of the tree is in ``reading``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from politesse.page.reading import FOREIGN_ROOTS, MOVING_TAGS, TEXT_ELEMENTS, Reading

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

_Way = TypeVar("_Way")

BLANKS: Final = "\t\n\f\r "
"""ASCII whitespace, as HTML has it."""

# WHATWG HTML 13.2.5.6 to 13.2.5.40. Every repetition is possessive, so that a tag is read once, whatever it holds; a
# quote that is not closed swallows the rest of the page, as in browsers.
_ATTRIBUTE: Final = r"""
    (?:[\t\n\f\r /]++
      |(?:=[^\t\n\f\r />=]*+|[^\t\n\f\r />=]++)
       (?:[\t\n\f\r ]*+=[\t\n\f\r ]*+
          (?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\t\n\f\r >"'][^\t\n\f\r >]*+)?+
       )?+
    )"""
_ONE_ATTRIBUTE = re.compile(_ATTRIBUTE, re.VERBOSE)
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")  # 13.2.5.6: any other "<" is text
_TAG_OPEN = re.compile(r"</?[A-Za-z]")
_TAG = re.compile(rf"<(/?)([A-Za-z][^\t\n\f\r />]*+)({_ATTRIBUTE}*+)>", re.VERBOSE)
# As many as a parser, who compares each with each, has an easy time with; the blanks between them count, too.
_FIRST_ATTRIBUTES = re.compile(rf"{_ATTRIBUTE}{{0,512}}+", re.VERBOSE)
_COMMENT_END = re.compile(r"--!?>")
# Names are compared as ASCII (13.2.5): U+017F is no "s", as it is to Unicode's rules of case.
_IGNORE_CASE: Final = re.IGNORECASE | re.ASCII
_TEXT_END: Final = {
    name: re.compile(rf"</{name}[\t\n\f\r />]", _IGNORE_CASE) for name in TEXT_ELEMENTS - {"plaintext", "script"}
}
# 13.2.5.18, 13.2.5.19: the dashes of "<!--" lead to the escaped dash dash state, so they count for "-->" as well.
_SCRIPT_TOKEN = re.compile(r"<!(?=--)|-->|<(/?)script[\t\n\f\r />]", _IGNORE_CASE)

_MAX_READINGS: Final = 8  # at one place, and at so many places at once
_MAX_WORK: Final = 3  # how many times a page is read at most, all readings together
_SHORT: Final = 4_096  # a page that is shorter is read as if it were so long
_FAULTS: Final = BLANKS + "\0\ufeff"  # a byte order mark too many, or a NUL, is no text of an author's


class Tag(NamedTuple):
    """A start tag.

    Attributes:
        name: in lower case.
        attributes: everything between the name and the closing ``>``, as written.
        in_head: whether it lies in the HEAD.
        cut: whether there were more attributes than the 256 that are kept.
    """

    name: str
    attributes: str
    in_head: bool
    cut: bool


class Scan:
    """The start tags of a page whose name is among ``names``, in their order, each once; to be iterated over once.

    What HEAD is follows WHATWG HTML 13.2.6.4, with two leniencies, both for pages that are a little broken and both
    towards more being HEAD: HEAD begins anew at a ``<head>`` that stray text or markup stands before, though not behind
    a ``<body>``; and whatever a ``<noscript>`` of HEAD holds does not end HEAD. What lies in a ``<template>`` is not
    part of the page. A tag that the end of the page cuts off is none.

    Where a page can be read in several ways, all are followed side by side, within limits: their number, and together
    three times the work of one. So time is linear in the page. Where a limit is reached, the likeliest are followed.

    Args:
        text: the page.
        names: in lower case.
        head_only: whether to end at ``<body>``.

    Attributes:
        in_head: whether the text ended within HEAD; to be read afterwards, as is the other.
        partial: whether there were more ways to read the page than were followed.
    """

    def __init__(self, text: str, names: frozenset[str], *, head_only: bool = False) -> None:
        self.in_head = False
        self.partial = False
        self._text = text
        self._names = names
        self._head_only = head_only
        self._room = _MAX_WORK * max(len(text), _SHORT)
        self._ahead: dict[int, list[Reading]] = {}  # by the place of the next markup

    def __iter__(self) -> Iterator[Tag]:
        text, ahead = self._text, self._ahead
        self._go_on(Reading(), 0)
        while ahead:
            at = min(ahead)
            here = ahead.pop(at)
            if self._room < 0 and (ahead or here[1:]):
                self.partial = True
                ahead.clear()
                del here[1:]
            if not ahead and not here[1:] and here[0].is_plain:
                at = yield from self._over_plain_tags(at, in_template=here[0].templates > 0)
                if at < 0:
                    return
            tag = _TAG.match(text, at)
            if tag is None:
                self._over_markup(here, at)
                continue
            self._room -= len(here) * (tag.end() - at)
            name = tag[2].lower()
            places = self._over_end_tag(here, tag, name) if tag[1] else self._over_start_tag(here, tag, name)
            if places and name in self._names:
                yield _tag(name, tag[3], in_head=any(places))

    def _over_plain_tags(self, at: int, *, in_template: bool) -> Generator[Tag, None, int]:
        """Yield the tags up to one that does more than most do in BODY; return its place, -1 for the end of all."""
        text, names = self._text, self._names
        start = at
        while (tag := _TAG.match(text, at)) is not None and (name := tag[2].lower()) not in MOVING_TAGS:
            if name in names and not tag[1] and not in_template:
                yield _tag(name, tag[3], in_head=False)
            markup = _MARKUP.search(text, tag.end())
            if markup is None:
                return -1
            at = markup.start()
        self._room -= at - start
        return at

    def _over_end_tag(self, here: list[Reading], tag: re.Match[str], name: str) -> list[bool]:
        """Move on over an end tag; it is no part of the page in any reading."""
        for reading in here:
            for after in self._followed(reading.end(name)):
                self._go_on(after, tag.end())
        return []

    def _over_start_tag(self, here: list[Reading], tag: re.Match[str], name: str) -> list[bool]:
        """Move on over a start tag; return for each reading that it is part of the page in whether it lies in HEAD."""
        attributes = tag[3]
        foreign = name in FOREIGN_ROOTS or any(reading.open is not None for reading in here)
        closed = foreign and attributes.endswith("/") and _is_closed(attributes)
        places: list[bool] = []
        behind: int | None = None
        for reading in here:
            for after, is_text in self._followed(reading.start(name, attributes, closed=closed)):
                if not after.templates:
                    places.append(after.in_head)
                if not is_text:
                    self._go_on(after, tag.end())
                    continue
                if behind is None:
                    behind = _after_text(self._text, tag.end(), name)
                    self._room -= (len(self._text) if behind < 0 else behind) - tag.end()
                self._go_on(after, behind)
        return places

    def _over_markup(self, here: list[Reading], at: int) -> None:
        """Move on over markup that is no whole tag."""
        if not self._text.startswith("<![CDATA[", at):
            behind = _after_markup(self._text, at)
            self._room -= (len(self._text) if behind < 0 else behind) - at
            for reading in here:
                self._go_on(reading, behind)
            return
        for reading in here:
            for is_section in self._followed(reading.cdata()):
                end = "]]>" if is_section else ">"
                behind = self._text.find(end, at)
                self._room -= (len(self._text) if behind < 0 else behind) - at
                self._go_on(replace(reading), -1 if behind < 0 else behind + len(end))

    def _followed(self, ways: Sequence[_Way]) -> Sequence[_Way]:
        """Return those of several ways to go on that there is room for."""
        if self._room >= 0 or len(ways) == 1:
            return ways
        self.partial = True
        return ways[:1]

    def _go_on(self, reading: Reading, at: int) -> None:
        """Have a reading go on at a place; -1 for the end of the page."""
        if at < 0:
            self.in_head |= reading.in_head
            return
        if self._head_only and reading.at_body:
            return
        markup = _MARKUP.search(self._text, at)
        end = len(self._text) if markup is None else markup.start()
        self._room -= end - at
        if reading.in_head and _says_something(self._text[at:end]):
            reading.text()
        if markup is None:
            self.in_head |= reading.in_head
            return
        beside = self._ahead.get(end)
        if beside is None:
            if len(self._ahead) >= _MAX_READINGS:
                self.partial = True
                return
            self._ahead[end] = [reading]
        elif reading not in beside:
            if len(beside) >= _MAX_READINGS:
                self.partial = True
                return
            beside.append(reading)


def _tag(name: str, attributes: str, *, in_head: bool) -> Tag:
    first = _FIRST_ATTRIBUTES.match(attributes).end()  # type: ignore[union-attr] # it matches the empty text, too
    return Tag(name, attributes[:first], in_head, first < len(attributes))


def _says_something(text: str) -> bool:
    said = text.strip(_FAULTS)
    return bool(unescape(said).strip(_FAULTS) if "&" in said else said)


def _is_closed(attributes: str) -> bool:
    """Whether a tag closes itself: the slash at its end is not that of a value (13.2.5.40)."""
    last = ""
    for run in _ONE_ATTRIBUTE.finditer(attributes):
        last = run[0]
    return last.startswith(tuple(BLANKS + "/"))


def _after_markup(text: str, at: int) -> int:
    """Return where markup ends that is no whole tag; -1 for the end of the page."""
    if text.startswith("<!--", at):
        if text.startswith((">", "->"), at + 4):  # 13.2.5.43: abruptly closed
            return text.index(">", at + 4) + 1
        end = _COMMENT_END.search(text, at + 4)
        return -1 if end is None else end.end()
    if _TAG_OPEN.match(text, at) is not None:
        return -1  # a tag without an end
    return text.find(">", at) + 1 or -1  # 13.2.5.41: a bogus comment


def _after_text(text: str, at: int, name: str) -> int:
    """Return where the content of an element ends that holds text only, whatever it looks like; -1 for no end."""
    if name == "script":
        return _after_script(text, at)
    if name == "plaintext":
        return -1
    end = _TEXT_END[name].search(text, at)
    return -1 if end is None else end.start()


def _after_script(text: str, at: int) -> int:
    """Return where the end tag of a script starts; -1 for none.

    =====================  ===================  =======================  =======================  ==============
    state (13.2.5)         ``<!--``             ``-->``                  ``<script``              ``</script``
    =====================  ===================  =======================  =======================  ==============
    script data            escaped              script data              script data              the end
    escaped                escaped              script data              double escaped           the end
    double escaped         double escaped       script data              double escaped           escaped
    =====================  ===================  =======================  =======================  ==============

    The dashes of ``<!--`` may be those of ``-->``: ``<!-->`` and ``<!--->`` leave the state as script data.
    """
    escaped = double_escaped = False
    for token in _SCRIPT_TOKEN.finditer(text, at):
        if token[0] == "<!":
            escaped = True
        elif token[0] == "-->":
            escaped = double_escaped = False
        elif not token[1]:
            double_escaped = escaped
        elif not double_escaped:
            return token.start()
        else:
            double_escaped = False
    return -1

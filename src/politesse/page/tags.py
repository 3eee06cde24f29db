"""Which start tags a page of HTML has, and which of them lie in its HEAD: one pass, in linear time. Pure.

A parser that builds the tree takes quadratic time for half a megabyte of ``<div>``, and quadratic memory for misnested
``<b>``. So this tells the tags from text, comments and scripts (WHATWG HTML 13.2.5), keeps the few that are asked for,
and leaves it to a parser to read their attributes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")  # 13.2.5.6: any other "<" is text
_TAG_OPEN = re.compile(r"</?[A-Za-z]")
_TAG = re.compile(rf"<(/?)([A-Za-z][^\t\n\f\r />]*+)({_ATTRIBUTE}*+)>", re.VERBOSE)
# As many as a parser, who compares each with each, has an easy time with; the blanks between them count, too.
_FIRST_ATTRIBUTES = re.compile(rf"{_ATTRIBUTE}{{0,512}}+", re.VERBOSE)
_COMMENT_END = re.compile(r"--!?>")
_TEXT_END: Final = {
    name: re.compile(rf"</{name}[\t\n\f\r />]", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "style", "textarea", "title", "xmp")
}
# 13.2.5.18, 13.2.5.19: the dashes of "<!--" lead to the escaped dash dash state, so they count for "-->" as well.
_SCRIPT_TOKEN = re.compile(r"<!(?=--)|-->|<(/?)script[\t\n\f\r />]", re.IGNORECASE)

# What may stand in HEAD, or before it (13.2.6.4.4, and 13.2.6.4.6 for what comes after its end tag).
_HEAD: Final = frozenset(
    {"base", "basefont", "bgsound", "head", "html", "link", "meta", "noframes", "noscript", "script", "style"}
    | {"template", "title"}
)
_BODY_END: Final = frozenset({"body", "br", "html"})  # end tags that HEAD does not survive
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


@dataclass(slots=True)
class Place:
    """Where in a page the reading is.

    Attributes:
        in_head: whether before the first thing that belongs to BODY.
        at_body: whether the tag ``<body>`` was met.
        noscript: whether within a ``<noscript>`` of HEAD.
        templates: how many ``<template>`` are open.
    """

    in_head: bool = True
    at_body: bool = False
    noscript: bool = False
    templates: int = 0

    def start(self, name: str) -> None:
        """Move on over a start tag."""
        if name == "template":
            self.templates += 1
        elif self.templates:
            return
        elif name == "body":
            self.at_body, self.in_head, self.noscript = True, False, False
        elif name == "head" and not self.at_body:
            self.in_head = True
        elif name == "noscript":
            self.noscript = self.in_head
        elif name not in _HEAD and not self.noscript:
            self.in_head = False

    def end(self, name: str) -> None:
        """Move on over an end tag."""
        if name == "template":
            self.templates = max(0, self.templates - 1)
        elif self.templates:
            return
        elif name == "noscript":
            self.noscript = False
        elif name in _BODY_END and not self.noscript:
            self.in_head = False

    def text(self) -> None:
        """Move on over text that is more than blanks."""
        if not self.templates and not self.noscript:
            self.in_head = False


def start_tags(text: str, names: frozenset[str], place: Place) -> Iterator[Tag]:
    """Yield those start tags of a page whose name is among ``names``, in their order; keep ``place`` up to date.

    What HEAD is follows WHATWG HTML 13.2.6.4, with two leniencies, both for pages that are a little broken and both
    towards more being HEAD: HEAD begins anew at a ``<head>`` that stray text or markup stands before, though not behind
    a ``<body>``; and whatever a ``<noscript>`` of HEAD holds does not end HEAD, as in a browser that runs scripts. What
    lies in a ``<template>`` is no part of the page. A tag that the end of the page cuts off is none.
    """
    at = 0
    while (markup := _MARKUP.search(text, at)) is not None:
        opening = markup.start()
        if place.in_head and text[at:opening].strip(_FAULTS):
            place.text()
        tag = _TAG.match(text, opening)
        if tag is None:
            at = _after_markup(text, opening)
            if at < 0:
                return
            continue
        at = tag.end()
        name = tag[2].lower()
        if tag[1]:
            place.end(name)
            continue
        place.start(name)
        if name in names and not place.templates:
            first = _FIRST_ATTRIBUTES.match(tag[3]).end()  # type: ignore[union-attr] # it matches the empty text, too
            yield Tag(name, tag[3][:first], place.in_head, first < len(tag[3]))
        at = _after_text(text, at, name)
        if at < 0:
            return
    if place.in_head and text[at:].strip(_FAULTS):
        place.text()


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
    ending = _TEXT_END.get(name)
    if ending is None:
        return at
    end = ending.search(text, at)
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

"""Where in a page a reading of it is: in HEAD, in a template, in SVG or MathML. Pure.

Whether the content of an element is text or markup is up to the tree builder (WHATWG HTML 13.2.6), not to the
tokenizer: ``<title>`` of HTML holds text, ``<title>`` of SVG holds markup. This keeps as much of the tree as that
needs: of SVG and MathML the open elements, of HTML hardly any. Where it does not suffice, as behind an end tag that
matches no open element, or where browsers differ, as about ``<noscript>``, there are several ways to go on. The page is
read in all of them, and what any finds counts: a directive too many is better than one too few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

# What may stand in HEAD, or before it (13.2.6.4.4, and 13.2.6.4.6 for what comes after its end tag).
_HEAD: Final = frozenset(
    {"base", "basefont", "bgsound", "head", "html", "link", "meta", "noframes", "noscript", "script", "style"}
    | {"template", "title"}
)
_BODY_END: Final = frozenset({"body", "br", "html"})  # end tags that HEAD does not survive

TEXT_ELEMENTS: Final = frozenset(
    {"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp"}
)
"""Those of HTML that hold text, whatever it looks like; ``noscript`` where scripts run."""

FOREIGN_ROOTS: Final = frozenset({"math", "svg"})
"""The elements of HTML that hold MathML and SVG."""

MOVING_TAGS: Final = TEXT_ELEMENTS | FOREIGN_ROOTS | {"body", "col", "head", "select", "template"}
"""Those that matter in BODY, too."""

_VOID: Final = frozenset(
    {"area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "image", "img", "input", "keygen"}
    | {"link", "meta", "param", "source", "track", "wbr"}
)
# 13.2.6.5: start tags that end SVG and MathML.
_BREAKOUT: Final = frozenset(
    {"b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "h1", "h2"}
    | {"h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre"}
    | {"ruby", "s", "small", "span", "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var"}
)
_FONT = re.compile("color|face|size", re.IGNORECASE)  # 13.2.6.5: with one of these attributes, <font> is among them
_TABLE: Final = frozenset(
    {"caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
)  # their scope reaches through SVG and MathML (13.2.4.2)
_MAY_BE_IGNORED: Final = (_TABLE - {"col", "table"}) | {"body", "form", "frameset", "head", "html"}  # by 13.2.6.4.7
_GLYPHS: Final = frozenset({"malignmark", "mglyph"})
_SVG_POINTS: Final = frozenset({"desc", "foreignobject", "title"})
_MATH_POINTS: Final = frozenset({"mi", "mn", "mo", "ms", "mtext"})
_MAX_DEPTH: Final = 16  # so many open elements are looked through for one that an end tag closes, if not the last


class _Kind(Enum):
    SVG = auto()
    MATH = auto()
    POINT = auto()  # an element of SVG or MathML whose children are HTML: an integration point (13.2.6)
    MATH_POINT = auto()  # the same, but for two tags
    HTML = auto()  # an element of HTML within one of those
    UNSURE = auto()  # within one of those, perhaps within elements of HTML


_FOREIGN: Final = frozenset({_Kind.SVG, _Kind.MATH})  # their children are SVG and MathML
_POINTS: Final = frozenset({_Kind.POINT, _Kind.MATH_POINT})
_IN_HTML: Final = frozenset({_Kind.HTML, _Kind.UNSURE})


class _Open:
    """An open element of SVG or MathML, or of HTML within. Compared by identity.

    Attributes:
        name: in lower case.
        kind: what it is.
        parent: the element that it lies in; None where that is one of HTML which lies in no SVG or MathML.
        out: the nearest ancestor whose children are HTML; None likewise.
        base: the nearest ancestor that is of HTML itself; None likewise.
        floor: the nearest ancestor that no end tag of HTML but its own closes: an integration point, or a template.
        template: the nearest ``<template>`` of HTML, itself included; None where there is none within.
    """

    __slots__ = ("_unsure", "base", "floor", "kind", "name", "out", "parent", "template")

    def __init__(self, name: str, kind: _Kind, parent: _Open | None) -> None:
        self.name = name
        self.kind = kind
        self.parent = self.out = self.base = self.floor = parent
        self.template: _Open | None = None
        if parent is not None:
            self.template = parent.template
            self.out = parent.out if parent.kind in _FOREIGN else parent
            self.base = parent if parent.kind in _IN_HTML else parent.base
            self.floor = parent if parent.is_floor else parent.floor
        if name == "template" and kind is _Kind.HTML:
            self.template = self
        self._unsure: _Open | None = None

    @property
    def is_floor(self) -> bool:
        """Whether it can be a floor of another."""
        return self.kind not in _IN_HTML or self.template is self

    @property
    def unsure(self) -> _Open:
        """What stands for the elements of HTML that may be open in this floor, or in that which it lies in."""
        if not self.is_floor and self.floor is not None:
            return self.floor.unsure
        if self._unsure is None:
            self._unsure = _Open("", _Kind.UNSURE, self)
        return self._unsure


@dataclass(slots=True)
class Reading:
    """Where a reading is.

    Attributes:
        in_head: whether before the first thing that belongs to BODY.
        at_body: whether the tag ``<body>`` was met.
        noscript: whether within a ``<noscript>`` of HEAD that is read as markup.
        templates: how many ``<template>`` of HTML are open.
        select: whether within a ``<select>``. Until 2025 the standard ignored most tags there.
        column: whether behind a ``<col>`` in a template, where most tags are ignored (13.2.6.4.12).
        open: the innermost open element of SVG or MathML, or of HTML within; None where there is none.
    """

    in_head: bool = True
    at_body: bool = False
    noscript: bool = False
    templates: int = 0
    select: bool = False
    column: bool = False
    open: _Open | None = None

    def text(self) -> None:
        """Move on over text that is more than blanks."""
        if not self.templates and not self.noscript:
            self.in_head = False

    def cdata(self) -> tuple[bool, ...]:
        """Return whether ``<![CDATA[`` starts a section (13.2.5.42); both where that is not known."""
        if self.open is None or self.open.kind is _Kind.HTML:
            return (False,)
        return (False, True) if self.open.kind is _Kind.UNSURE else (True,)

    @property
    def is_plain(self) -> bool:
        """Whether no tags but the ``MOVING_TAGS`` change anything, as in most of BODY."""
        return self.open is None and not self.in_head

    def start(self, name: str, attributes: str, *, closed: bool) -> list[tuple[Reading, bool]]:
        """Move on over a start tag: return each way to go on, and whether its content is text, whatever it looks like.

        ``closed`` is whether the tag closes itself, which counts in SVG and MathML only.
        """
        top = self.open
        if top is None:
            return self.start_html(name, closed=closed)
        ways: list[tuple[Reading, bool]] = []
        for is_html, parent in self._rules(top, name, attributes):
            if is_html:
                ways += self._with(parent).start_html(name, closed=closed)
                if name in _TABLE and parent is not None:
                    # 13.2.6.4.9 and others: a table around the SVG goes on with it.
                    ways += self._with(None).start_html(name, closed=closed)
            elif closed:
                ways.append((self, False))
            else:
                ways.append((self._with(_child(parent, name)), False))
                if name == "annotation-xml" and attributes:
                    ways.append((self._with(_Open(name, _Kind.POINT, parent)), False))  # by its encoding
        return ways

    def end(self, name: str) -> list[Reading]:
        """Move on over an end tag: return each way to go on."""
        top = self.open
        if top is None:
            self.end_html(name)
            return [self]
        if top.name == name:
            if top.kind is _Kind.HTML:
                self.end_html(name)
            self.open = top.parent
            return [self]
        floor = top if top.is_floor or top.floor is None else top.floor
        closing = _closing(floor, name)
        if closing is not None and floor is top:
            self.open = closing.parent
            return [self]
        if name == "template":
            without = [self._without_template(top)]
            return without if closing is None else [*without, self._with(closing.parent)]
        if floor.kind is _Kind.HTML:
            self.end_html(name)
            self.open = top if top is floor else floor.unsure
            return [self]
        # Else it is up to the elements of HTML: one may close, with all that lies in it, or none.
        ways: list[_Open | None] = [top] if floor is top else [floor.unsure]
        if closing is not None:
            ways.append(closing.parent)
        else:
            ways.append(None if floor.base is None else floor.base.unsure)
        if name in _TABLE:
            ways.append(None)  # 13.2.6.4.15 and others: so do end tags
        self.end_html(name)
        return [self._with(way) for way in dict.fromkeys(ways)]

    def _rules(self, top: _Open, name: str, attributes: str) -> list[tuple[bool, _Open | None]]:
        """Return whether a start tag follows the rules of HTML or not (13.2.6), and the element that it lies in."""
        if name in _GLYPHS and top.kind is _Kind.MATH_POINT:
            return [(False, top)]
        if name in _GLYPHS and top.kind is _Kind.UNSURE:
            return [(True, top), (False, top.parent)]
        if top.kind not in _FOREIGN or (name == "svg" and top.name == "annotation-xml" and top.kind is _Kind.MATH):
            return [(True, top)]
        if name in _BREAKOUT:
            return [(True, top.out)]
        if name == "font" and _FONT.search(attributes) is not None:
            return [(True, top.out), (False, top)]
        return [(False, top)]

    def start_html(self, name: str, *, closed: bool) -> list[tuple[Reading, bool]]:
        """Do what ``start`` does, for a tag that follows the rules of HTML."""
        if name == "template":
            self.templates += 1
        elif not self.templates:
            self._place(name)
        if name == "select":
            self.select = True
        elif name == "col" and self.templates:
            self.column = True
        before = self.open
        foreign = name in FOREIGN_ROOTS
        if foreign and closed:
            return [(self, False)]
        if foreign:
            self.open = _Open(name, _Kind.SVG if name == "svg" else _Kind.MATH, before)
        elif before is not None:
            self.open = _html_child(before, name)
        if name == "noscript":  # 13.2.6.4.4, 13.2.6.4.7: text where scripts run
            return [(self, False), (replace(self, noscript=False), True)]
        is_text = name in TEXT_ELEMENTS
        ways = [(self, is_text)]
        if (is_text or foreign) and (self.column or (self.select and name not in {"script", "textarea"})):
            ways.append((self._with(before), False))  # the tag may be ignored
        return ways

    def _with(self, innermost: _Open | None) -> Reading:
        """Return a copy with another innermost element; dataclasses.replace takes three times as long."""
        return Reading(self.in_head, self.at_body, self.noscript, self.templates, self.select, self.column, innermost)

    def _place(self, name: str) -> None:
        if name == "body":
            self.at_body, self.in_head, self.noscript = True, False, False
        elif name == "head" and not self.at_body:
            self.in_head = True
        elif name == "noscript":
            self.noscript = self.in_head
        elif name not in _HEAD and not self.noscript:
            self.in_head = False

    def end_html(self, name: str) -> None:
        """Move on over an end tag that follows the rules of HTML, but for the elements that it closes."""
        if name == "template":
            self.templates = max(0, self.templates - 1)
            self.column = self.column and self.templates > 0
        elif self.templates:
            return
        elif name == "noscript":
            self.noscript = False
        elif name == "select":
            self.select = False
        elif name in _BODY_END and not self.noscript:
            self.in_head = False

    def _without_template(self, top: _Open) -> Reading:
        """Return the way to go on where ``</template>`` ends one of HTML, and all that is open in it."""
        if not self.templates:
            return self
        after = self._with(None if top.template is None else top.template.parent)
        after.end_html("template")
        return after


def _child(parent: _Open | None, name: str) -> _Open:
    """Return the element of SVG or MathML that a start tag makes in another."""
    kind = _Kind.SVG if parent is not None and parent.kind is _Kind.SVG else _Kind.MATH
    if kind is _Kind.SVG and name in _SVG_POINTS:
        kind = _Kind.POINT
    elif kind is _Kind.MATH and name in _MATH_POINTS:
        kind = _Kind.MATH_POINT
    return _Open(name, kind, parent)


def _html_child(parent: _Open, name: str) -> _Open:
    """Return the innermost open element behind a start tag that follows the rules of HTML within SVG or MathML."""
    if parent.kind in _POINTS and name in _MAY_BE_IGNORED:
        return parent.unsure  # what comes next may lie in the integration point itself
    if name in _VOID or (parent.kind is _Kind.UNSURE and name != "template"):
        return parent
    return _Open(name, _Kind.HTML, parent)


def _closing(top: _Open, name: str) -> _Open | None:
    """Return the element of SVG or MathML that an end tag closes (13.2.6.5); None where that is up to HTML below."""
    cell: _Open | None = top
    for _ in range(_MAX_DEPTH):
        if cell is None or cell.kind in _IN_HTML:
            break
        if cell.name == name:
            return cell
        cell = cell.parent
    return None

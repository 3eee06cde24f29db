"""The state of tree construction at one place of a page: in HEAD, in a template, in SVG or MathML. Pure.

Theory of operation. Whether the content of an element is text or markup is decided by tree construction (WHATWG HTML
13.2.6), not by the tokenizer: an HTML ``<title>`` contains text, an SVG ``<title>`` contains markup. A TreeState keeps
only the part of the tree that this decision needs: the open elements of SVG and MathML, and very few of HTML. That part
is sometimes insufficient, for example after an end tag that matches no open element, and browsers differ on some tags,
for example ``<noscript>``. A transition then returns several states. ``tags`` follows all of them, and a directive that
is found in any of them counts: one directive too many is better than one too few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

# The elements of HEAD, and those allowed before it (13.2.6.4.4; 13.2.6.4.6 after its end tag).
_HEAD: Final = frozenset(
    {"base", "basefont", "bgsound", "head", "html", "link", "meta", "noframes", "noscript", "script", "style"}
    | {"template", "title"}
)
_BODY_END: Final = frozenset({"body", "br", "html"})  # end tags that end HEAD

TEXT_ELEMENTS: Final = frozenset(
    {"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp"}
)
"""The HTML elements whose content is text, even if it looks like markup; ``noscript`` if scripts run."""

FOREIGN_ROOTS: Final = frozenset({"math", "svg"})
"""The HTML elements that contain MathML and SVG."""

MOVING_TAGS: Final = TEXT_ELEMENTS | FOREIGN_ROOTS | {"body", "col", "head", "select", "template"}
"""The tags that change the state in BODY, too."""

_VOID: Final = frozenset(
    {"area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "image", "img", "input", "keygen"}
    | {"link", "meta", "param", "source", "track", "wbr"}
)
# 13.2.6.5: start tags that leave SVG and MathML.
_BREAKOUT: Final = frozenset(
    {"b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "h1", "h2"}
    | {"h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre"}
    | {"ruby", "s", "small", "span", "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var"}
)
_FONT = re.compile("color|face|size", re.IGNORECASE)  # 13.2.6.5: <font> with one of these attributes leaves them, too
_TABLE: Final = frozenset(
    {"caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
)  # their scope reaches through SVG and MathML (13.2.4.2)
_MAY_BE_IGNORED: Final = (_TABLE - {"col", "table"}) | {"body", "form", "frameset", "head", "html"}  # by 13.2.6.4.7
_GLYPHS: Final = frozenset({"malignmark", "mglyph"})
_SVG_POINTS: Final = frozenset({"desc", "foreignobject", "title"})
_MATH_POINTS: Final = frozenset({"mi", "mn", "mo", "ms", "mtext"})
_MAX_DEPTH: Final = 16  # of open elements, how many are compared with an end tag


class _Kind(Enum):
    SVG = auto()
    MATH = auto()
    POINT = auto()  # an element of SVG or MathML whose children are HTML: an integration point (13.2.6)
    MATH_POINT = auto()  # the same, except for two tags
    HTML = auto()  # an HTML element inside an integration point
    UNSURE = auto()  # inside an integration point, perhaps inside HTML elements


_FOREIGN: Final = frozenset({_Kind.SVG, _Kind.MATH})  # their children are SVG and MathML
_POINTS: Final = frozenset({_Kind.POINT, _Kind.MATH_POINT})
_IN_HTML: Final = frozenset({_Kind.HTML, _Kind.UNSURE})


class _Open:
    """An open element of SVG or MathML, or an HTML element inside one. Compared by identity.

    Attributes:
        name: in lower case.
        kind: its namespace and role.
        parent: the enclosing element, or None if that is an HTML element outside of SVG and MathML.
        out: the nearest ancestor whose children are HTML, or None as above.
        base: the nearest ancestor that is an HTML element itself, or None as above.
        floor: the nearest ancestor that only its own end tag closes: an integration point, or a template.
        template: the nearest HTML ``<template>``, including itself, or None inside SVG and MathML.
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
        """Whether it is the ``floor`` of its descendants."""
        return self.kind not in _IN_HTML or self.template is self

    @property
    def unsure(self) -> _Open:
        """The element that stands for the HTML elements which may be open in the nearest floor, this one included."""
        if not self.is_floor and self.floor is not None:
            return self.floor.unsure
        if self._unsure is None:
            self._unsure = _Open("", _Kind.UNSURE, self)
        return self._unsure


@dataclass(slots=True)
class TreeState:
    """The state of tree construction.

    Attributes:
        in_head: whether nothing that belongs to BODY was found yet.
        at_body: whether a tag ``<body>`` was found.
        noscript: whether a ``<noscript>`` of HEAD is open whose content is read as markup.
        templates: how many HTML ``<template>`` are open.
        select: whether a ``<select>`` is open. Until 2025 the standard ignored most tags there.
        column: whether a ``<col>`` was found in a template; most tags are ignored after it (13.2.6.4.12).
        open: the innermost open element of SVG or MathML, or of HTML inside, or None outside of SVG and MathML.
    """

    in_head: bool = True
    at_body: bool = False
    noscript: bool = False
    templates: int = 0
    select: bool = False
    column: bool = False
    open: _Open | None = None

    def text(self) -> None:
        """Process text that is more than whitespace."""
        if not self.templates and not self.noscript:
            self.in_head = False

    def cdata(self) -> tuple[bool, ...]:
        """Return whether ``<![CDATA[`` starts a section (13.2.5.42); both values if that is unknown."""
        if self.open is None or self.open.kind is _Kind.HTML:
            return (False,)
        return (False, True) if self.open.kind is _Kind.UNSURE else (True,)

    @property
    def is_plain(self) -> bool:
        """Whether only ``MOVING_TAGS`` change the state, as in most of BODY."""
        return self.open is None and not self.in_head

    def start(self, name: str, attributes: str, *, closed: bool) -> list[tuple[TreeState, bool]]:
        """Process a start tag; return each next state, and whether the content of the element is text.

        Args:
            name: in lower case.
            attributes: as written.
            closed: whether the tag closes itself, which has a meaning in SVG and MathML only.
        """
        top = self.open
        if top is None:
            return self.start_html(name, closed=closed)
        ways: list[tuple[TreeState, bool]] = []
        for is_html, parent in self._rules(top, name, attributes):
            if is_html:
                ways += self._with(parent).start_html(name, closed=closed)
                if name in _TABLE and parent is not None:
                    # 13.2.6.4.9 and others: a table around the SVG continues with this tag.
                    ways += self._with(None).start_html(name, closed=closed)
            elif closed:
                ways.append((self, False))
            else:
                ways.append((self._with(_child(parent, name)), False))
                if name == "annotation-xml" and attributes:
                    ways.append((self._with(_Open(name, _Kind.POINT, parent)), False))  # by its encoding
        return ways

    def end(self, name: str) -> list[TreeState]:
        """Process an end tag; return each next state."""
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
        # Otherwise the open HTML elements decide: one of them closes, with all that it contains, or none does.
        ways: list[_Open | None] = [top] if floor is top else [floor.unsure]
        if closing is not None:
            ways.append(closing.parent)
        else:
            ways.append(None if floor.base is None else floor.base.unsure)
        if name in _TABLE:
            ways.append(None)  # 13.2.6.4.15 and others: the same for end tags
        self.end_html(name)
        return [self._with(way) for way in dict.fromkeys(ways)]

    def _rules(self, top: _Open, name: str, attributes: str) -> list[tuple[bool, _Open | None]]:
        """Return whether a start tag is processed by the rules of HTML (13.2.6), and its parent."""
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

    def start_html(self, name: str, *, closed: bool) -> list[tuple[TreeState, bool]]:
        """Process a start tag by the rules of HTML; return the result of ``start``."""
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
        if name == "noscript":  # 13.2.6.4.4, 13.2.6.4.7: its content is text if scripts run
            return [(self, False), (replace(self, noscript=False), True)]
        is_text = name in TEXT_ELEMENTS
        ways = [(self, is_text)]
        if (is_text or foreign) and (self.column or (self.select and name not in {"script", "textarea"})):
            ways.append((self._with(before), False))  # the tag may be ignored
        return ways

    def _with(self, innermost: _Open | None) -> TreeState:
        """Return a copy with another innermost element; dataclasses.replace takes three times as long."""
        return TreeState(self.in_head, self.at_body, self.noscript, self.templates, self.select, self.column, innermost)

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
        """Process an end tag by the rules of HTML, except for the elements that it closes."""
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

    def _without_template(self, top: _Open) -> TreeState:
        """Return the next state if ``</template>`` closes an HTML template and all that is open in it."""
        if not self.templates:
            return self
        after = self._with(None if top.template is None else top.template.parent)
        after.end_html("template")
        return after


def _child(parent: _Open | None, name: str) -> _Open:
    """Return the element that a start tag creates inside SVG or MathML."""
    kind = _Kind.SVG if parent is not None and parent.kind is _Kind.SVG else _Kind.MATH
    if kind is _Kind.SVG and name in _SVG_POINTS:
        kind = _Kind.POINT
    elif kind is _Kind.MATH and name in _MATH_POINTS:
        kind = _Kind.MATH_POINT
    return _Open(name, kind, parent)


def _html_child(parent: _Open, name: str) -> _Open:
    """Return the innermost open element after a start tag that HTML rules process inside SVG or MathML."""
    if parent.kind in _POINTS and name in _MAY_BE_IGNORED:
        return parent.unsure  # the next tag may be a child of the integration point itself
    if name in _VOID or (parent.kind is _Kind.UNSURE and name != "template"):
        return parent
    return _Open(name, _Kind.HTML, parent)


def _closing(top: _Open, name: str) -> _Open | None:
    """Return the element of SVG or MathML that an end tag closes (13.2.6.5), or None if HTML rules decide."""
    cell: _Open | None = top
    for _ in range(_MAX_DEPTH):
        if cell is None or cell.kind in _IN_HTML:
            break
        if cell.name == name:
            return cell
        cell = cell.parent
    return None

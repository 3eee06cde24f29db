"""The state of tree construction at one place of a page: in HEAD, in a template, in SVG or MathML. Pure.

Theory of operation. Tree construction (WHATWG HTML 13.2.6), not the tokenizer, decides whether the content of an
element is text or markup: an HTML ``<title>`` contains text, an SVG ``<title>`` contains markup. A TreeState keeps very
little of the tree, so inside SVG and MathML it cannot always decide, and a transition returns both states. ``tags``
follows all states, and a directive in any state counts, because missing a directive is worse than an extra directive.

So it suffices that the end of SVG and MathML is certain. For this, a TreeState keeps the names of some open elements:
``<svg>`` and ``<math>``; integration points, which are their children with HTML content (13.2.6); and the HTML elements
inside these. An end tag closes the innermost of these elements if the element has its name. If the innermost element is
an integration point, ``</svg>`` or ``</math>`` may close the ``<svg>`` or ``<math>`` around it. Browsers may ignore any
other end tag, so here it closes no element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# The elements that may be in HEAD or before it (13.2.6.4.4; 13.2.6.4.6 after its end tag).
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
# 13.2.6.5: start tags that leave SVG and MathML; <font> leaves them only with some attributes.
_BREAKOUT: Final = frozenset(
    {"b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "h1", "h2"}
    | {"h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre"}
    | {"ruby", "s", "small", "span", "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var"}
)
# Integration points: elements of SVG and MathML whose children are HTML; some of them only with some attributes.
_SVG_POINTS: Final = frozenset({"desc", "foreignobject", "title"})
_MATH_POINTS: Final = frozenset({"annotation-xml", "mi", "mn", "mo", "ms", "mtext"})
_MAX_DEPTH: Final = 32  # at most this many open elements are kept
_UNKNOWN: Final = ""  # stands for further elements that may be open; no end tag closes it


@dataclass(slots=True)
class TreeState:
    """The state of tree construction.

    Attributes:
        in_head: whether no content of BODY was found yet.
        at_body: whether a tag ``<body>`` was found.
        noscript: whether a ``<noscript>`` of HEAD is open, with its content read as markup.
        templates: how many HTML ``<template>`` are open.
        select: whether a ``<select>`` is open. Until 2025 the standard ignored most tags inside ``<select>``.
        column: whether a ``<col>`` was found in a template, after which most tags are ignored (13.2.6.4.12).
        open: the names of the open elements that decide where SVG and MathML end, the outermost first.
    """

    in_head: bool = True
    at_body: bool = False
    noscript: bool = False
    templates: int = 0
    select: bool = False
    column: bool = False
    open: tuple[str, ...] = ()

    def text(self) -> None:
        """Process text that is more than whitespace."""
        if not self.templates and not self.noscript:
            self.in_head = False

    def cdata(self) -> tuple[bool, ...]:
        """Return whether ``<![CDATA[`` starts a section (13.2.5.42); both answers if this is uncertain."""
        return (True, False) if self.open else (False,)

    @property
    def is_plain(self) -> bool:
        """Whether only ``MOVING_TAGS`` change the state, as in most of BODY."""
        return not self.open and not self.in_head

    def start(self, name: str, *, closed: bool) -> list[tuple[TreeState, bool]]:
        """Process a start tag; return each next state, and whether the content of the element is text.

        Args:
            name: the name of the tag, in lower case.
            closed: whether the tag closes itself, which matters only in SVG and MathML.
        """
        if name in _BREAKOUT:
            while self.open and self.open[-1] in FOREIGN_ROOTS:
                self.open = self.open[:-1]
        if not self.open:
            return self._start_html(name, closed=closed)
        in_math = "math" in self.open
        is_root, is_foreign = name in FOREIGN_ROOTS, self.open[-1] in FOREIGN_ROOTS
        is_point = name in _SVG_POINTS or (in_math and name in _MATH_POINTS)
        if (is_root or (is_point if is_foreign else name not in _VOID)) and not (closed and (is_root or is_foreign)):
            self._push(name)
        self.select = self.select or name == "select"
        self.column = self.column or (name == "col" and self.templates > 0)
        ways = [(self, False)]
        if name in TEXT_ELEMENTS:
            ways.append((replace(self), True))
        elif name == "template":
            counted = (replace(self, templates=self.templates + 1), False)
            ways = [*ways, counted] if is_foreign or in_math or _UNKNOWN in self.open else [counted]
        return ways

    def end(self, name: str) -> list[TreeState]:
        """Process an end tag; return each next state."""
        if not self.open:
            self._end_html(name)
            return [self]
        if name == "template" and name in self.open:
            place = len(self.open) - 1 - self.open[::-1].index(name)
            self.open, self.templates = self.open[:place], max(0, self.templates - 1)
        elif name == "template" and self.templates:
            outside = replace(self, open=())
            outside._end_html(name)  # noqa: SLF001 - of this class
            return [self, outside]
        elif name == self.open[-1]:
            self.open = self.open[:-1]
        elif self.open[-2:-1] == (name,) and name in FOREIGN_ROOTS and self.open[-1] not in {*FOREIGN_ROOTS, _UNKNOWN}:
            self.open = self.open[:-2]  # closes the integration point, too
        elif not FOREIGN_ROOTS.issuperset(self.open):
            self._push(_UNKNOWN)
        return [self]

    def _push(self, name: str) -> None:
        if len(self.open) >= _MAX_DEPTH:
            name = _UNKNOWN
        if name != _UNKNOWN or self.open[-1] != _UNKNOWN:
            self.open = (*self.open, name)

    def _start_html(self, name: str, *, closed: bool) -> list[tuple[TreeState, bool]]:
        """Process a start tag outside of SVG and MathML."""
        if name == "template":
            self.templates += 1
        elif not self.templates:
            self._place(name)
        if name == "select":
            self.select = True
        elif name == "col" and self.templates:
            self.column = True
        foreign = name in FOREIGN_ROOTS
        if foreign and closed:
            return [(self, False)]
        if name == "noscript":  # 13.2.6.4.4, 13.2.6.4.7: the content is text if scripts run
            return [(self, False), (replace(self, noscript=False), True)]
        ways = [(replace(self, open=(name,)) if foreign else self, name in TEXT_ELEMENTS)]
        ignores = self.column or (self.select and name not in {"script", "textarea"})
        if ignores and (foreign or name in TEXT_ELEMENTS):
            ways.append((replace(self), False))
        return ways

    def _place(self, name: str) -> None:
        if name == "body":
            self.at_body, self.in_head, self.noscript = True, False, False
        elif name == "head" and not self.at_body:
            self.in_head = True
        elif name == "noscript":
            self.noscript = self.in_head
        elif name not in _HEAD and not self.noscript:
            self.in_head = False

    def _end_html(self, name: str) -> None:
        """Process an end tag outside of SVG and MathML."""
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

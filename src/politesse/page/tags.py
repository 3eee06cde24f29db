"""Finds the start tags of an HTML page, and whether each is in HEAD, in one pass and linear time. Pure.

Theory of operation. A parser that builds the tree takes quadratic time for half a megabyte of ``<div>``, and quadratic
memory for misnested ``<b>``. So this tokenizer separates tags from text, comments and scripts (WHATWG HTML 13.2.5),
yields the few tags that the caller wants, and leaves their attributes to a parser. Some tokens depend on tree
construction; a TreeState keeps the necessary part of the tree. If the next state is ambiguous, all possible states
are followed in parallel: ``_ahead`` maps the place of markup to the states in which the markup may be read. The number
of states and their total work are bounded, so time is linear in the length of the page.

Tree construction (WHATWG HTML 13.2.6), not the tokenizer, decides whether the content of an
element is text or markup: an HTML ``<title>`` contains text, an SVG ``<title>`` contains markup. A TreeState keeps very
little of the tree, so inside SVG and MathML it cannot always decide, and a transition returns both states. The
tokenizer follows all states, and a directive in any state counts, because missing a directive is worse than an extra
directive.

So it suffices that the end of SVG and MathML is certain. For this, a TreeState keeps the names of some open elements:
``<svg>`` and ``<math>``; integration points, which are their children with HTML content (13.2.6); and the HTML elements
inside these. An end tag closes the innermost of these elements if the element has its name. If the innermost element is
an integration point, ``</svg>`` or ``</math>`` may close the ``<svg>`` or ``<math>`` around it. Browsers may ignore any
other end tag, so here it closes no element.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from html import unescape
from typing import Final, NamedTuple, TypeVar

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
        self.select = self.select or name == "select"
        self.column = self.column or (name == "col" and self.templates > 0)
        if not self.open:
            return self._start_html(name, closed=closed)
        in_math = "math" in self.open
        is_root, is_foreign = name in FOREIGN_ROOTS, self.open[-1] in FOREIGN_ROOTS
        is_point = name in _SVG_POINTS or (in_math and name in _MATH_POINTS)
        if (is_root or (is_point if is_foreign else name not in _VOID)) and not (closed and (is_root or is_foreign)):
            self._push(name)
        ways = [(self, False)]
        if name in TEXT_ELEMENTS:
            ways.append((replace(self), True))
        elif name == "template":
            counted = (replace(self, templates=self.templates + 1), False)
            ways = [*ways, counted] if is_foreign or in_math or _UNKNOWN in self.open else [counted]
        return ways

    def end(self, name: str) -> list[tuple[TreeState, bool]]:
        """Process an end tag; return each next state, as ``start`` does."""
        if not self.open:
            self._end_html(name)
            return [(self, False)]
        if name == "template" and name in self.open:
            place = len(self.open) - 1 - self.open[::-1].index(name)
            self.open, self.templates = self.open[:place], max(0, self.templates - 1)
        elif name == "template" and self.templates:
            outside = replace(self, open=())
            outside._end_html(name)  # noqa: SLF001 - of this class
            return [(self, False), (outside, False)]
        elif name == self.open[-1]:
            self.open = self.open[:-1]
        elif self.open[-2:-1] == (name,) and name in FOREIGN_ROOTS and self.open[-1] not in {*FOREIGN_ROOTS, _UNKNOWN}:
            self.open = self.open[:-2]  # closes the integration point, too
        elif not FOREIGN_ROOTS.issuperset(self.open):
            self._push(_UNKNOWN)
        return [(self, False)]

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


_Branch = TypeVar("_Branch")

ASCII_WHITESPACE: Final = "\t\n\f\r "
"""The ASCII whitespace of WHATWG Infra 4.6."""

# WHATWG HTML 13.2.5.6 to 13.2.5.40. Every repetition is possessive, so that each tag is read once, whatever it
# contains. As in browsers, an unclosed quote extends to the end of the page.
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
# The number of attributes is bounded, because a parser compares each attribute with all others. Whitespace between
# attributes counts as an attribute.
_FIRST_ATTRIBUTES = re.compile(rf"{_ATTRIBUTE}{{0,512}}+", re.VERBOSE)
_COMMENT_END = re.compile(r"--!?>")
# 13.2.5: names are compared as ASCII. By Unicode case rules, U+017F would match "s".
_IGNORE_CASE: Final = re.IGNORECASE | re.ASCII
_TEXT_END: Final = {
    name: re.compile(rf"</{name}[\t\n\f\r />]", _IGNORE_CASE) for name in TEXT_ELEMENTS - {"plaintext", "script"}
}
# 13.2.5.18, 13.2.5.19: the dashes of "<!--" lead to the escaped dash dash state, so they count for "-->" as well.
_SCRIPT_TOKEN = re.compile(r"<!(?=--)|-->|<(/?)script[\t\n\f\r />]", _IGNORE_CASE)

_MAX_STATES: Final = 8  # limits the states at one place, and the number of places
_MAX_WORK: Final = 3  # limits the work of all states together; the unit is the length of the page
_SHORT: Final = 4_096  # a page shorter than this gets the same limit of work as a page of this length
_FAULTS: Final = ASCII_WHITESPACE + "\0\ufeff"  # a NUL or a second byte order mark does not count as text


class Tag(NamedTuple):
    """A start tag.

    Attributes:
        name: the name, in lower case.
        attributes: the text between the name and the closing ``>``, as written.
        in_head: whether the tag is in HEAD.
        cut: whether the tag has more than the 256 attributes that are kept.
    """

    name: str
    attributes: str
    in_head: bool
    cut: bool


class Scan:
    """Iterates over the start tags of a page with a name in ``names``, in order; a Scan can be iterated only once.

    HEAD is as in WHATWG HTML 13.2.6.4, with two leniencies that extend HEAD on slightly broken pages. HEAD begins again
    at a ``<head>`` after stray text or markup, but not after a ``<body>``. The content of a ``<noscript>`` in HEAD
    never ends HEAD. The content of a ``<template>`` is not part of the page. A tag that the end of the page cuts off is
    ignored.

    If a page can be read in several ways, all readings are followed in parallel, within two limits: the number of
    readings, and three times the work of a single reading. At a limit, only the most likely readings are followed.

    Args:
        text: the page.
        names: the names of tags, in lower case.
        head_only: whether to stop at ``<body>``.

    Attributes:
        in_head: whether the text ended in HEAD; valid after the iteration.
        partial: whether a limit was reached, so that tags may be missing; valid after the iteration.
    """

    def __init__(self, text: str, names: frozenset[str], *, head_only: bool = False) -> None:
        self.in_head: bool = False
        self.partial: bool = False
        self._text = text
        self._names = names
        self._head_only = head_only
        self._room = _MAX_WORK * max(len(text), _SHORT)
        self._ahead: dict[int, list[TreeState]] = {}  # maps the place of markup to the possible states

    def __iter__(self) -> Iterator[Tag]:
        text, ahead = self._text, self._ahead
        self._go_on(TreeState(), 0)
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
            places = self._over_tag(here, tag, name)
            if places and not tag[1] and name in self._names:
                yield _tag(name, tag[3], in_head=any(places))

    def _over_plain_tags(self, at: int, *, in_template: bool) -> Generator[Tag, None, int]:
        """Yield the tags before the next of MOVING_TAGS; return the place of that tag, or -1 at the end of the page."""
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

    def _over_tag(self, here: list[TreeState], tag: re.Match[str], name: str) -> list[bool]:
        """Process a tag; for each state in which the tag is part of the page, return whether it is in HEAD."""
        attributes = tag[3]
        foreign = name in FOREIGN_ROOTS or any(state.open for state in here)
        closed = foreign and attributes.endswith("/") and _is_closed(attributes)
        places: list[bool] = []
        behind: int | None = None
        for state in here:
            for after, is_text in self._followed(state.end(name) if tag[1] else state.start(name, closed=closed)):
                if not after.templates:
                    places.append(after.in_head)
                if not is_text:
                    self._go_on(after, tag.end())
                    continue
                if behind is None:
                    behind = _after_text(self._text, tag.end(), name)
                    self._room -= behind - tag.end()
                self._go_on(after, behind)
        return places

    def _over_markup(self, here: list[TreeState], at: int) -> None:
        """Process markup that is not a complete tag."""
        if not self._text.startswith("<![CDATA[", at):
            behind = _after_markup(self._text, at)
            self._room -= behind - at
            for state in here:
                self._go_on(state, behind)
            return
        for state in here:
            for is_section in self._followed(state.cdata()):
                behind = _behind(self._text, "]]>" if is_section else ">", at)
                self._room -= behind - at
                self._go_on(replace(state), behind)

    def _followed(self, branches: Sequence[_Branch]) -> Sequence[_Branch]:
        """Return all branches while the limit of work permits, otherwise only the first branch."""
        if self._room >= 0 or len(branches) == 1:
            return branches
        self.partial = True
        return branches[:1]

    def _go_on(self, state: TreeState, at: int) -> None:
        """Find the next markup from a place of the text, and add the state there."""
        if self._head_only and state.at_body:
            return
        markup = _MARKUP.search(self._text, at)
        end = len(self._text) if markup is None else markup.start()
        self._room -= end - at
        if state.in_head and _says_something(self._text[at:end]):
            state.text()
        if markup is None:
            self.in_head |= state.in_head
            return
        beside = self._ahead.get(end)
        if beside is not None and state in beside:
            return
        if len(self._ahead if beside is None else beside) >= _MAX_STATES:
            self.partial = True
        else:
            self._ahead.setdefault(end, []).append(state)


def _tag(name: str, attributes: str, *, in_head: bool) -> Tag:
    first = _FIRST_ATTRIBUTES.match(attributes).end()  # type: ignore[union-attr] # always matches
    return Tag(name, attributes[:first], in_head, first < len(attributes))


def _says_something(text: str) -> bool:
    said = text.strip(_FAULTS)
    return bool(unescape(said).strip(_FAULTS) if "&" in said else said)


def _is_closed(attributes: str) -> bool:
    """Whether a tag closes itself, by a slash at its end that is not part of a value (13.2.5.40)."""
    last = ""
    for run in _ONE_ATTRIBUTE.finditer(attributes):
        last = run[0]
    return last.startswith(tuple(ASCII_WHITESPACE + "/"))


def _behind(text: str, end: str, at: int) -> int:
    """Return the place after the next ``end``, or the end of the page."""
    found = text.find(end, at)
    return len(text) if found < 0 else found + len(end)


def _after_markup(text: str, at: int) -> int:
    """Return the end of markup that is not a complete tag."""
    if text.startswith("<!--", at):
        if text.startswith((">", "->"), at + 4):  # 13.2.5.43: an abruptly closed comment
            return _behind(text, ">", at + 4)
        end = _COMMENT_END.search(text, at + 4)
        return len(text) if end is None else end.end()
    if _TAG_OPEN.match(text, at) is not None:
        return len(text)  # the tag has no end
    return _behind(text, ">", at)  # 13.2.5.41: a bogus comment


def _after_text(text: str, at: int, name: str) -> int:
    """Return the end of the content of an element that contains only text."""
    if name == "script":
        return _after_script(text, at)
    end = _TEXT_END[name].search(text, at) if name != "plaintext" else None
    return len(text) if end is None else end.start()


def _after_script(text: str, at: int) -> int:
    """Return the start of a script's end tag, or the end of the page.

    Each token of a script leads from a state to the state in the table:

    =====================  ===================  =======================  =======================  ==============
    state (13.2.5)         ``<!--``             ``-->``                  ``<script``              ``</script``
    =====================  ===================  =======================  =======================  ==============
    script data            escaped              script data              script data              the end
    escaped                escaped              script data              double escaped           the end
    double escaped         double escaped       script data              double escaped           escaped
    =====================  ===================  =======================  =======================  ==============

    The dashes of ``<!--`` may belong to ``-->``: ``<!-->`` and ``<!--->`` leave the state as script data.
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
    return len(text)

"""Reads the METAs, the base URL and the links of an HTML page. Pure; needs the extra ``html``.

``tags`` finds the tags in linear time, and Lexbor (through selectolax) reads their attributes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.text import needing
from politesse.page.encoding import decoded
from politesse.page.tags import ASCII_WHITESPACE, Scan, Tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from selectolax.lexbor import LexborHTMLParser


MAX_BYTES: Final = 524_288
"""How many octets of a page are read by default."""

MAX_METAS: Final = 4_096
MAX_BASES: Final = 16
MAX_LINKS: Final = 65_536
"""How many links of each kind, A and AREA, are read at most."""
MAX_LICENSES: Final = 256

_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_UNKNOWN_TYPES: Final = frozenset({"unknown/unknown", "application/unknown", "*/*"})  # WHATWG MIME Sniffing 7
_REL_WORD = re.compile(r"[a-z0-9:./_-]+")  # any other character separates words, so that no nofollow is missed
_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+/[!#$%&'*+.^_`|~0-9a-z-]+")
_MARKUP = re.compile(
    r"[\t\n\f\r \0]*+<(?:!--|!doctype[\t\n\f\r ]html|\?xml|(?:html|head|meta|title|link|base|script|style|body|"
    r"noscript|template|h1|div|p|a|br|b|table|font|iframe)[\t\n\f\r />])",
    re.IGNORECASE,
)
_MAX_SNIFFED: Final = 4_096

_HEAD_NAMES: Final = frozenset({"meta", "base", "link"})
_LINK_NAMES: Final = frozenset({"a", "area"})
# Added as the first attribute of a tag, because parsers ignore a later attribute with the same name.
_NUMBER: Final = "politesse-number"


class Meta(NamedTuple):
    """A META element with a name.

    >>> Meta("robots", "noindex").content
    'noindex'

    Attributes:
        name: the name as written, without surrounding whitespace.
        content: the content as written, or empty.
    """

    name: str
    content: str


class Link(NamedTuple):
    """An A or AREA element with an address.

    >>> Link("/login", ("nofollow",)).rel
    ('nofollow',)

    Attributes:
        href: the address as written.
        rel: the relation types, in lower case.
    """

    href: str
    rel: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Html:
    """The elements of an HTML page that matter to crawlers.

    >>> html = read_html(b'<meta name="robots" content="noindex">', "text/html")
    >>> html.metas
    (Meta(name='robots', content='noindex'),)

    Attributes:
        metas: the METAs of HEAD in order; with ``in_body`` also the METAs of BODY.
        base_href: the first ``<base href>`` as written, or None.
        links: the links in order; empty unless ``read_html`` was called with ``links``.
        encoding: the encoding of the page, by Python's name.
        truncated: whether a limit was reached, so that some elements may be missing.
        licenses: the addresses of ``<link rel="license">`` as written, in the parts of the page whose METAs count.
    """

    metas: tuple[Meta, ...] = ()
    base_href: str | None = None
    links: tuple[Link, ...] = ()
    encoding: str = "utf-8"
    truncated: bool = False
    licenses: tuple[str, ...] = ()


def may_be_html(content_type: str) -> bool:
    """Whether a body with this media type may be HTML: true for the types of HTML, unknown types and invalid types.

    Examples of invalid types are ``html``, and a type with a blank inside (WHATWG MIME Sniffing 4.4).

    >>> may_be_html("text/html; charset=utf-8"), may_be_html(""), may_be_html("image/png")
    (True, True, False)
    """
    types = _media_types(content_type)
    if types & _HTML_TYPES:
        return True
    return all(one in _UNKNOWN_TYPES or _TYPE.fullmatch(one) is None for one in types)


def is_html(body: bytes | str, content_type: str = "") -> bool:
    """Whether a body is HTML, by its media type; by its first octets if the type is unknown or invalid.

    >>> is_html(b"<!doctype html>"), is_html(b"User-agent: *")
    (True, False)
    """
    if _media_types(content_type) & _HTML_TYPES:
        return True
    return may_be_html(content_type) and _MARKUP.match(decoded(body[:_MAX_SNIFFED])[0]) is not None


def read_html(
    body: bytes | str,
    content_type: str = "",
    *,
    in_body: bool = False,
    links: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Html | None:
    """Read a page, or return None if it is not HTML.

    Time and memory are linear in ``max_bytes``. No content raises an error.

    Args:
        body: the octets of the page, without content coding, or its text.
        content_type: the value of the header, or empty.
        in_body: whether METAs in BODY also count, as they do for Google.
        links: whether to read the links.
        max_bytes: how many octets, or characters of a text, are read; the rest is ignored.

    Raises:
        ImportError: the extra ``html`` is not installed.
    """
    if not is_html(body, content_type):
        return None
    text, encoding = decoded(body[:max_bytes], content_type)
    scan = Scan(text, _HEAD_NAMES | _LINK_NAMES if links else _HEAD_NAMES, head_only=not (in_body or links))
    kept, full = _wanted(scan, in_body=in_body)
    truncated = full or scan.partial or any(tag.cut for tag in kept)
    if len(body) > max_bytes:
        truncated = truncated or in_body or links or scan.in_head
    return _collected(_read(kept), encoding, truncated=truncated)


def _media_types(content_type: str) -> set[str]:
    return {one.partition(";")[0].strip().lower() for one in content_type.split(",")}


def _wanted(tags: Iterable[Tag], *, in_body: bool) -> tuple[list[Tag], bool]:
    """Return the tags whose attributes have to be parsed, and whether their number was limited."""
    rooms = dict.fromkeys(_LINK_NAMES, MAX_LINKS) | {"meta": MAX_METAS, "base": MAX_BASES, "link": MAX_LICENSES}
    kept: list[Tag] = []
    full = False
    for tag in tags:
        if _is_of_use(tag, in_body=in_body):
            full = full or not rooms[tag.name]
            if rooms[tag.name]:
                rooms[tag.name] -= 1
                kept.append(tag)
    return kept, full


def _is_of_use(tag: Tag, *, in_body: bool) -> bool:
    if tag.name == "meta":
        return tag.in_head or in_body
    if tag.name == "link":
        return (tag.in_head or in_body) and "license" in tag.attributes.lower()
    return "href" in tag.attributes.lower()


def _read(tags: Iterable[Tag]) -> list[tuple[str, dict[str, str]]]:
    """Return the name and the attributes of each tag. The tags are parsed as siblings, because nesting is slow."""
    numbered = list(tags)
    if not numbered:
        return []
    markup = "".join(
        f'<{tag.name} {_NUMBER}="{number}" {tag.attributes}>' + ("" if tag.name in _HEAD_NAMES else f"</{tag.name}>")
        for number, tag in enumerate(numbered)
    )
    read: dict[int, dict[str, str]] = {}
    root = _parser()(markup).root
    for node in root.traverse() if root is not None else ():
        attributes = node.attributes
        number = attributes.get(_NUMBER)
        if number is not None and number.isdecimal():
            read[int(number)] = {name.lower(): value or "" for name, value in attributes.items()}
    return [(tag.name, read.get(number, {})) for number, tag in enumerate(numbered)]


def _collected(elements: Iterable[tuple[str, dict[str, str]]], encoding: str, *, truncated: bool) -> Html:
    metas: list[Meta] = []
    links: list[Link] = []
    licenses: list[str] = []
    base_href: str | None = None
    for name, attributes in elements:
        if name == "meta":
            if "name" in attributes:
                metas.append(Meta(attributes["name"].strip(ASCII_WHITESPACE), attributes.get("content", "")))
        elif name == "base":
            base_href = attributes.get("href") if base_href is None else base_href
        elif "href" in attributes:
            relations = tuple(_REL_WORD.findall(attributes.get("rel", "").lower()))
            if name != "link":
                links.append(Link(attributes["href"], relations))
            elif "license" in relations:
                licenses.append(attributes["href"])
    return Html(tuple(metas), base_href, tuple(links), encoding, truncated, tuple(licenses))


def _parser() -> type[LexborHTMLParser]:
    with needing("reading HTML", "html"):
        from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - an extra
    return LexborHTMLParser

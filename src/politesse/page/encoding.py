"""Decodes the octets of a page, and finds the encoding of XML. Pure.

WHATWG HTML 13.2.3: a byte order mark, the Content-Type, or a META in the first octets names the encoding; without a
known name, the encoding is UTF-8. There is one deviation: without a byte order mark, UTF-16 is used only if the octets
look like UTF-16. They must start with a tag in UTF-16, or many octets at even or at odd places must be NUL. Without
this check, a wrong label would hide the directives of a page.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # comes before UTF-16, whose mark is the beginning of this mark
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# The encodings of WHATWG Encoding 4.2, by Python's names. Other codecs of Python may take more than linear time, or are
# not text encodings.
_KNOWN: Final = frozenset(
    {"utf-8", "cp866", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8"}
    | {"iso8859-10", "iso8859-13", "iso8859-14", "iso8859-15", "iso8859-16", "koi8-r", "koi8-u", "mac-roman", "cp874"}
    | {"cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "mac-cyrillic"}
    | {"gbk", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "shift_jis", "cp932", "euc_kr", "cp949"}
)
# Those labels of WHATWG Encoding 4.2 that Python does not know; it knows most without their "x-".
_LABELS: Final = {"windows-31j": "cp932", "windows-949": "cp949", "ks_c_5601-1989": "cp949", "x-x-big5": "big5"} | {
    "windows-874": "cp874",
    "dos-874": "cp874",
    "iso-8859-8-i": "iso8859-8",
    "unicode-1-1-utf-8": "utf-8",
}
_SUPERSETS: Final = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874"} | (
    {"tis-620": "cp874", "gb2312": "gb18030", "johab": "euc_kr", "utf-8-sig": "utf-8"}
)
_CHARSET = re.compile(r"charset[\t\n\f\r ]*=[\t\n\f\r ]*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9_.:-]{1,40})[\"']")
_NOT_IN_ASCII: Final = ("utf-16", "utf16", "utf_16", "ucs-2")
_META = re.compile(r"<meta[\t\n\f\r /][^>]*", re.IGNORECASE)
_UTF_16_MARKUP: Final = (  # a tag, a comment or a declaration, after nothing but whitespace
    ("utf-16-le", re.compile(rb"(?:[\t\n\f\r ]\0)*+<\0[A-Za-z!?]\0")),
    ("utf-16-be", re.compile(rb"(?:\0[\t\n\f\r ])*+\0<\0[A-Za-z!?]")),
)
_PRESCAN: Final = 1024
_LOOKED_AT: Final = 256


def decoded(octets: bytes | str, content_type: str = "") -> tuple[str, str]:
    """Return the text of a page, and the name of its encoding; never raises.

    Invalid octets become U+FFFD. ``content_type`` is the value of the header. A str is decoded already; only its lone
    surrogates, which no parser takes, are replaced.
    """
    if isinstance(octets, str):
        return octets.removeprefix("\ufeff").encode("utf-8", "replace").decode(), "utf-8"
    for mark, name in _BYTE_ORDER_MARKS:
        if octets.startswith(mark):
            return octets[len(mark) :].decode(name, "replace"), name
    name = _utf_16(octets) or _declared(content_type) or _prescanned(octets) or "utf-8"
    return octets.decode(name, "replace"), name


def encoding_of_xml(start: bytes) -> str | None:
    """Return Python's name for the encoding of an XML file by its first octets; None if it states an unknown one.

    XML 4.3.3: a byte order mark or the declaration states the encoding; otherwise it is UTF-8. Libraries write names
    that no registry has, such as ``utf8``. .NET writes ``utf-16`` into files in UTF-8.
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    declared = _XML_ENCODING.match(start)
    if declared is None:
        return _utf_16(start) or "utf-8"
    label = declared[1].decode().lower()
    return _known(label) or ("utf-8" if label.startswith(_NOT_IN_ASCII) else None)


def _utf_16(octets: bytes) -> str | None:
    """Return the UTF-16 encoding that the octets seem to have, or None.

    A page that starts with markup in UTF-16 has this encoding. Otherwise, Latin-1 characters in the first 256 octets
    decide: in UTF-16, one octet of each is NUL. More than half of the octets at even places must be NUL and none at odd
    places, or the other way around.
    """
    for name, markup in _UTF_16_MARKUP:
        if markup.match(octets) is not None:
            return name
    start = octets[:_LOOKED_AT]
    even, odd = start[::2].count(0), start[1::2].count(0)
    if 4 * odd > len(start) and not even:
        return "utf-16-le"
    return "utf-16-be" if 4 * even > len(start) and not odd else None


def _declared(text: str) -> str | None:
    label = _CHARSET.search(text)
    return None if label is None else _known(label[1].lower())


def _known(label: str) -> str | None:
    """Return Python's name for a label in lower case; None if the label names no encoding of the web."""
    try:
        name = codecs.lookup(_LABELS.get(label, label.removeprefix("x-"))).name
    except LookupError:
        return None
    name = _SUPERSETS.get(name, name)
    return name if name in _KNOWN else None


def _prescanned(octets: bytes) -> str | None:
    start = octets[:_PRESCAN].decode("latin-1")
    return next((name for meta in _META.findall(start) if (name := _declared(meta)) is not None), None)

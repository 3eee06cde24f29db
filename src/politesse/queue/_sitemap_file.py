"""Reads a sitemap file as it arrives. Pure.

Theory of operation. ``feed`` takes the octets of the file in chunks of any size, and yields the entries slice by slice:

- a file that begins with the magic number of gzip is unpacked, whatever its name and type;
- the first octets then decide between XML, which expat parses, and text with one URL in a line;
- the root element of XML decides between a urlset, an index of sitemap files, RSS 2.0 and Atom.

Names are compared without namespaces, because many files state no namespace, or a wrong namespace. An element with
another prefix than the root belongs to an extension, such as ``<image:loc>``.

The file is untrusted. A slice of 8 KiB takes less than 3 ms. Memory is bounded by limits on the length of a tag and of
a text, on the nesting, and on the number of different names, which expat keeps. The reader stops where a file exceeds a
limit, and at a document type, which could declare entities. The entries before that point are valid.

Source: https://www.sitemaps.org/protocol.html, W3C NOTE-datetime, RFC 4287 (Atom), the specification of RSS 2.0.
"""

from __future__ import annotations

import re
import zlib
from codecs import getincrementaldecoder
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.parsers.expat import ErrorString, ExpatError, ParserCreate, errors

from politesse._base.text import shortened
from politesse.origin import MAX_URL_LENGTH
from politesse.page.encoding import encoding_of_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_BYTES: Final = 52_428_800
"""The octets of an unpacked file (sitemaps.org, "XML Sitemap format")."""

MAX_ENTRIES: Final = 50_000
"""The URLs of a file, or the files of an index (sitemaps.org, the same section)."""

_SLICE: Final = 8 * 1024
_PACKED_SLICE: Final = 4 * 1024  # all that follows a member is copied, and a member may have 20 octets
_HEAD: Final = 16  # this many octets show the format
_MAX_DECLARATION: Final = 256  # octets of the XML declaration, which states the encoding
_MAX_TAG: Final = 32 * 1024  # octets of a tag or a comment
_MAX_DEPTH: Final = 32
_MAX_NAMES: Final = 1_000
_GZIP: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 31  # for zlib: a gzip header, and the largest window
_XML_BEGINS: Final = (b"<", b"\xff\xfe", b"\xfe\xff")  # "<", and the two byte order marks of UTF-16
_HTML_BEGINS: Final = re.compile(rb"<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_URL_BEGINS: Final = re.compile(rb"https?://", re.IGNORECASE)
_ENDS_EARLY: Final = {
    errors.XML_ERROR_NO_ELEMENTS,
    errors.XML_ERROR_UNCLOSED_TOKEN,
    errors.XML_ERROR_PARTIAL_CHAR,
    errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
}
_PERIOD: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


class _Format(NamedTuple):
    """A format of XML: the elements that lead to an entry, and the elements of its URL and of its date."""

    path: list[str]
    url: str
    date: str


_INDEX: Final = "sitemapindex"
_ATOM: Final = "feed"
_FORMATS: Final = {
    "urlset": _Format(["urlset", "url"], "loc", "lastmod"),
    _INDEX: _Format([_INDEX, "sitemap"], "loc", "lastmod"),
    "rss": _Format(["rss", "channel", "item"], "link", "pubDate"),
    _ATOM: _Format([_ATOM, "entry"], "link", "updated"),
}


class SitemapEntry(NamedTuple):
    """An entry of a sitemap file.

    Attributes:
        url: the URL as written, without blanks around it; not validated.
        date: the date of the last change, as written; empty if there is none.
    """

    url: str
    date: str = ""


class _Fault(Exception):
    """The rest of the file cannot be read; the message is a phrase."""


class SitemapFile:
    """One sitemap file.

    Args:
        is_in_index: whether an index lists the file. If so, the file must not be an index.

    Attributes:
        is_index: whether the entries are sitemap files, not pages; valid from the first entry on.
        fault: why the rest of the file cannot be read; empty without a fault.

    Example:
        >>> file = SitemapFile()
        >>> octets = b"<urlset><url><loc>https://example.com/</loc><lastmod>2026-11</lastmod></url>"
        >>> [entry for entries in file.feed(octets) for entry in entries]
        [SitemapEntry(url='https://example.com/', date='2026-11')]
        >>> list(file.feed(b"", is_end=True)), file.fault
        ([[]], 'line 1: ends early')
    """

    def __init__(self, *, is_in_index: bool = False) -> None:
        self._is_in_index = is_in_index
        self.fault = ""
        self._found: list[SitemapEntry] = []
        self._entries = self._octets = self._packed = 0
        self._head = b""  # the first octets, until they show the format
        self._line = 1  # the line at which the content begins
        self._is_packed: bool | None = None
        self._unpacking = zlib.decompressobj(_GZIP_BITS)
        self._xml: _XmlReader | None = None
        self._rest: bytes | None = None  # the incomplete last line of a text file

    @property
    def is_index(self) -> bool:
        """See the class."""
        return self._xml is not None and self._xml.is_index

    def feed(self, octets: bytes, *, is_end: bool = False) -> Iterator[list[SitemapEntry]]:
        """Read the next octets, and yield the entries of each slice; with ``is_end``, the file ends here."""
        if self.fault:
            return
        try:
            for piece in self._unpacked(octets, is_end=is_end):
                self._read(piece)
                yield self._taken()
            if is_end:
                self._read(b"", is_end=True)
        except _Fault as fault:
            self.fault = str(fault)
        except zlib.error as error:
            self.fault = f"is damaged: {error}"
        yield self._taken()

    def _taken(self) -> list[SitemapEntry]:
        found = self._found.copy()
        self._found.clear()
        return found

    def _unpacked(self, octets: bytes, *, is_end: bool) -> Iterator[bytes]:
        """Yield the next octets in slices, unpacked if the file is packed."""
        if self._is_packed is None:
            octets = self._head + octets
            if len(octets) < len(_GZIP) and not is_end:
                self._head = octets
                return
            self._head, self._is_packed = b"", octets.startswith(_GZIP)
        if not self._is_packed:
            for start in range(0, len(octets), _SLICE):
                yield octets[start : start + _SLICE]
            return
        self._packed += len(octets)
        if self._packed > MAX_BYTES:  # gzip data may go on without end and unpack to nothing
            raise _Fault(f"has more than {MAX_BYTES:,} octets")
        for start in range(0, len(octets), _PACKED_SLICE):
            yield from self._unpacked_slice(octets[start : start + _PACKED_SLICE])
        if is_end and not self._unpacking.eof:
            raise _Fault("is damaged: its gzip data ends early")

    def _unpacked_slice(self, packed: bytes) -> Iterator[bytes]:
        while packed:
            if self._unpacking.eof:  # RFC 1952 2.2: a file may have several members; servers pad files with zeros
                packed = packed.lstrip(b"\0")
                if not packed:
                    return
                self._unpacking = zlib.decompressobj(_GZIP_BITS)
            yield self._unpacking.decompress(packed, _SLICE)
            packed = self._unpacking.unconsumed_tail or self._unpacking.unused_data

    def _read(self, piece: bytes, *, is_end: bool = False) -> None:
        """Read the next unpacked octets; raises _Fault."""
        self._octets += len(piece)
        if self._octets > MAX_BYTES:
            raise _Fault(f"has more than {MAX_BYTES:,} octets")
        if self._xml is None and self._rest is None:
            read = self._head + piece
            piece = self._head = read.removeprefix(b"\xef\xbb\xbf").lstrip()  # the byte order mark of UTF-8
            self._line += read.count(b"\n") - piece.count(b"\n")
            is_cut = piece.startswith(b"<?xml") and b">" not in piece and len(piece) < _MAX_DECLARATION
            if (len(piece) < _HEAD or is_cut) and not is_end:
                return
            self._choose(piece)
        if self._xml is not None:
            self._xml.read(piece, is_end=is_end)
        elif self._rest is not None:
            *lines, rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
            self._rest = rest[: MAX_URL_LENGTH + 1]
            for line in [*lines, rest] if is_end else lines:
                if line := line.strip():
                    self._add(SitemapEntry(line.decode(errors="surrogateescape")))

    def _choose(self, head: bytes) -> None:
        """Choose the format by the first octets; raises _Fault."""
        if not head:
            raise _Fault("is empty")
        if _HTML_BEGINS.match(head):
            raise _Fault("is an HTML page")
        if head.startswith(_XML_BEGINS):
            self._xml = _XmlReader(self._add, self._line, encoding_of_xml(head), is_in_index=self._is_in_index)
        elif _URL_BEGINS.match(head):
            self._rest = b""
        else:
            text = head[:_HEAD].decode(errors="replace")
            raise _Fault(f"line {self._line}: is neither XML nor a list of URLs: {text!r}")

    def _add(self, entry: SitemapEntry) -> None:
        if self._entries == MAX_ENTRIES:
            raise _Fault(f"has more than {MAX_ENTRIES:,} entries")
        self._entries += 1
        self._found.append(entry)


class _XmlReader:
    """Reads the entries of XML.

    Args:
        add: called with each entry.
        line: the line of the file at which the XML begins.
        encoding: Python's name for the encoding, or None if only expat knows it.
        is_in_index: see SitemapFile.
    """

    def __init__(
        self, add: Callable[[SitemapEntry], None], line: int, encoding: str | None, *, is_in_index: bool
    ) -> None:
        self._add = add
        self._line = line
        self._is_in_index = is_in_index
        self.is_index = False
        self._names: dict[str, str] = {}
        # expat reads no encoding of several octets but UTF-8 and UTF-16, and those by their registered names only.
        self._decoder = getincrementaldecoder(encoding)("replace") if encoding and encoding != "utf-8" else None
        self._parser = ParserCreate(encoding and "utf-8", None, self._names)
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._on_document_type
        self._parser.StartElementHandler = self._on_start
        self._parser.CharacterDataHandler = self._on_text
        self._parser.EndElementHandler = self._on_end
        self._octets = 0
        self._prefix = ""
        self._format = _FORMATS["urlset"]
        self._path: list[str] = []  # the names of the open elements
        self._url = self._date = ""
        self._text: str | None = None  # the text of the open URL or date

    def read(self, piece: bytes, *, is_end: bool) -> None:
        """Read the next octets; raises _Fault."""
        if self._decoder is not None:
            piece = self._decoder.decode(piece, is_end).encode()
        self._octets += len(piece)
        try:
            self._parser.Parse(piece, is_end)
            self._check_limits()
        except (_Fault, ExpatError, LookupError, ValueError) as error:  # LookupError, ValueError: unknown encoding
            if isinstance(error, ExpatError) and ErrorString(error.code) in _ENDS_EARLY:
                problem = "ends early"
            else:
                problem = str(error).partition(": line ")[0]  # the message of expat, without the line
            raise _Fault(f"line {self._line - 1 + self._parser.CurrentLineNumber}: {problem}") from None

    def _check_limits(self) -> None:
        if self._octets - self._parser.CurrentByteIndex > _MAX_TAG:
            raise _Fault(f"has a tag of more than {_MAX_TAG:,} octets")
        if len(self._names) > _MAX_NAMES:
            raise _Fault(f"has more than {_MAX_NAMES:,} different names")

    def _on_document_type(self, *_: object) -> None:
        raise _Fault("has a document type, which may declare entities")

    def _on_start(self, name: str, attributes: Mapping[str, str]) -> None:
        prefix, _, local = name.rpartition(":")
        if not self._path:
            self._begin(prefix, local)
        elif len(self._path) == _MAX_DEPTH:
            raise _Fault(f"has more than {_MAX_DEPTH} elements in each other")
        self._path.append(local if prefix == self._prefix else name)
        *above, name = self._path
        if self._path == self._format.path:
            self._url = self._date = ""
        elif self._text is not None or (above == self._format.path and name in self._format[1:]):
            self._text = ""  # a URL or a date contains no elements, so the text before an element is dropped
            if self._path == [*_FORMATS[_ATOM].path, "link"] and attributes.get("rel", "alternate") == "alternate":
                self._url = attributes.get("href", "")

    def _begin(self, prefix: str, root: str) -> None:
        if root not in _FORMATS:
            raise _Fault("is an HTML page" if root.lower() == "html" else f"its root is <{shortened(root)}>")
        self._prefix, self._format, self.is_index = prefix, _FORMATS[root], root == _INDEX
        if self.is_index and self._is_in_index:
            # sitemaps.org, "Using Sitemap index files": an index lists sitemaps, and no other index
            raise _Fault("is an index, and is listed in an index")

    def _on_text(self, text: str) -> None:
        if self._text is not None and len(self._text) <= MAX_URL_LENGTH:
            self._text = (self._text + text).lstrip()

    def _on_end(self, _: str) -> None:
        if self._path == self._format.path:
            self._add(SitemapEntry(self._url, self._date))
        name = self._path.pop()
        if self._text is not None and self._path == self._format.path:
            if name == self._format.date:
                self._date = self._text.strip()
            else:
                self._url = self._text.strip() or self._url
            self._text = None


def latest_wall(date: str) -> float | None:
    """Return the latest Unix time that a date can mean; None if the date cannot be read.

    The date is a W3C datetime (a year, a month, a day, or a time), or a date of RFC 822, as in RSS. A date without a
    zone is in UTC.

    >>> [latest_wall(date) for date in ("1970", "1970-01-01", "1970-01-01T00:00:05.5+00:00", "yesterday")]
    [31535999.0, 86399.0, 5.5, None]
    """
    try:
        if (period := _PERIOD.fullmatch(date)) is not None:
            stated = [int(part) for part in period.groups() if part]
            year, month, day = (*stated, 1, 1)[:3]
            end = datetime(year, month, day, tzinfo=UTC) + timedelta(days=(366, 31, 1)[len(stated) - 1])
            return (end if len(stated) == 3 else end.replace(day=1)).timestamp() - 1  # noqa: PLR2004 - a day
        if ":" not in date:  # fromisoformat reads other dates of ISO 8601, such as a week, as their first moment
            return None
        time = datetime.fromisoformat(date) if date[:4].isdigit() else parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()

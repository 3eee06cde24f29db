"""Parses a data.txt ("A Method for Web Data Discovery"). Pure.

The draft uses the grammar of robots.txt in draft-koster-robots-00 and defines no fields. So the parser reports the
fields as written, in order, record by record. A crawler may replace the names of the fields by its own names. In a
data.txt, Allow and Disallow are ordinary fields, and have no effect on access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from politesse._base.text import printable
from politesse.robots.dialect import Syntax
from politesse.robots.lexer import decode, quirks_of, read_lines, split_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.robots.line import Line, Quirk

    FieldNames = Mapping[str, str] | Callable[[str], str]

DATA_TXT: Final = "/data.txt"
"""The path of the file, at the scheme, host and port that it describes ("A Method for Web Data Discovery" 3.1)."""

# "A Method for Web Data Discovery" 3.2 and 3.3: a misspelled name is not corrected, and a blank line ends a record.
_SYNTAX: Final = Syntax(fields=frozenset({"user-agent", "allow", "disallow"}), blank_lines=True)


@dataclass(frozen=True, slots=True)
class DataRecord:
    """A record of a data.txt: the lines between two blank lines. The content is untrusted.

    >>> DataRecord(agents=(), fields=(("Dataset", "/a.csv"), ("Dataset", "/b.csv"))).values("dataset")
    ('/a.csv', '/b.csv')

    Attributes:
        agents: the values of the User-agent lines; empty without such lines.
        fields: name and value of every line, including User-agent lines, in order; the names as written, or mapped by
            the ``fields`` argument of ``DataTxt.parse``. Comments and lines without a colon are omitted.
    """

    agents: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of all fields with this name, case-insensitive."""
        wanted = name.lower()
        return tuple(value for spelled, value in self.fields if spelled.lower() == wanted)


class DataTxt:
    r"""The content of a data.txt.

    >>> parsed = DataTxt.parse("User-agent: *\nDataset: /data.csv  # all of it", fields={"dataset": "distribution"})
    >>> parsed.records[0].values("distribution")
    ('/data.csv',)

    Attributes:
        records: the records with at least one field, in the order of the file.
        quirks: the deviations of the whole file; LOOKS_LIKE_HTML if the server sent a web page in place of the file.
    """

    __slots__ = ("_decoded", "quirks", "records")

    def __init__(self, decoded: str, found: tuple[DataRecord, ...], quirks: tuple[Quirk, ...]) -> None:
        self._decoded = decoded
        self.records: tuple[DataRecord, ...] = found
        self.quirks: tuple[Quirk, ...] = quirks

    @classmethod
    def parse(cls, body: bytes | str, *, fields: FieldNames | None = None) -> Self:
        """Parse a data.txt. Any content is parsed without an error; time and memory are linear in its length.

        Args:
            body: the content of the file.
            fields: new names of fields: a mapping from lower-case names, such as ``{"dataset": "distribution"}``, or a
                function of the name as written. Names that are not in the mapping stay unchanged.
        """
        text, quirks = decode(body, None)
        called = _namer(fields)
        rows: list[list[Line]] = [[]]  # the lines of each record
        for line in read_lines(text, _SYNTAX):
            if line is None:
                rows.append([])
            else:
                rows[-1].append(line)
        found = tuple(record for one in rows if (record := _record(one, called)).fields)
        return cls(text, found, quirks + quirks_of(text))

    @property
    def text(self) -> str:
        """The text of the file, including comments; unprintable characters except tabs are escaped."""
        return "\n".join("\t".join(map(printable, row.split("\t"))) for row in split_rows(self._decoded))

    def __repr__(self) -> str:
        return f"<DataTxt: {len(self.records)} records>"


def _namer(fields: FieldNames | None) -> Callable[[str], str]:
    if fields is None:
        return str
    if callable(fields):
        return fields
    names = {name.lower(): called for name, called in fields.items()}
    return lambda name: names.get(name.lower(), name)


def _record(rows: Sequence[Line], called: Callable[[str], str]) -> DataRecord:
    return DataRecord(
        tuple(line.value for line in rows if line.field == "user-agent"),
        tuple((called(line.name), line.value) for line in rows if line.field),
    )

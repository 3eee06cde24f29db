"""What a data.txt says: "A Method for Web Data Discovery". Pure.

The draft took over the grammar of robots.txt as draft-koster-robots-00 has it, and gives no field a meaning of its own:
so the fields are told as they stand, in order, record by record, and a crawler may bring names of its own for them.
Allow and Disallow are fields like all others here: they open and close nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from politesse._text import printable
from politesse.robots.lexer import decode, lex, records, split_rows
from politesse.robots.traits import Syntax

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.robots.line import Line, Quirk

    FieldNames = Mapping[str, str] | Callable[[str], str]

DATA_TXT: Final = "/data.txt"
"""Where it lives, at the scheme, host and port that it speaks of ("A Method for Web Data Discovery" 3.1)."""

# "A Method for Web Data Discovery" 3.2 and 3.3: no misspelling is forgiven, and a blank line ends a record.
_SYNTAX: Final = Syntax(fields=frozenset({"user-agent", "allow", "disallow"}), blank_lines=True)


@dataclass(frozen=True, slots=True)
class DataRecord:
    """The lines between two blank ones. What they say is untrusted.

    Attributes:
        agents: the values of its User-agent lines: whom it is meant for; none where it does not say.
        fields: name and value of every line, User-agent lines included, in order; the names as they are spelled, or
            as the reader was told to call them. Comments are gone, and so is what has no colon.
    """

    agents: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of the fields of a name, in whatever case it is spelled."""
        wanted = name.lower()
        return tuple(value for spelled, value in self.fields if spelled.lower() == wanted)


class DataTxt:
    """A data.txt, read.

    Attributes:
        records: in the order of the file, those with at least one field.
        quirks: what was unusual about the file as a whole; LOOKS_LIKE_HTML where a web page was sent instead.
    """

    __slots__ = ("_decoded", "quirks", "records")

    def __init__(self, decoded: str, found: tuple[DataRecord, ...], quirks: tuple[Quirk, ...]) -> None:
        self._decoded = decoded
        self.records = found
        self.quirks = quirks

    @classmethod
    def parse(cls, body: bytes | str, *, fields: FieldNames | None = None) -> Self:
        """Read a data.txt. Never raises on content; time and memory are linear in its length.

        ``fields`` gives names to the fields: what to call them, by their names in lower case, as in
        ``{"dataset": "distribution"}``, the others staying as they are; or a function of the name as it is spelled.
        """
        lexed = lex(body, _SYNTAX)
        called = _namer(fields)
        found = tuple(_record(lines, called) for lines in records(lexed))
        return cls(decode(body, None)[0], tuple(record for record in found if record.fields), lexed.quirks)

    @property
    def text(self) -> str:
        """The file for people, comments included, with whatever could steer a terminal escaped."""
        # Blanks and tabs align what people write, and harm nobody.
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


def _record(lines: Sequence[Line], called: Callable[[str], str]) -> DataRecord:
    return DataRecord(
        tuple(line.value for line in lines if line.field == "user-agent"),
        tuple((called(line.name), line.value) for line in lines if line.field),
    )

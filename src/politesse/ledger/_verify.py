"""Checks the chain of a ledger.

Theory of operation. Each row has the SHA-256 of the hash of the previous row, and of its own number, kind and content.
The first row of a file continues from the seal of the previous file. A snapshot names the SHA-256 of its body. So the
check finds the first row that was altered, removed, inserted or swapped, an altered or missing body, and a missing file
between two other files.

The chain does not prove that the end is complete: a person with write access can cut the last rows, or build the whole
chain anew. Note the last hash elsewhere from time to time, for example in a mail or a log on another machine. If a
ledger contains a noted hash, no row up to that hash has been changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from politesse.errors import StoreError
from politesse.ledger._file import begin_of
from politesse.ledger._reader import LedgerReader
from politesse.ledger._rows import BEGIN, CLOSE, DROPPED, OPEN, SEAL, SNAPSHOT, START, LedgerRow, content_read, hash_of

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of ``verify``.

    >>> Verification(rows=3, problem="row 4 was altered").is_intact
    False

    Attributes:
        files: how many files were read.
        rows: how many rows are intact, from the first on.
        head: the hash of the last intact row, in hexadecimal digits.
        problem: the first problem, with its file and row; or empty.
        dropped: how many items the writers have dropped, by their own count.
        unclosed: how many writers did not close the ledger: they were killed, or still write.
    """

    files: int = 0
    rows: int = 0
    head: str = ""
    problem: str = ""
    dropped: int = 0
    unclosed: int = 0

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not self.problem


def verify(path: str | os.PathLike[str], *, head: str = "") -> Verification:
    """Check every row of a ledger, up to the first problem; see the guide "Keep a ledger".

    Args:
        path: see LedgerReader.
        head: a hash that was noted earlier; one of the rows must have it. Empty for none.

    Raises:
        StoreError: there is no ledger, or another program or a newer politesse wrote the file.
    """
    with LedgerReader(path) as ledger:
        check = _Check(ledger)
        try:
            problem = check.problem(head)
        except (StoreError, ValueError) as error:  # SQLite cannot read the file
            problem = f"{error}, after row {check.last}"
        files, unclosed = len(ledger.paths), len(check.writers)
        return Verification(files, check.rows, check.hash.hex(), problem, check.dropped, unclosed)


class _Check:
    def __init__(self, ledger: LedgerReader) -> None:
        self._ledger = ledger
        self._file = self.last = self.rows = self.dropped = 0
        self._kind, self.hash = "", START
        self.writers: set[object] = set()

    def problem(self, head: str) -> str:
        """Check all rows; return the first problem, or an empty text."""
        is_seen = not head
        for number, row in self._ledger.rows():
            with self._ledger.blaming(number, row.number):
                problem = "" if number == self._file else self._changed_file(number, row)
                problem = problem or self._changed(number, row)
            if problem:
                return problem
            self.last, self._kind, self.hash = row.number, row.kind, row.hash
            self.rows += 1
            is_seen = is_seen or row.hash.hex() == head
        return "" if is_seen else f"no row has the noted hash {head}: rows are missing at the end, or all was made anew"

    def _changed_file(self, number: int, row: LedgerRow) -> str:
        """Check whether the first row of a file continues the previous file."""
        name, (previous, _) = self._ledger.paths[number].name, begin_of(row.content)
        if self._file and (number != self._file + 1 or self._kind != SEAL):
            return f"rows are missing between row {self.last} of {self._ledger.paths[self._file].name} and {name}"
        if not self._file and number > 1:  # the reader was given a later file, or earlier files were moved away
            self.hash = previous
        elif row.kind == BEGIN and previous != self.hash:
            return f"{name} is no file of this series, or has another number"
        self._file, self.last = number, 0
        return ""

    def _changed(self, number: int, row: LedgerRow) -> str:
        """Return how a row differs from the chain, or an empty text."""
        name, expected = self._ledger.paths[number].name, self.last + 1
        if row.number != expected:
            return f"row {expected} of {name} is missing"
        if row.hash != hash_of(self.hash, row.number, row.kind, row.content):
            return f"row {row.number} of {name} was altered, or rows before it were removed or swapped"
        content = content_read(row)
        if row.kind == SNAPSHOT and (digest := content.get("digest")):
            body = self._ledger.body(number, digest)
            if body is None or sha256(body).hexdigest() != digest:
                return f"row {row.number} of {name}: the file {digest} is {'missing' if body is None else 'altered'}"
        elif row.kind == DROPPED:
            self.dropped += content["rows"]
        elif row.kind == OPEN:
            self.writers.add(content["writer"])
        elif row.kind == CLOSE:
            self.writers.discard(content["writer"])
        return ""

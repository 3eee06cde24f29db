"""A ledger: a record of the decisions of a gatekeeper, and of the robots.txt on which each decision rests."""

from politesse.ledger._ledger import (
    Ledger,
    LedgerOptions,
    LedgerReader,
    RecordedDecision,
    RecordedNote,
    RecordedTurn,
    Snapshot,
    Verification,
    verify,
)

__all__ = [
    "Ledger",
    "LedgerOptions",
    "LedgerReader",
    "RecordedDecision",
    "RecordedNote",
    "RecordedTurn",
    "Snapshot",
    "Verification",
    "verify",
]

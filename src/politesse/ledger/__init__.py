"""A ledger: a record of the decisions of a gatekeeper, and of the robots.txt on which each decision rests."""

from politesse.ledger._file import RecordedDecision, RecordedTurn, Snapshot
from politesse.ledger._ledger import Ledger, LedgerOptions
from politesse.ledger._reader import LedgerReader, Verification, verify

__all__ = [
    "Ledger",
    "LedgerOptions",
    "LedgerReader",
    "RecordedDecision",
    "RecordedTurn",
    "Snapshot",
    "Verification",
    "verify",
]

"""A ledger: a record of what a gatekeeper decided, and of the robots.txt on which each decision rests."""

from politesse.ledger._reader import LedgerReader
from politesse.ledger._rows import RecordedDecision, RecordedTurn, Snapshot

__all__ = ["LedgerReader", "RecordedDecision", "RecordedTurn", "Snapshot"]

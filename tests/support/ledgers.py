"""Writes small ledgers, without a gatekeeper."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from politesse.ledger._ledger import LEDGER, START, Chain, Record, decision_of
from politesse.stores._sqlite_file import open_file
from politesse.verdict import Verdict


def write_ledger(path: Path, recorded: Iterable[Record | Verdict], *, previous: bytes = START) -> bytes:
    """Add rows to a file, which is made first if it is missing; return the last hash."""
    with closing(open_file(path, [LEDGER], busy_timeout_s=1.0)) as opened:
        opened.connection.execute("BEGIN IMMEDIATE")
        chain = Chain(opened.connection)
        if not chain.number:
            chain.begin(previous, 0.0)
        for one in recorded:
            chain.add_record(decision_of(one) if isinstance(one, Verdict) else one)
        chain.write()
        opened.connection.execute("COMMIT")
        return chain.hash

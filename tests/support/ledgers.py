"""Writes small ledgers, without a gatekeeper."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from politesse.ledger import Snapshot
from politesse.ledger._file import LEDGER, Chain
from politesse.ledger._rows import (
    DECISION,
    SNAPSHOT,
    START,
    TURN,
    fields_of_decision,
    fields_of_snapshot,
    fields_of_turn,
)
from politesse.stores._sqlite_opening import open_file
from politesse.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from politesse.ledger._rows import EndedTurn


def write_ledger(
    path: Path, recorded: Iterable[Snapshot | Verdict | EndedTurn], *, file: int = 1, previous: bytes = START
) -> bytes:
    """Add rows to a file, which is made first if it is missing; return the last hash. Bodies get their digests."""
    with closing(open_file(path, [LEDGER], busy_timeout_s=1.0)) as opened:
        opened.connection.execute("BEGIN IMMEDIATE")
        chain = Chain(opened.connection)
        if not chain.number:
            chain.begin("5e1e5", file, previous, 0.0)
        for one in recorded:
            if isinstance(one, Snapshot):
                if one.digest:
                    assert chain.keep(one.body) == one.digest
                chain.add(SNAPSHOT, fields_of_snapshot(one))
            elif isinstance(one, Verdict):
                chain.add(DECISION, fields_of_decision(one))
            else:
                chain.add(TURN, fields_of_turn(one))
        chain.write()
        opened.connection.execute("COMMIT")
        return chain.hash

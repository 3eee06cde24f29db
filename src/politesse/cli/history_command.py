"""``politesse ledger history``: how the robots.txt of a site changed, and which past decisions would differ today."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from politesse import Origin, RobotsTxt
from politesse._base.reasons import ALLOWING
from politesse.cli.console import output, record_of, say, say_record
from politesse.cli.diff_command import print_changes
from politesse.errors import StoreError
from politesse.ledger import LedgerReader, Snapshot
from politesse.robots.changes import FileStatement, RobotsChange, RobotsDiff, answer_of
from politesse.verdict import AccessResult, Reason

if TYPE_CHECKING:
    from pathlib import Path

_BY_RULES: Final = {Reason.ALLOW_RULE, Reason.DISALLOW_RULE, Reason.NO_RULE}
_BY_COPY: Final = _BY_RULES | {Reason.UNAVAILABLE, Reason.FORBIDDEN, Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS}
_WITH_RULES: Final = {AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE}
_COMPLETE_DISALLOW: Final = b"User-agent: *\nDisallow: /"


async def print_history(path: Path, origin: Origin, agents: list[str], *, as_json: bool) -> int:
    """Print each change of a robots.txt, then the decisions that the last copy would not repeat.

    Returns:
        The exit code.

    Raises:
        StoreError: the ledger cannot be read, or has no robots.txt of the origin.
    """
    last: Snapshot | None = None
    with LedgerReader(path) as ledger:
        for copy in ledger.snapshots(origin):
            if last is None or (copy.result, copy.digest) != (last.result, last.digest):
                record = record_of(copy, "fetched_wall result status digest fault")
                say_record(output(), record, as_json=as_json)
                if last is not None:
                    print_changes(RobotsDiff(_rules(last), _rules(copy), agents).changes(), as_json=as_json)
            last = copy
        if last is None:
            raise StoreError(f"the ledger {path} has no robots.txt of {origin}")
        different = _different(ledger, origin, _rules(last), agents)
    if not as_json:
        say(
            output(), "past decisions that the last copy would not repeat:" if different else "no past decision differs"
        )
    print_changes((replace(change, times=times) for change, times in different.items()), as_json=as_json)
    return int(bool(different))


def _rules(copy: Snapshot) -> RobotsTxt:
    """Return the file, or a file with the same effect as its absence."""
    return RobotsTxt.parse(copy.body if copy.result in _WITH_RULES else _COMPLETE_DISALLOW)


def _different(ledger: LedgerReader, origin: Origin, robots: RobotsTxt, agents: list[str]) -> Counter[RobotsChange]:
    """Count the decisions by robots.txt that a file would not repeat."""
    found: Counter[RobotsChange] = Counter()
    for past in ledger.decisions():
        tokens = tuple(past.agent.split(","))
        if past.reason in _BY_COPY and (not agents or set(agents) & set(tokens)) and Origin.of(past.url) == origin:
            match = robots.rules_for(tokens).match(past.url)
            if match.allowed is not (past.reason in ALLOWING):
                before = FileStatement(f"{'dis' * match.allowed}allowed, {past.rule or past.reason}", past.line)
                found[RobotsChange("decision", tokens, past.url, before, answer_of(match))] += 1
    return found

"""The audit of an access log of a million lines with a thousand planted violations of each kind.

The log is judged in a process of its own. Its findings have to be the planted violations, all of them and no others.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.audit_log import AGENT, FLOOR_S, FORMAT, planted_log
from benchmarks.table import table
from politesse.audit import Audit, AuditOptions
from politesse.audit._logs import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

_LINES: Final = 1_000_000
_EACH: Final = 1_000
_QUICK: Final = (4_000, 4)


def options_of(robots: dict[str, str]) -> AuditOptions:
    """Return the options of the audit of a planted log."""
    return AuditOptions(agents=(AGENT,), robots=robots, format=FORMAT, min_delay_s=FLOOR_S, is_whole=True)


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    lines, each = _QUICK if settings.quick else (_LINES, _EACH)
    log = planted_log(lines, each)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "access.log").write_text("\n".join(log.lines) + "\n", encoding="utf-8")
        Path(folder, "robots.json").write_text(json.dumps(log.robots), encoding="utf-8")
        started = time.perf_counter()
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "benchmarks.audit", folder], stdout=subprocess.PIPE, check=True
        )
        wall_s = time.perf_counter() - started
    report = json.loads(done.stdout)
    found = Counter({(kind, url): count for kind, url, count in report["found"]})
    missed, invented = log.planted - found, found - log.planted
    kinds = Counter({kind: 0 for kind, _ in log.planted})
    rows = []
    for kind in sorted(kinds):
        counts = [
            sum(count for (one, _), count in some.items() if one == kind) for some in (log.planted, missed, invented)
        ]
        rows.append([kind, *map(str, counts)])
    yield table("audit: violations", ("kind", "planted", "missed", "invented"), rows)
    yield (
        f"audit: {len(log.lines):,} lines, {log.garbage:,} of them garbage ({report['unreadable']:,} counted as such): "
        f"{wall_s:.1f} s of wall time, {report['user_s']:.1f} s of user CPU, at most {report['peak_mib']:.0f} MiB"
    )
    if missed or invented or report["unreadable"] != log.garbage:
        raise AssertionError(f"the findings differ: {missed.total()} missed, {invented.total()} invented")


def _judge(folder: str) -> None:
    robots = json.loads(Path(folder, "robots.json").read_text(encoding="utf-8"))
    audit = Audit(options_of(robots))
    found = Counter((one.kind, one.url) for one in audit.findings([Path(folder, "access.log")]))
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # ru_maxrss has the peak of the parent, too
    report = {
        "found": [[kind, url, count] for (kind, url), count in found.items()],
        "unreadable": audit.counts().get(Note.UNREADABLE, 0),
        "user_s": resource.getrusage(resource.RUSAGE_SELF).ru_utime,
        "peak_mib": int(re.findall(r"VmHWM:\s*(\d+)", status)[0]) / 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    _judge(sys.argv[1])

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from politesse.audit import Audit, AuditOptions

SITE = "https://example.com"
ROBOTS = "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n"
SENT = "ExampleBot/1.0 (+https://bot.example/)"

Judged = tuple[Audit, list[tuple[str, str]]]
Judge = Callable[..., Judged]


def combined(second: int, target: str, status: int = 200, agent: str = SENT) -> str:
    """A line in the Combined format, so many seconds after 10:00."""
    clock = f"{10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f'192.0.2.1 - - [26/Nov/2026:{clock} +0000] "GET {target} HTTP/1.1" {status} 10 "-" "{agent}"'


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Judge a log; return the audit, and the kind and the path of each finding."""

    def judged(*lines: str | bytes, name: str = "access.log", **options: Any) -> Judged:
        octets = b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines)
        (tmp_path / name).write_bytes(octets)
        defaults: dict[str, Any] = {"agents": ("ExampleBot",), "site": SITE, "robots": {SITE: ROBOTS}}
        audit = Audit(AuditOptions(**defaults | options))
        return audit, [(one.kind, one.url.removeprefix(SITE)) for one in audit.findings([tmp_path / name])]

    return judged

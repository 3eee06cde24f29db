"""The options of a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from politesse._base.checks import check_ranges, checked_names
from politesse.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Options of a ledger.

    >>> LedgerOptions(sample=0.01, files=["/llms.txt"]).max_file_bytes
    1073741824

    Attributes:
        sample: the share of the URLs whose allowed decisions and turns are recorded, 0 to 1. Denials and exemptions are
            always recorded. A checksum of the URL decides, so that the ledger has both the decision and the turn for a
            URL, or neither.
        files: the paths of files to record beside robots.txt, such as ``/llms.txt``. The gate requests each of them
            like a page, when it gets the robots.txt of an origin, and at most once a day. Files that the gate needs
            itself, such as tdmrep.json, are always recorded.
        max_queued_rows: how many rows may wait to be written; further rows are dropped and counted. A file is also
            dropped and counted if the waiting files would exceed 64 MiB.
        max_file_bytes: the size in bytes at which a file of the ledger is sealed, and the next file begins.
        max_file_age_s: the age in seconds at which a file of the ledger is sealed; infinite by default.

    Raises:
        ConfigurationError: a number is out of its range, or a path does not begin with ``/``.
    """

    sample: float = 1.0
    files: tuple[str, ...] | list[str] = ()
    max_queued_rows: int = 10_000
    max_file_bytes: int = 1024 * 1024 * 1024
    max_file_age_s: float = inf

    def __post_init__(self) -> None:
        ranges = {"sample": (0.0, 1.0), "max_queued_rows": (1, inf), "max_file_bytes": (1, inf)}
        check_ranges(self, {**ranges, "max_file_age_s": (1.0, inf)})
        for path in checked_names("files", self.files):
            if not path.startswith("/"):
                raise ConfigurationError(f"files={path!r:.100}: give paths, as '/llms.txt'")

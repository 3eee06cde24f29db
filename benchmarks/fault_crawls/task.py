"""The task of a crawler, and the messages that it prints about it."""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = "/page"
PRIVATE: Final = "/private"
READY: Final = "ready"
MEMORY_BYTES: Final = 2 * 1024**3
"""The memory that a crawler may use for data: a fault must not use up the machine."""


class Said(StrEnum):
    """The result of a crawler for a page."""

    REQUESTED = "requested"  # or tried to
    REFUSED = "refused"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class Task:
    """Attributes:
    origin: of the server, as in ``http://127.0.0.1:8081``.
    timeout_s: for one request with all its redirects, from its start to the end of its answer.
    names: addresses by host, for hosts that no resolver knows.
    authority: that certificates are to be trusted by, in PEM.
    """

    origin: str
    timeout_s: float
    names: Mapping[str, str]
    authority: str

    @property
    def urls(self) -> list[str]:
        return [self.origin + PAGE, self.origin + PRIVATE]


class Report:
    """Prints each event on standard output. Time counts from its construction, when all is imported."""

    def __init__(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, hard))
        self._peak_kib = _peak_kib()
        self._started = time.monotonic()
        self._write({READY: True})

    def page(self, url: str, said: Said) -> None:
        self._write({"url": url, "said": said})

    def done(self) -> None:
        grown_kib = _peak_kib() - self._peak_kib
        self._write({"elapsed_s": time.monotonic() - self._started, "grown_mib": grown_kib / 1024})

    def _write(self, line: Mapping[str, object]) -> None:
        print(json.dumps(line), flush=True)


def read_task() -> Task:
    return Task(**json.load(sys.stdin))


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

"""The reservations of sites in tdmrep.json. The file is fetched like a page, and each new body is parsed once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from politesse._cache.entry import Flight, Flights
from politesse.errors import ClosedError
from politesse.page.tdmrep import TdmRep, parse_tdmrep
from politesse.verdict import FileOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse._cache.files import SiteFile, SiteFiles
    from politesse._cache.records import ReadingThreads
    from politesse.origin import Origin

TDMREP_JSON: Final = "/.well-known/tdmrep.json"
"""The path of the file (TDMRep, "TDM File on the Origin Server")."""

_READ_IN_THREAD_BYTES: Final = 64 * 1024
_MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
_WEIGHT: Final = 10  # a parsed file needs this many octets of memory for each of its octets
_KEPT_BYTES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reservations in the tdmrep.json of a site.

    Attributes:
        doc: the parsed file; empty without a file.
        fault: why the file is unknown, as a phrase; empty if it is known.
        not_before: the earliest Unix time of the next fetch; None if it is unknown.
    """

    doc: TdmRep
    fault: str = ""
    not_before: float | None = None


def _unread(fault: str, not_before: float | None = None) -> Reserved:
    return Reserved(TdmRep(fault=fault), fault, not_before)


NOTHING_RESERVED: Final = Reserved(TdmRep())
OUT_OF_TURN: Final = _unread("it is not known yet, and this is asked within a turn of the same host")
"""The answer if waiting would deadlock, because the caller already holds this host's turn."""


class Reservations:
    """The reservations of each origin.

    Args:
        files: the cache that fetches tdmrep.json.
        reading: threads for large files; not closed here.

    Attributes:
        files: the cache that fetches tdmrep.json.
    """

    def __init__(self, files: SiteFiles, reading: ReadingThreads) -> None:
        self.files = files
        self._reading = reading
        self._read: LRUCache[str, tuple[bytes, Reserved]] = LRUCache(_MAX_KEPT_BYTES, getsizeof=_weight_bytes)
        self._flights: Flights[Flight[None]] = Flights()
        self._closed = False

    def known(self, origin: Origin, *, late_s: float = 0.0) -> Reserved | None:
        """Return the reservations of ``origin``; None if the file must be fetched, or parsed in a thread.

        The file still counts for ``late_s`` seconds after its lifetime.
        """
        file = self.files.peek(origin, TDMREP_JSON, late_s=late_s)
        if file is None or (self._is_new(origin, file) and len(file.body) > _READ_IN_THREAD_BYTES):
            return None
        return self._take_in(origin, file, _parse(file) if self._is_new(origin, file) else None)

    def basis(self, origin: Origin) -> object:
        """Return the cache entry of tdmrep.json; None without an entry. Compare by equality."""
        return self.files.entries.get(f"{origin}{TDMREP_JSON}")

    async def learn(self, origin: Origin, get: Callable[[], Awaitable[SiteFile]]) -> Reserved:
        """Return the reservations of ``origin``; ``get`` fetches the file like a page. Raises ClosedError."""
        file = await get()
        doc = None
        if self._is_new(origin, file):
            doc = await self._reading.run(partial(_parse, file), is_large=len(file.body) > _READ_IN_THREAD_BYTES)
        return self._take_in(origin, file, doc)

    def ask_ahead(self, origin: Origin, get: Callable[[], Awaitable[SiteFile]]) -> None:
        """Start to fetch and parse tdmrep.json."""
        key = str(origin)
        if not self._closed and self._flights.get(key) is None:
            self._flights.start(key, Flight(), self._learn_ahead(origin, get), f"tdmrep.json of {origin}")

    async def aclose(self) -> None:
        """Cancel the fetches of ``ask_ahead``."""
        self._closed = True
        tasks = self._flights.close("the gatekeeper was closed while a tdmrep.json was fetched")
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn_ahead(self, origin: Origin, get: Callable[[], Awaitable[SiteFile]]) -> None:
        with suppress(ClosedError):  # no caller waits for the result
            await self.learn(origin, get)

    def _is_new(self, origin: Origin, file: SiteFile) -> bool:
        known = self._read.get(str(origin))
        return file.outcome is FileOutcome.FOUND and (known is None or known[0] != file.body)

    def _take_in(self, origin: Origin, file: SiteFile, doc: TdmRep | None) -> Reserved:
        """Return the reservations of a file: from ``doc`` if it is given, else from the last parse."""
        if file.outcome is FileOutcome.RETRY:
            return _unread(file.fault or f"status {file.status}", file.not_before)
        if file.outcome is not FileOutcome.FOUND:
            return NOTHING_RESERVED
        before = self._read.get(str(origin))
        if doc is None and before is not None:
            return before[1]
        reserved = Reserved(doc or TdmRep())
        if reserved.doc.fault:
            # An unparsable file keeps the reservations of the last file that was parsed. Without an earlier file, HTML
            # counts as no file (a soft 404), and any other text as unknown.
            reserved = _unread(reserved.doc.fault) if before is None else before[1]
            if before is None and file.is_web_page:
                reserved = NOTHING_RESERVED
        self._read[str(origin)] = file.body, reserved
        return reserved


def _parse(file: SiteFile) -> TdmRep:
    return TdmRep(fault="it is longer than the limit") if file.truncated else parse_tdmrep(file.body)


def _weight_bytes(kept: tuple[bytes, Reserved]) -> int:
    body, reserved = kept
    octet = _WEIGHT if reserved.doc.locations else 1  # an unparsable file needs only the memory of its text
    return min(_KEPT_BYTES + octet * len(body), _MAX_KEPT_BYTES)  # the largest file fills the whole cache

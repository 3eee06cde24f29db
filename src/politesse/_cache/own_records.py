"""Records in the memory of this process, for a gate without a store: as they are, because nobody else reads them."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from politesse._cache.record import Record

_MAX_BYTES: Final = 64 * 1024 * 1024
_RECORD_BYTES: Final = 560  # measured with tracemalloc, its place included, without the texts and the file
_COMPRESSED_FROM_BYTES: Final = 2_048  # a fifth of all files; a smaller one takes 15 us or more and saves half a kB
# The large files that were saved last are kept as they came: a crawl of up to 1,600 usual hosts compresses nothing,
# which saves 4 % of the CPU time of an unknown origin. Beyond that, each new one has an older one compressed.
_MAX_RAW_BYTES: Final = 4 * 1024 * 1024
_RAW_SHARE: Final = 16  # of the bound, at most one part in so many


class _Compressed(NamedTuple):
    """A record whose file is large.

    Attributes:
        record: the record, without the file.
        body: the file, compressed.
    """

    record: Record
    body: bytes


class OwnRecords:
    """Keeps records by origin; bounded by bytes, it evicts the least recently used first.

    Large files are compressed, but for the few MiB that were saved last.

    In place of encoded records in a MemoryStore it saves 5 % of the CPU time of an unknown origin.

    Args:
        max_bytes: about how much memory the records may take.
    """

    __slots__ = ("_bytes", "_max_bytes", "_max_raw_bytes", "_raw", "_raw_bytes", "_records")

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._records: dict[str, Record | _Compressed] = {}  # the least recently used first
        self._max_raw_bytes = min(_MAX_RAW_BYTES, max_bytes // _RAW_SHARE)
        self._raw: dict[str, int] = {}  # octets of the large files that are not compressed, the oldest first
        self._raw_bytes = 0

    def load(self, key: str) -> Record | None:
        """Return the record of ``key``, None if there is none."""
        kept = self._records.pop(key, None)
        if kept is None:
            return None
        self._records[key] = kept
        if not isinstance(kept, _Compressed):
            return kept
        record, body = kept
        return record if record.copy is None else replace(record, copy=replace(record.copy, body=zlib.decompress(body)))

    def save(self, key: str, record: Record) -> None:
        """Replace the record of ``key``."""
        self.delete(key)
        self._records[key] = record
        self._bytes += _size(key, record)
        body_bytes = 0 if record.copy is None else len(record.copy.body)
        if body_bytes >= _COMPRESSED_FROM_BYTES:
            self._raw[key] = body_bytes
            self._raw_bytes += body_bytes
            while self._raw_bytes > self._max_raw_bytes:
                self._compress(next(iter(self._raw)))
        while self._bytes > self._max_bytes:
            self.delete(next(iter(self._records)))

    def delete(self, key: str) -> None:
        """Delete the record of ``key``, if there is one."""
        kept = self._records.pop(key, None)
        if kept is not None:
            self._bytes -= _size(key, kept)
            self._raw_bytes -= self._raw.pop(key, 0)

    def _compress(self, key: str) -> None:
        """Compress the file of a record that is kept as it came."""
        self._raw_bytes -= self._raw.pop(key)
        record = self._records[key]
        if isinstance(record, _Compressed) or record.copy is None:
            raise AssertionError(f"the record of {key} has no file to compress")
        body = zlib.compress(record.copy.body, zlib.Z_BEST_SPEED)
        kept = _Compressed(replace(record, copy=replace(record.copy, body=b"")), body)
        self._bytes += _size(key, kept) - _size(key, record)
        self._records[key] = kept

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<OwnRecords: {len(self)} records, {self._bytes} of {self._max_bytes} bytes>"


def _size(key: str, kept: Record | _Compressed) -> int:
    """Return about how many bytes a record takes."""
    record, body_bytes = (kept.record, len(kept.body)) if isinstance(kept, _Compressed) else (kept, 0)
    size, copy, trouble = _RECORD_BYTES + len(key) + body_bytes, record.copy, record.trouble
    if copy is not None:
        size += len(copy.body) + len(copy.final_url) + len(copy.etag) + len(copy.last_modified) + len(copy.fault)
    if trouble is not None:
        size += len(trouble.final_url) + len(trouble.fault)
    return size

"""A WARC file of the pages of a crawl (ISO 28500), as web archives and data sets keep them; needs the extra ``warc``.

::

    async with WarcFile("crawl.warc.gz") as archive:

        async def handle(page, response):
            await archive.add(response)

        await queue.crawl(web, handle)
"""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from functools import partial
from http.client import responses
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import ClientResponse

from politesse._base.text import needing, printable, public_url
from politesse.errors import ConfigurationError
from politesse.ledger._ledger import content_read

with needing("politesse.integrations.warc", "warc"):
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from aiohttp import RequestInfo
    from httpx import Request, Response
    from warcio.recordloader import ArcWarcRecord

    from politesse.ledger import LedgerReader

    Fields = Sequence[tuple[str, str]]

_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_THE_TRANSFER: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class WarcFile:
    """Writes a new WARC file, with a ``response`` record and a ``request`` record for each response.

    Bodies are kept decoded. So the header fields Content-Encoding, Content-Length and Transfer-Encoding of the server
    get the prefix ``X-Archive-Orig-``. Bodies of requests are not kept, so these fields get the prefix there, too. The
    fields Authorization, Proxy-Authorization and Cookie of requests are left out. A thread writes each record as a
    whole, even if the task is cancelled. Each record is compressed alone, so a killed program loses at most the last
    record.

    Args:
        path: the name of the file. If the name ends with ``.gz``, the file is compressed.
        info: further fields of the ``warcinfo`` record, such as ``{"operator": "Example"}``.

    Raises:
        ConfigurationError: the file exists. Each run needs its own name; WARC files can be joined, for example with
            ``cat``.
        OSError: the file cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str], info: Mapping[str, str] | None = None) -> None:
        name = Path(path)
        try:
            self._file = name.open("xb")
        except FileExistsError:
            raise ConfigurationError(f"{name} exists: give another name, because each run writes a new file") from None
        self._lock = threading.Lock()
        self._writer = WARCWriter(self._file, gzip=name.suffix == ".gz", warc_version="WARC/1.1")
        fields = {"software": "politesse", "format": "WARC File Format 1.1", "robots": "obey", **(info or {})}
        self._writer.write_record(self._writer.create_warcinfo_record(name.name, fields))
        self._file.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for the record that is being written, and close the file."""
        await asyncio.to_thread(self._close)

    async def add(
        self, response: ClientResponse | Response, body: bytes | None = None, *, truncated: bool = False
    ) -> None:
        """Write a response and its request, with the time of this call. Call it before slow work on the page.

        Args:
            response: a response of aiohttp or httpx.
            body: the decoded body, if the caller has read it; otherwise this method reads the whole body.
            truncated: whether ``body`` is only the beginning of the body (``WARC-Truncated: length``).

        Raises:
            OSError: the file cannot be written.
            ValueError: the file is closed.
            aiohttp.ClientError, httpx.HTTPError: the body cannot be read.
        """
        sent: RequestInfo | Request
        raw: Sequence[tuple[bytes, bytes]]
        if isinstance(response, ClientResponse):
            status, target = f"{response.status} {response.reason}", response.request_info.url.raw_path_qs
            body = await response.read() if body is None else body
            sent, raw, version = response.request_info, response.raw_headers, response.version
            protocol = "HTTP/1.1" if version is None else f"HTTP/{version.major}.{version.minor}"
        else:
            status, target = f"{response.status_code} {response.reason_phrase}", response.url.raw_path.decode()
            body = await response.aread() if body is None else body
            sent, raw, protocol = response.request, response.headers.raw, response.http_version
        asked = [(name, value) for name, value in sent.headers.items() if name.lower() not in _SECRET]
        answered = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        request = StatusAndHeaders(f"{sent.method} {target} {protocol}", _renamed(asked), is_http_request=True)
        answer = StatusAndHeaders(status, _of_body(answered, len(body)), protocol=protocol)
        named = {"WARC-Date": _date(datetime.now(UTC)), **({"WARC-Truncated": "length"} if truncated else {})}
        write = partial(self._write, public_url(str(sent.url)), request, answer, body, named)
        await asyncio.to_thread(write)

    def add_ledger(self, ledger: LedgerReader) -> int:
        """Write a ledger; return the number of records. The call blocks: use it without an event loop, or in a thread.

        Each copy of a file becomes a ``response`` record with the recorded headers. Each failed fetch without an
        answer, and each decision, becomes a ``metadata`` record in JSON.

        Raises:
            StoreError: the ledger is damaged.
            OSError: the file cannot be written.
            ValueError: the file is closed.
        """
        written = 0
        for kind in ("snapshot", "decision"):
            for number, row in ledger.rows(kind):
                with ledger.blaming(number, row.number):
                    content = content_read(row)
                    body = ledger.body(number, content["digest"]) if kind == "snapshot" and "digest" in content else b""
                    record = self._recorded(content, row.content.encode(), body or b"")
                with self._lock:
                    self._writer.write_record(record)
                written += 1
        return written

    def _recorded(self, content: dict[str, Any], text: bytes, body: bytes) -> ArcWarcRecord:
        make = partial(self._writer.create_warc_record, printable(content["url"]))
        date = datetime.fromtimestamp(content["fetched_wall" if "result" in content else "decided_wall"], UTC)
        named = {"WARC-Date": _date(date)}
        if "status" not in content:
            return make("metadata", BytesIO(text), len(text), "application/json", named)
        kept = content.get("headers", {}).items()
        fields = _of_body([(ascii(name)[1:-1], printable(value)) for name, value in kept], len(body))
        status = f"{content['status']} {responses.get(content['status'], 'Unknown')}"
        answer = StatusAndHeaders(status, fields, protocol="HTTP/1.1")
        return make("response", BytesIO(body), len(body), warc_headers_dict=named, http_headers=answer)

    def _write(
        self, url: str, request: StatusAndHeaders, answer: StatusAndHeaders, body: bytes, named: dict[str, str]
    ) -> None:
        with self._lock:
            make = self._writer.create_warc_record
            stored = make(url, "response", BytesIO(body), len(body), warc_headers_dict=named, http_headers=answer)
            self._writer.write_request_response_pair(make(url, "request", http_headers=request), stored)
            self._file.flush()

    def _close(self) -> None:
        with self._lock:
            self._file.close()


def _date(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _renamed(fields: Fields) -> Fields:
    """Return header fields with a prefix before those of the transfer."""
    return [(f"X-Archive-Orig-{name}" if name.lower() in _OF_THE_TRANSFER else name, value) for name, value in fields]


def _of_body(fields: Fields, octets: int) -> Fields:
    """Return the header fields of a response for a decoded body."""
    return [*_renamed(fields), ("Content-Length", str(octets))]

"""HTTP/2 requests that Scrapy gives up: the server stops before the next request of the host starts."""

import ssl

import pytest
import trustme

from tests.wire.scrapy.crawling import QUICK, crawl

pytest.importorskip("scrapy.core.downloader.handlers._httpx")  # older versions of Scrapy do not have it

from tests.wire.clients.http2_site import serving_http2

pytestmark = pytest.mark.realtime

HANDLERS = {
    "H2DownloadHandler": {"https": "scrapy.core.downloader.handlers.http2.H2DownloadHandler"},
    "HttpxDownloadHandler": {"https": "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"},
}


@pytest.mark.parametrize("handler", HANDLERS)
async def test_request_that_times_out_ends_at_the_server(handler: str, authority: trustme.CA) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    tls.set_alpn_protocols(["h2"])
    settings = {
        "DOWNLOAD_HANDLERS": HANDLERS[handler],
        "HTTPX_HTTP2_ENABLED": True,
        "DOWNLOAD_TIMEOUT": 2,
    }
    async with serving_http2(tls) as site:
        await crawl([f"{site.base}{path}" for path in ("/silent", "/slow", "/page")], QUICK | settings)
    assert sorted(site.paths) == ["/page", "/robots.txt", "/silent", "/slow"]
    assert site.beside == []

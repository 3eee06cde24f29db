"""The options of fetching: time limits, size, proxy, TLS and private addresses."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from yarl import URL

from politesse._base.checks import check_choice, check_positive, check_types
from politesse.errors import ConfigurationError, ConfigurationTypeError
from politesse.fetch._addresses import PRIVATE_ADDRESSES, PrivateAddresses
from politesse.ports import MAX_BODY_BYTES

if TYPE_CHECKING:
    from politesse.origin import StrOrURL

MIN_BODY_BYTES: Final = 500 * 1024
"""RFC 9309 2.5: a parsing limit must be at least 500 KiB."""

_HEADER_VALUE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """Options for fetching robots.txt.

    >>> FetchOptions(total_timeout_s=10, from_address="bot@example.com").max_body_bytes
    512000

    Attributes:
        connect_timeout_s: seconds to look up the address of a host, and seconds to connect to it, including TLS;
            positive. The wait for a thread that looks up the address does not count (see SystemResolver).
        total_timeout_s: seconds for one fetch with all its redirects; positive.
        max_body_bytes: how many decoded octets of a body are read; 512,000 to 67,108,864.
        from_address: an e-mail address for the From header, or None.
        proxy: the URL of an HTTP proxy, with its credentials if necessary, or None.
        ssl_context: the context that verifies servers; None for the system's authorities. Verification cannot be
            switched off: an attacker who can forge robots.txt could open any site.
        private_addresses: ``"redirects"`` refuses a redirect from a public to a private address; ``"deny"`` refuses all
            connections to private addresses, so that no page at such an address is allowed; ``"allow"`` refuses no
            address. Every address that is not globally reachable is private: loopback, link-local, multicast,
            unspecified and others.
        unguarded_redirects: whether to follow redirects to other hosts without a check of their addresses. This option
            matters for a borrowed connector or a proxy, because both look up names themselves. By default, a redirect
            over a borrowed connector is followed if politesse looks up the name and finds only public addresses. Over a
            proxy, a redirect to any name except ``localhost`` is followed. IP literals are always checked.

    Raises:
        ConfigurationError: an option has an invalid value.
    """

    connect_timeout_s: float = 10.0
    total_timeout_s: float = 30.0
    max_body_bytes: int = MIN_BODY_BYTES
    from_address: str | None = None
    proxy: StrOrURL | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    private_addresses: PrivateAddresses = "redirects"
    unguarded_redirects: bool = False

    def __post_init__(self) -> None:
        check_positive("connect_timeout_s", self.connect_timeout_s)
        check_positive("total_timeout_s", self.total_timeout_s)
        check_types({"from_address": (self.from_address, str), "ssl_context": (self.ssl_context, ssl.SSLContext)})
        flags = {"unguarded_redirects": (self.unguarded_redirects, bool)}
        check_types({"max_body_bytes": (self.max_body_bytes, int), **flags}, required=True)
        if not MIN_BODY_BYTES <= self.max_body_bytes <= MAX_BODY_BYTES:
            raise ConfigurationError(
                f"max_body_bytes={self.max_body_bytes}: give {MIN_BODY_BYTES} (RFC 9309 2.5) to {MAX_BODY_BYTES}"
            )
        if self.from_address is not None and _HEADER_VALUE.fullmatch(self.from_address) is None:
            raise ConfigurationError(f"from_address={self.from_address!r}: give one line of printable ASCII")
        if self.ssl_context is not None and self.ssl_context.verify_mode is not ssl.CERT_REQUIRED:
            raise ConfigurationError("ssl_context: it does not verify certificates; set verify_mode=ssl.CERT_REQUIRED")
        one_of = f"one of {PRIVATE_ADDRESSES}"
        check_choice("private_addresses", self.private_addresses, PRIVATE_ADDRESSES, one_of)
        proxy: object = self.proxy
        if self.proxy is not None and not _is_proxy(self.proxy):
            kind = ConfigurationError if isinstance(proxy, str | URL) else ConfigurationTypeError
            raise kind("proxy: give the http or https URL of a proxy")
        if self.proxy is not None and self.private_addresses == "deny":
            raise ConfigurationError("private_addresses='deny': the addresses behind a proxy cannot be checked")


def _is_proxy(proxy: StrOrURL) -> bool:
    """Whether a value is the URL of a proxy. Messages never quote the value, because it may contain a password."""
    try:
        url = URL(proxy)
    except (TypeError, ValueError):
        return False
    return url.scheme in {"http", "https"} and bool(url.host)

"""The ports that sending a request needs: Resolver and Signer; ``politesse.ports`` exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Resolver(Protocol):
    """Looks up the addresses of a host name."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return IPv4 and IPv6 addresses as text, in the order to try.

        Raises:
            OSError: the name has no address, or the lookup failed.
        """


class Signer(Protocol):
    """Signs requests, as ``politesse.signing.WebBotAuth`` does.

    A gate signs its own requests for robots.txt and other files. The integrations of aiohttp, httpx, requests and
    Scrapy sign each request that they send for the gate.
    """

    def sign(self, method: str, url: str, demand: str = "", /) -> Mapping[str, str]:
        """Return the headers that sign a request; empty if the request is not to be signed.

        Args:
            method: the method of the request.
            url: the URL, as it is sent.
            demand: the Accept-Signature that the signature is to satisfy; empty without.

        Raises:
            ConfigurationError: there is no valid key.
        """

    def heeds(self, url: str, demand: str, sent: Mapping[str, str], /) -> bool:
        """Return whether to repeat a refused request with a signature that satisfies ``demand``.

        Args:
            url: the URL of the request.
            demand: the Accept-Signature of the answer.
            sent: the headers that signed the refused request; empty if it was not signed.
        """

"""The signature of a request: added before sending, and replaced if the server asks for another signature. Pure."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from politesse._http.fields import joined_fields

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Mapping, MutableMapping

    from politesse._http.fields import Headers
    from politesse.ports import Signer

_DEMANDING: Final = frozenset({401, 403, 429})
_REPEATABLE: Final = frozenset({"GET", "HEAD"})
_OF_A_BODY: Final = ("Content-Length", "Transfer-Encoding")


class RequestSignature:
    """The signature of a request. A request that already has a signature does not get another.

    Args:
        signer: makes the signature, or None.
        method: the method of the request.
        url: the URL, as it is sent.
        headers: the headers of the request.

    Attributes:
        url: the URL of the request.
        is_repeated: whether the server has asked for another signature, and the request is to be sent again with it.
    """

    __slots__ = ("_demand", "_may_repeat", "_method", "_sent", "_signer", "is_repeated", "url")

    def __init__(self, signer: Signer | None, method: str, url: str, headers: Container[str] = ()) -> None:
        self._signer = None if signer is None or "Signature-Input" in headers else signer
        self._method = method
        # A body may be a stream that can be sent only once.
        self._may_repeat = method in _REPEATABLE and not any(name in headers for name in _OF_A_BODY)
        self.url: str = url
        self._demand = ""
        self._sent: Mapping[str, str] = {}
        self.is_repeated: bool = False

    def made(self) -> Mapping[str, str]:
        """Return the headers that sign the request now. A signature is short-lived, so call this just before sending.

        Raises:
            ConfigurationError: the signer has no valid key.
        """
        if self._signer is not None:
            self._sent = self._signer.sign(self._method, self.url, self._demand)
        return self._sent

    @contextmanager
    def added_to(self, headers: MutableMapping[str, str]) -> Generator[None]:
        """Add the signature to the headers of a request, and remove it from them at the end of the block.

        Clients copy the headers of a request to its redirects and repetitions, where the signature would be wrong.
        """
        made = self.made()
        headers.update(made)
        try:
            yield
        finally:
            for name in made:
                headers.pop(name, None)

    def is_asked(self, status: int, headers: Headers) -> bool:
        """Return whether to repeat the request once, with the signature for which the answer asks.

        An answer with Retry-After closes the host. The request is then not repeated.

        Args:
            status: the status of the answer.
            headers: the headers of the answer. RFC 9421 5.1: Accept-Signature may have several lines.
        """
        if self._signer is None or self._demand or status not in _DEMANDING:
            return False
        fields = joined_fields(headers)
        demand = fields.get("accept-signature", "")
        if not demand or not self._signer.heeds(self.url, demand, self._sent):
            return False
        self._demand = demand
        self.is_repeated = self._may_repeat and "retry-after" not in fields
        return self.is_repeated

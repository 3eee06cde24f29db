"""Certificates of servers on loopback, good and bad; needs trustme, which comes with the extra ``test``."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from politesse._text import needs_extra
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    import trustme

_HOST: Final = "127.0.0.1"
_AGO: Final = timedelta(days=9)


def authority_pem() -> bytes:
    """Return the certificate of the authority that signs all of these but the self-signed one, in PEM."""
    return _authority().cert_pem.bytes()


def trusted() -> ssl.SSLContext:
    """Return the context of a server whose certificate is good."""
    return _context(_authority().issue_cert(_HOST))


def expired() -> ssl.SSLContext:
    """Return the context of a server whose certificate held until yesterday."""
    now = datetime.now(UTC)
    return _context(_authority().issue_cert(_HOST, not_before=now - _AGO, not_after=now - timedelta(days=1)))


def for_another_host() -> ssl.SSLContext:
    """Return the context of a server whose certificate is good, and somebody else's."""
    return _context(_authority().issue_cert("other.example"))


def self_signed() -> ssl.SSLContext:
    """Return the context of a server whose certificate nobody trusts."""
    return _context(_new_authority().issue_cert(_HOST))


@cache
def _authority() -> trustme.CA:
    return _new_authority()


def _new_authority() -> trustme.CA:
    try:
        from trustme import CA  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(needs_extra("a server with a certificate", "test")) from error
    return CA()


def _context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context

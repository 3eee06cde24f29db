"""The server of a URL by aiohttp's URL library."""

import ipaddress
from urllib.parse import unquote

import yarl


def server_of(url: yarl.URL) -> tuple[str, str, int | None]:
    """Return scheme, host and port of the server that aiohttp would connect to."""
    # yarl keeps the escapes of a host. RFC 3986 3.2.2 permits decoding them; no name in DNS has any.
    host = unquote(url.raw_host or "")
    host = (host if host.isascii() else yarl.URL(f"http://{host}").raw_host or "").lower()
    if ":" in host:
        mapped = ipaddress.IPv6Address(host).ipv4_mapped
        host = f"[{host}]" if mapped is None else f"[::ffff:{mapped}]"
    return url.scheme, host, url.port

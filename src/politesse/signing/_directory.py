"""Serves the public keys of a bot; each key signs the response."""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web

from politesse._base.checks import check_least, check_range
from politesse.origin import Origin
from politesse.signing._keys import KeyFile, directory_of
from politesse.signing._web_bot_auth import WELL_KNOWN, checked_agent, signed

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Iterable

    from politesse.clock import Clock

_MEDIA_TYPE: Final = "application/http-message-signatures-directory+json"
_TAG: Final = "http-message-signatures-directory"
_VALID_S: Final = 300  # long enough for a slow download of the directory


def directory_app(
    keys: str | os.PathLike[str],
    *,
    agent: str | Iterable[str],
    max_age_s: int = 3_600,
    clock: Clock | None = None,
) -> web.Application:
    """Return an application that serves the directory of the keys, at its well-known path.

    Serve the application over https at the host of your ``agent``. Pass on the Host header that the client sends,
    because the signatures cover it. A request for another host is answered with 421 and without a signature. Otherwise
    anyone could get a signature that makes these keys the keys of another host. The directory lists the keys of the
    file that have not expired, including the next key of a rotation. The path is
    ``/.well-known/http-message-signatures-directory``.

    Args:
        keys: the PEM file with the private keys; read again when it changes.
        agent: the https URL of the directory, as ``WebBotAuth`` has it; several URLs for several hosts.
        max_age_s: how long clients may keep the directory, in seconds; 0 to 86,400. Give less than the time between a
            rotation and the first use of the new key, which is a day by default.
        clock: the clock; by default the clock of the system.

    Raises:
        ConfigurationError: the key file cannot be used, ``agent`` is not an https URL, or ``max_age_s`` is out of its
            range.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from politesse.signing._keys import new_key, write_keys
        >>> path = Path(tempfile.mkdtemp(), "bot.pem")
        >>> write_keys(path, [new_key(0, days=36_500)], is_new=True)  # as politesse key new does
        >>> app = directory_app(path, agent="https://bot.example/.well-known/http-message-signatures-directory")
        >>> [route.method for route in app.router.routes()]
        ['HEAD', 'GET']
    """
    check_range("max_age_s", max_age_s, 0, 86_400)
    agents = [agent] if isinstance(agent, str) else list(agent)
    check_least("the number of agents", len(agents), 1)
    authorities = {Origin.of(checked_agent(one)).text.removeprefix("https://") for one in agents}
    app = web.Application()
    app.router.add_get(WELL_KNOWN, partial(_answer, KeyFile(keys, clock), authorities, max_age_s))
    return app


async def _answer(keys: KeyFile, authorities: Container[str], max_age_s: int, request: web.Request) -> web.Response:
    authority = request.host.lower().removesuffix(":443")
    if authority not in authorities:
        raise web.HTTPMisdirectedRequest  # RFC 9110 15.5.20
    valid = keys.valid()
    body = directory_of(valid).encode()
    digest = hashlib.sha256(body).digest()
    response = web.Response(headers={"Cache-Control": f"max-age={max_age_s}", "Access-Control-Allow-Origin": "*"})
    response.etag = digest.hex()
    if any(etag.value in {"*", digest.hex()} for etag in request.if_none_match or ()):
        response.set_status(304)
        return response
    response.body = body
    response.headers["Content-Type"] = _MEDIA_TYPE
    response.headers["Content-Digest"] = content = f"sha-256=:{base64.b64encode(digest).decode()}:"
    now_wall = keys.now_wall
    covered = {'"@authority";req': authority, '"content-digest"': content}
    for number, key in enumerate(valid):
        # RFC 9651 3.2: lines of a Dictionary are joined.
        response.headers.extend(signed(key, f"key{number}", covered, (now_wall, now_wall + _VALID_S), {"tag": _TAG}))
    return response

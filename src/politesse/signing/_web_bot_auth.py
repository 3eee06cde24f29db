"""Signs requests, and serves the public keys, by the profile of Web Bot Auth.

The profile is draft-ietf-webbotauth-httpsig-protocol-01.

Theory of operation. A signature covers lines of the request (RFC 9421 2.5, the signature base). This module makes the
base itself, from checked URLs and its own texts. The library http-message-signatures makes the same base, but takes
eight times as long, which is longer than a whole request of aiohttp takes. The tests verify the signatures with that
library.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import http_sf
from aiohttp import web

from politesse._base.checks import check_choice, check_least, check_range, check_types
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, split
from politesse.signing._keys import KeyFile, SigningKey, directory_of

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Iterable, Mapping

    from politesse.clock import Clock

WELL_KNOWN: Final = "/.well-known/http-message-signatures-directory"

_TAG: Final = "web-bot-auth"
_AGENT: Final = "signature-agent"
_ALG: Final = "ed25519"
_DERIVED: Final = frozenset({"@authority", "@method", "@path", "@query", "@target-uri"})  # RFC 9421 2.2
_NONCE_BYTES: Final = 64
_MAX_DEMAND: Final = 1_000  # octets of an Accept-Signature
_MAX_ORIGINS: Final = 10_000


class _Wish(NamedTuple):
    """The signature that a server wants: its label, its components without the Signature-Agent, and its nonce."""

    label: str
    components: tuple[str, ...]
    nonce: str = ""


_USUAL: Final = _Wish("sig1", ("@authority", "@method", "@path"))


class WebBotAuth:
    """Signs each request with a key whose public half is in the directory of the crawler.

    The signature covers the authority, the method and the path, so it is of no use for another request. Only https
    requests are signed. Each redirect and each repetition gets a new signature.

    With ``when="asked"``, a request is signed only after its origin has asked for signatures, by an
    ``Accept-Signature`` in a 401, 403 or 429. In both modes, a GET or HEAD with such an answer is repeated once, with
    the signature that the server wants, in a turn of its own. Only the refusal of the repeated request affects the
    pace.

    The key file is read again when it changes, so ``politesse key rotate`` needs no restart. If the changed file cannot
    be read, the earlier keys stay in use, and a WARNING is logged.

    Args:
        key: a PEM file with the private keys, which only its owner may read; ``politesse key new`` makes it. The newest
            key that may be used now signs the requests.
        agent: the https URL of the directory of the keys.
        form: ``"dictionary"``; or ``"legacy"`` for servers that read Signature-Agent as a String, as earlier drafts
            define it. With ``"legacy"``, an ``agent`` at the well-known path is sent without this path, as in these
            drafts.
        when: ``"always"``, or ``"asked"`` to sign only for origins that ask.
        lifetime_s: how long a signature is valid, in seconds; 10 to 86,400.
        clock: the clock; by default the clock of the system.

    Raises:
        ConfigurationError: the key cannot be used, ``agent`` is not an https URL, or an option is invalid. ``sign``
            raises it when the last key has expired.

    Example:
        >>> import os, tempfile
        >>> from politesse.signing._keys import new_key, write_keys
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp(), "bot.pem")
        >>> write_keys(path, [new_key(0, days=36_500)], is_new=True)  # as politesse key new does
        >>> signer = WebBotAuth(path, agent="https://bot.example/.well-known/http-message-signatures-directory")
        >>> signer.sign("GET", "https://example.com/page")["Signature-Agent"]
        'sig1="https://bot.example/.well-known/http-message-signatures-directory"'
        >>> signer.sign("GET", "http://example.com/page")
        {}
    """

    def __init__(
        self,
        key: str | os.PathLike[str],
        *,
        agent: str,
        form: Literal["dictionary", "legacy"] = "dictionary",
        when: Literal["always", "asked"] = "always",
        lifetime_s: float = 300.0,
        clock: Clock | None = None,
    ) -> None:
        check_choice("form", form, ("dictionary", "legacy"), "'dictionary' or 'legacy'")
        check_choice("when", when, ("always", "asked"), "'always' or 'asked'")
        check_range("lifetime_s", lifetime_s, 10.0, 86_400.0)
        check_types({"agent": (agent, str)}, required=True)
        agent = checked_agent(agent)
        self._agent = agent.removesuffix(WELL_KNOWN) if form == "legacy" else agent
        self._is_legacy = form == "legacy"
        self._when = when
        self._lifetime_s = lifetime_s
        self._keys = KeyFile(key, clock)
        self._keys.current()
        self._asked: OrderedDict[str, _Wish] = OrderedDict()

    def sign(self, method: str, url: str, demand: str = "", /) -> Mapping[str, str]:
        """Return the headers that sign a request now; empty if the request is not to be signed.

        Args:
            method: the method of the request.
            url: the URL, as it is sent.
            demand: the Accept-Signature that the signature is to satisfy; empty if there is none.

        Raises:
            ConfigurationError: no key may be used now.
            InvalidURL: ``url`` is not an absolute http(s) URL, or is to be signed and has a blank or another character
                that clients escape.
        """
        origin, target = split(url)
        asked = self._asked.get(origin.text)
        if origin.scheme != "https" or (self._when == "asked" and asked is None and not demand):
            return {}
        if not target.isascii() or " " in target:
            raise InvalidURL(
                url, "has an unescaped character; percent-encode it as it is sent, or nobody can verify the signature"
            )
        key = self._keys.current()
        wish = (_wish(demand, [key]) if demand else None) or asked or _USUAL
        path, _, query = target.partition("?")
        authority = origin.text.removeprefix("https://")
        values = {'"@authority"': authority, '"@method"': method, '"@path"': path, '"@query"': f"?{query}"}
        values['"@target-uri"'] = f"{origin.text}{target}"
        agent = f'"{self._agent}"'
        covered = {name: values.get(name, agent) for name in self._covered(wish)}
        now_wall = self._keys.now_wall
        expires_wall = int(min(now_wall + self._lifetime_s, key.expires_wall))
        nonce = wish.nonce or base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        made = signed(key, wish.label, covered, (now_wall, expires_wall), {"nonce": nonce, "tag": _TAG})
        return {"Signature-Agent": agent if self._is_legacy else f"{wish.label}={agent}", **made}

    def heeds(self, url: str, demand: str, sent: Mapping[str, str], /) -> bool:
        """Return whether to repeat a refused request with a signature that satisfies ``demand``.

        From now on the origin gets signatures of the kind that it asks for. A signed request is repeated only if the
        server asks for a nonce, or for another kind of signature.

        Args:
            url: the URL of the request.
            demand: the Accept-Signature of the answer.
            sent: the headers that signed the refused request; empty if it was not signed.

        Raises:
            InvalidURL: ``url`` is not an absolute http(s) URL.
        """
        origin, _ = split(url)
        wish = _wish(demand, self._keys.valid())  # without a valid key, the signature of the repetition fails
        if wish is None or origin.scheme != "https":
            return False
        self._asked.pop(origin.text, None)
        self._asked[origin.text] = wish._replace(nonce="")
        if len(self._asked) > _MAX_ORIGINS:
            self._asked.popitem(last=False)
        kind = f"{wish.label}=({' '.join(self._covered(wish))});"
        return bool(wish.nonce) or not sent.get("Signature-Input", "").startswith(kind)

    def _covered(self, wish: _Wish) -> list[str]:
        """Return the identifiers of the covered components, as they are written."""
        agent = '"signature-agent"' if self._is_legacy else f'"signature-agent";key="{wish.label}"'
        return [*(f'"{name}"' for name in wish.components), agent]

    def __repr__(self) -> str:
        keys = ", ".join(key.thumbprint for key in self._keys.valid())
        return f"WebBotAuth(agent={self._agent!r}, keys={keys!r}, when={self._when!r})"


def signed(
    key: SigningKey, label: str, covered: Mapping[str, str], times_wall: tuple[int, int], stated: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers Signature-Input and Signature (RFC 9421 4).

    Args:
        key: the key.
        label: the label of the signature.
        covered: the covered components: maps identifiers with their parameters, as they are written, to values.
        times_wall: the time of the signature, and the time when it ends.
        stated: further parameters, such as ``tag``.
    """
    created_wall, expires_wall = times_wall
    times = f';created={created_wall};keyid="{key.thumbprint}";alg="{_ALG}";expires={expires_wall}'
    parameters = f"({' '.join(covered)}){times}" + "".join(
        f";{name}={http_sf.ser(text)}" for name, text in stated.items()
    )
    # RFC 9421 2.5: the parameters are the last line of the base.
    base = "\n".join(f"{name}: {value}" for name, value in {**covered, '"@signature-params"': parameters}.items())
    signature = base64.b64encode(key.private.sign(base.encode())).decode()
    return {"Signature-Input": f"{label}={parameters}", "Signature": f"{label}=:{signature}:"}


def _wish(demand: str, keys: Iterable[SigningKey]) -> _Wish | None:
    """Return the first signature of an Accept-Signature that this profile can make (RFC 9421 5), or None."""
    try:
        parsed = http_sf.parse(demand.encode(), tltype="dictionary") if len(demand) <= _MAX_DEMAND else {}
    except ValueError:  # includes UnicodeEncodeError
        return None
    ours = {"tag": [_TAG], "alg": [_ALG], "keyid": [key.thumbprint for key in keys]}
    for label, (items, parameters) in cast("dict[str, tuple[Any, dict[str, object]]]", parsed).items():
        components = _components(items, label) if isinstance(items, list) else None
        nonce = parameters.get("nonce", "")
        fits = all(name not in parameters or parameters[name] in own for name, own in ours.items())
        if components is not None and isinstance(nonce, str) and fits:
            return _Wish(label, components, nonce)
    return None


def _components(items: list[tuple[object, dict[str, object]]], label: str) -> tuple[str, ...] | None:
    """Return the components to cover for a demand, in its order, without the Signature-Agent, which is always covered.

    Return None if a component cannot be covered. The result includes an authority, because the profile requires it.
    """
    derived = [item for item in items if item not in ((_AGENT, {}), (_AGENT, {"key": label}))]
    names = tuple(dict.fromkeys(str(name) for name, _ in derived))
    if any(parameters for _, parameters in derived) or not _DERIVED.issuperset(names):
        return None
    return names if "@authority" in names or "@target-uri" in names else ("@authority", *names)


def checked_agent(agent: str) -> str:
    """Return the URL of a directory; raises ConfigurationError if it is not an https URL that can be sent."""
    try:
        is_https = split(agent)[0].scheme == "https"
    except InvalidURL as error:
        raise ConfigurationError(f"agent: {error}") from None
    if not (is_https and agent.isascii() and set(agent).isdisjoint(' "#@\\')):
        wanted = "the https URL of the directory of your keys, escaped, without a user and a fragment"
        raise ConfigurationError(f"agent={InvalidURL(agent, wanted).url!r:.200}: give {wanted}")
    return agent


_MEDIA_TYPE: Final = "application/http-message-signatures-directory+json"
_DIRECTORY_TAG: Final = "http-message-signatures-directory"
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
        times = now_wall, now_wall + _VALID_S
        response.headers.extend(signed(key, f"key{number}", covered, times, {"tag": _DIRECTORY_TAG}))
    return response

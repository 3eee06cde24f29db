"""Signed requests (Web Bot Auth), by which a site can tell who a crawler is; needs the extra ``sign``.

::

    signer = WebBotAuth("bot.pem", agent="https://bot.example/.well-known/http-message-signatures-directory")
    gate = Gatekeeper("ExampleBot/1.0 (+https://bot.example/)", signer=signer)

``politesse key new bot.pem`` makes the key, and ``directory_app`` serves its public half at the URL of ``agent``. A
server verifies the signatures with the keys from this URL.

The module follows draft-ietf-webbotauth-httpsig-protocol-01, RFC 9421 (HTTP Message Signatures), RFC 7638 and RFC 8037
(thumbprints of keys).
"""

from politesse._base.text import needing as _needing

with _needing("politesse.signing", "sign"):
    from politesse.signing._web_bot_auth import WebBotAuth, directory_app

__all__ = ["WebBotAuth", "directory_app"]

"""Twisted's FTP server in a process of its own: writes its port, and one line of JSON for each connection."""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from twisted.cred.checkers import AllowAnonymousAccess
from twisted.cred.portal import Portal
from twisted.protocols.ftp import FTPFactory, FTPRealm


class Noting(FTPFactory):
    """Notes when each connection is made."""

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - Twisted's name
        write(time.monotonic())
        return super().buildProtocol(addr)  # type: ignore[no-untyped-call]


def write(value: float) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def main() -> None:
    host, folder = sys.argv[1:]
    realm: Any = FTPRealm(folder)  # type: ignore[no-untyped-call]
    anybody: Any = AllowAnonymousAccess()
    reactor: Any = importlib.import_module("twisted.internet.reactor")
    factory = Noting(Portal(realm, [anybody]))  # type: ignore[no-untyped-call]
    write(reactor.listenTCP(0, factory, interface=host).getHost().port)
    reactor.run()


main()

"""Free ports, for servers that get their port as an argument and for addresses where nothing listens."""

import secrets
import socket
from contextlib import suppress
from typing import Final

# Below the ports that systems give to connections and to listeners that ask for any port, so that no other process gets
# one of them before it is used. A node of a cluster of Redis also listens at the port 10,000 above, which is none of
# these.
_PORTS: Final = range(10_000, 20_000)


def free_port() -> int:
    """Return a port at which nothing listens."""
    while True:
        port = secrets.choice(_PORTS)  # ``random`` has the same seed in each process
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port

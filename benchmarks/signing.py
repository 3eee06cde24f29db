"""A signature of a request by ``WebBotAuth``, beside the same by http-message-signatures, and ed25519 alone."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from http_message_signatures import HTTPMessageSigner, MappingKeyResolver, algorithms

from benchmarks.figures import figure
from benchmarks.table import table
from benchmarks.timing import Contender, Task, interleave
from politesse.signing import WebBotAuth
from politesse.signing._keys import new_key, write_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

_OURS: Final = "WebBotAuth.sign"
_PEER: Final = "http-message-signatures"
_ALONE: Final = "ed25519 alone"
_AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"
_BASE: Final = b"x" * 450  # about the octets that such a signature covers
_COVERED: Final = ("@authority", "@method", "@path", '"signature-agent";key="sig1"')


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    number = settings.size(2_000, 50)
    yield f"signing: {number:,} requests; {settings.rounds} interleaved rounds, processor time"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bot.pem")
        key = new_key(0, days=36_500)
        write_keys(path, [key], is_new=True)
        peer = HTTPMessageSigner(
            signature_algorithm=algorithms.ED25519,
            key_resolver=MappingKeyResolver(public_keys={}, private_keys={key.thumbprint: key.private}),
        )
        contenders: dict[str, Callable[[str], object]] = {
            _OURS: partial(WebBotAuth(path, agent=_AGENT).sign, "GET"),
            _PEER: partial(_sign_by_peer, peer, key.thumbprint),
            _ALONE: lambda _: key.private.sign(_BASE),
        }
        samples = interleave(
            [Contender(name, _work(sign, number)) for name, sign in contenders.items()], settings.rounds
        )
    rows = []
    for name in contenders:
        ratio = figure(f"signing/{name}", samples.ratios(name, _OURS))
        rows.append((name, f"{samples.median_us(name):.1f}", f"{ratio.value:.2f}", ratio.spread))
    yield table("signing: one request", ("", "us a request", f"x {_OURS}", "quartiles"), rows)
    yield figure("signing/request", [1e6 * seconds for seconds in samples.seconds[_OURS]], "us")


def _work(sign: Callable[[str], object], number: int) -> Callable[[int], Task]:
    def sign_all() -> None:
        for place in range(number):
            sign(f"https://host{place % 100}.example/shelf/product-{place}?page=2")

    return lambda _: Task(sign_all, number)


def _sign_by_peer(peer: HTTPMessageSigner, kid: str, url: str) -> None:
    message = SimpleNamespace(method="GET", url=url, headers={"Signature-Agent": f'sig1="{_AGENT}"'})
    now = datetime.now(UTC)
    expires, tag = now + timedelta(minutes=5), "web-bot-auth"
    peer.sign(message, key_id=kid, created=now, expires=expires, label="sig1", tag=tag, covered_component_ids=_COVERED)

"""That all engines were asked the same and the bulk of their answers is the same: nobody measures something easier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.corpus import fresh_urls
from benchmarks.engines import ENGINES, PEERS, POLITESSE, PROTEGO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.engines import Judge

_FEW: Final = 0.05

Judges = dict[str, list["Judge"]]


def judges(files: Sequence[RobotsFile]) -> Judges:
    """Return what each engine made of each file."""
    return {engine.name: [engine.judge(file) for file in files] for engine in ENGINES}


def verify(files: Sequence[RobotsFile], judged: Mapping[str, Sequence[Judge]], seed: int) -> str:
    """Return in words how many verdicts differ; raises RuntimeError where Protego agrees on less than the bulk."""
    urls = [fresh_urls(file, seed, 0) for file in files]
    verdicts = {
        name: [verdict for judge, asked in zip(ones, urls, strict=True) for verdict in judge(asked)]
        for name, ones in judged.items()
    }
    ours = verdicts[POLITESSE.name]
    differing = {peer.name: _differing(ours, verdicts[peer.name]) for peer in PEERS}
    if differing[PROTEGO.name] > _FEW * len(ours):
        raise RuntimeError(f"politesse and Protego differ on {differing[PROTEGO.name]} of {len(ours)} URLs; look why")
    in_words = ", ".join(f"{number:,} ({number / len(ours):.2%}) with {name}" for name, number in differing.items())
    queries = sum("?" in url for asked in urls for url in asked)
    return (
        f"{len(ours):,} URLs a round, {queries / len(ours):.0%} with a query, {1 - sum(ours) / len(ours):.0%} "
        f"disallowed; other verdicts: {in_words}"
    )


def _differing(ours: Sequence[bool], theirs: Sequence[bool]) -> int:
    return sum(one != other for one, other in zip(ours, theirs, strict=True))

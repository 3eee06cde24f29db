"""All engines must answer the same questions alike: a fast wrong answer stops the run.

politesse must answer as the literal reading of RFC 9309 does, which judges traces, and as Protego does, except for the
differences that ``explained`` can undo. The other peers read another language, and their differences are only counted:
urllib.robotparser knows no wildcards and takes the first rule that matches; robotspy compares without normal form.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.corpus import load
from benchmarks.engines import AGENT, ENGINES, PEERS, POLITESSE, PROTEGO
from benchmarks.explained import explanation, leniency
from benchmarks.urls import UrlKind, fresh_urls, kind_of
from politesse.origin import target_of
from politesse.testing.trace import LiteralRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.engines import Judge
    from benchmarks.settings import Settings

_ROUNDS: Final = 2


class Disagreement(RuntimeError):
    """politesse and a peer answer differently, for no known reason."""


class Compared(NamedTuple):
    """Attributes:
    file: the file.
    url: the URL of the question.
    allowed: the answer of each engine, by name.
    """

    file: RobotsFile
    url: str
    allowed: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Agreed:
    """Attributes:
    files: the corpus.
    judges: by engine, the parsed files.
    in_words: how many answers differ, and why.
    """

    files: Sequence[RobotsFile]
    judges: Mapping[str, Sequence[Judge]]
    in_words: str


@cache
def agreed(settings: Settings) -> Agreed:
    """Load the corpus, and compare the answers of all engines to the URLs of the first rounds.

    Raises:
        Disagreement: an answer differs for no known reason.
    """
    files = load(settings)
    judges = {engine.name: [engine.judge(file) for file in files] for engine in ENGINES}
    return Agreed(files, judges, compare(list(_answers(files, judges, settings.seed))))


def compare(answers: Sequence[Compared]) -> str:
    """Return in words how many answers differ, and why.

    Raises:
        Disagreement: politesse differs from the literal reading, or from Protego for no known reason.
    """
    reasons: Counter[str] = Counter()
    leniencies: Counter[str] = Counter()
    literal = _Literal()
    for answer in answers:
        ours, theirs = answer.allowed[POLITESSE.name], answer.allowed[PROTEGO.name]
        if ours != literal.allowed(answer.file, answer.url):
            reason = leniency(answer.file, target_of(answer.url), answer=ours)
            leniencies[_known(reason, answer, "the literal reading")] += 1
        if ours != theirs:
            reason = explanation(answer.file, answer.url, answer=theirs)
            reasons[_known(reason, answer, PROTEGO.name)] += 1
    return "\n".join(
        [
            _shares(answers),
            f"the literal reading of RFC 9309 agrees with politesse on {len(answers) - leniencies.total():,}",
            *(f"politesse differs from it {number} times: it {reason}" for reason, number in leniencies.items()),
            *(f"Protego differs {number} times: it {reason}" for reason, number in reasons.items()),
        ]
    )


def _known(reason: str | None, answer: Compared, other: str) -> str:
    if reason is None:
        raise Disagreement(f"politesse and {other} differ: {answer.url} of {_beginning(answer.file)}")
    return reason


class _Literal:
    """The literal reading of a file at a time."""

    def __init__(self) -> None:
        self._file: RobotsFile | None = None

    def allowed(self, file: RobotsFile, url: str) -> bool:
        if file is not self._file:
            self._file, self._rules = file, LiteralRules(file.body, AGENT)
        return self._rules.against(target_of(url)) is None


def _answers(files: Sequence[RobotsFile], judges: Mapping[str, Sequence[Judge]], seed: int) -> Iterator[Compared]:
    for place, file in enumerate(files):
        urls = [url for number in range(_ROUNDS) for url in fresh_urls(file, seed, number)]
        columns = [ones[place](urls) for ones in judges.values()]
        for url, *answers in zip(urls, *columns, strict=True):
            yield Compared(file, url, dict(zip(judges, answers, strict=True)))


def _shares(answers: Sequence[Compared]) -> str:
    asked = len(answers)
    queries = sum("?" in answer.url for answer in answers)
    escapes = sum(kind_of(answer.url) is UrlKind.ESCAPES for answer in answers)
    disallowed = sum(not answer.allowed[POLITESSE.name] for answer in answers)
    others = [
        f"{number:,} ({number / asked:.2%}) with {peer.name}"
        for peer in PEERS
        for number in [sum(answer.allowed[peer.name] != answer.allowed[POLITESSE.name] for answer in answers)]
    ]
    return (
        f"{asked:,} URLs compared, {queries / asked:.0%} with a query, {escapes / asked:.0%} with escapes or not "
        f"ASCII, {disallowed / asked:.0%} disallowed; other verdicts: {', '.join(others)}"
    )


def _beginning(file: RobotsFile) -> str:
    return f"{file.host}, {len(file.patterns)} rules, which begins with {file.text[:200]!r}"

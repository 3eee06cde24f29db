"""A short form of the fuzzing, without atheris: the corpus, and inputs that are like it."""

from collections.abc import Iterable

import pytest

from politesse.robots import IMPLEMENTATION
from tests.fuzz.__main__ import TARGETS
from tests.fuzz.target import CORPUS, Target, mutants

no_core = pytest.mark.skipif(IMPLEMENTATION == "python", reason="there is no compiled core to compare")
every_target = pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, id=name, marks=[no_core] if name == "native_reference" else [])
        for name, target in TARGETS.items()
        if target.fuzz is None  # test_runner.py has the other
    ],
)


def _hold(target: Target, inputs: Iterable[bytes]) -> int:
    count = 0
    for octets in inputs:
        try:
            target.check(octets)
        except Exception as error:
            error.add_note(f"the input was {octets!r}")
            raise
        count += 1
    return count


@every_target
def test_the_corpus_holds(target: Target) -> None:
    assert _hold(target, (file.read_bytes() for file in target.corpus)) >= 10


@pytest.mark.full
@every_target
def test_what_is_like_the_corpus_holds(target: Target) -> None:
    assert _hold(target, mutants(target, target.short_runs)) == target.short_runs


def test_mutations_are_the_same_each_time_and_seldom_the_same_as_each_other() -> None:
    target = TARGETS["document"]
    inputs = list(mutants(target, 200))
    assert inputs == list(mutants(target, 200))
    assert len(set(inputs)) > 150
    assert max(map(len, inputs)) <= target.max_octets


def test_the_corpus_is_small_and_that_of_the_targets() -> None:
    files = [file for file in CORPUS.rglob("*") if file.is_file()]
    assert {file.parent for file in files} == {target.directory for target in TARGETS.values()}
    assert len(files) <= 300
    assert sum(file.stat().st_size for file in files) <= 500_000
    for target in TARGETS.values():
        assert max(file.stat().st_size for file in target.corpus) <= target.max_octets

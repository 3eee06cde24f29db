"""Where a Scrapy process of a fleet keeps what it knows, and how long it waits for a Redis that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from politesse.errors import ConfigurationError
from politesse.events import FleetAway, FleetBack
from politesse.integrations.scrapy.absence import FleetAbsence
from politesse.integrations.scrapy.store import fleet_of, store_of
from politesse.options import FleetOptions
from politesse.stores import MemoryStore
from politesse.testing import ManualClock
from politesse.verdict import Bound

if TYPE_CHECKING:
    from pathlib import Path

URL = "redis://crawler:secret@127.0.0.1:6379/0"


@pytest.mark.parametrize("given", [None, False, "", "0", "False", "false"])
def test_crawl_without_a_fleet(given: object) -> None:
    assert fleet_of(Settings({"POLITESSE_FLEET": given})) is None


@pytest.mark.parametrize("given", [URL, FleetOptions(URL)])
def test_fleet_is_named_by_a_url_or_options(given: object) -> None:
    assert fleet_of(Settings({"POLITESSE_FLEET": given})) == FleetOptions(URL)


@pytest.mark.parametrize("given", [True, 5, ["redis://:secret@127.0.0.1/0"]])
def test_fleet_of_another_type_is_refused_without_its_value(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^POLITESSE_FLEET: give the URL of a Redis.*no (bool|int|list)$"):
        fleet_of(Settings({"POLITESSE_FLEET": given}))


def test_store_of_the_fleet_takes_the_place_of_that_in_the_job_but_not_of_one_that_is_named(tmp_path: Path) -> None:
    job: dict[str, object] = {"JOBDIR": str(tmp_path)}
    for settings, without, within in (
        ({}, None, None),
        (job, tmp_path / "robots.db", None),
        (job | {"POLITESSE_STORE": "mine.db"}, "mine.db", "mine.db"),
    ):
        assert store_of(Settings(settings)) == without
        assert store_of(Settings(settings | {"POLITESSE_FLEET": URL})) == within


def test_no_store_means_the_memory_of_the_process_in_a_fleet_too() -> None:
    assert store_of(Settings({"POLITESSE_STORE": False})) is None
    assert isinstance(store_of(Settings({"POLITESSE_STORE": False, "POLITESSE_FLEET": URL})), MemoryStore)


def test_redis_that_is_away_is_given_up_after_the_longest_wait_and_all_go_on_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, rested = ManualClock(), list[str]()
    absence = FleetAbsence(clock, 60.0, rested.append)
    absence.heard(FleetAway("redis://127.0.0.1:6379/0", "refused\n"))
    clock.advance(59.0)
    assert not absence.holds_up("a.example")
    clock.advance(1.0)
    assert absence.holds_up("a.example")
    assert absence.holds_up("b.example")
    assert absence.answer is not None
    assert absence.answer.bound_by is Bound.FLEET
    assert "away for 60 s, as POLITESSE_MAX_WAIT permits (redis://127.0.0.1:6379/0: refused\\n)" in caplog.text
    absence.heard(FleetBack("redis://127.0.0.1:6379/0", 61.0))
    assert sorted(rested) == ["a.example", "b.example"]
    assert not absence.holds_up("a.example")


def test_redis_that_is_back_in_time_is_not_given_up() -> None:
    clock = ManualClock()
    absence = FleetAbsence(clock, 60.0, lambda _: None)
    absence.note("it was away before this spider was opened")
    clock.advance(30.0)
    absence.heard(FleetBack("redis://127.0.0.1:6379/0", 30.0))
    clock.advance(60.0)
    assert absence.answer is None

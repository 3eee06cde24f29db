# ruff: noqa: ASYNC240 - the files of these tests are small

from pathlib import Path

import pytest

from politesse import Gatekeeper
from politesse.errors import ConfigurationError
from politesse.stores import MemoryStore, SqliteStore
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0"
SITE = "https://example.com"
CLOSED = "User-agent: *\nDisallow: /private"


async def asks(store: object, fetcher: ScriptedFetcher) -> bool:
    async with Gatekeeper(UA, fetcher=fetcher, store=store) as gate:  # type: ignore[arg-type]
        return (await gate.check(f"{SITE}/private")).allowed


@pytest.mark.parametrize(
    "location",
    [
        "robots.db",
        "./robots.db",
        "sub/../robots.db",
        "sqlite:///robots.db",
        "sqlite:///{here}/robots.db",
        "{here}/robots.db",
        Path("robots.db"),
    ],
)
async def test_a_gate_keeps_its_records_at_a_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    place = location.format(here=tmp_path) if isinstance(location, str) else location
    first, second = ScriptedFetcher({SITE: CLOSED}), ScriptedFetcher({SITE: CLOSED})
    assert not await asks(place, first)
    assert not await asks(place, second)
    assert (first.count(SITE), second.count(SITE)) == (1, 0)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["robots.db"]


async def test_a_name_with_percent_and_colon_is_taken_as_it_is(tmp_path: Path) -> None:
    assert not await asks(f"sqlite:///{tmp_path}/a%20b.db", ScriptedFetcher({SITE: CLOSED}))
    assert not await asks(tmp_path / "c:d?e#f.db", ScriptedFetcher({SITE: CLOSED}))
    assert {file.name for file in tmp_path.iterdir()} == {"a%20b.db", "c:d?e#f.db"}


async def test_the_records_are_dated_by_the_clock_of_the_gate(tmp_path: Path) -> None:
    clock = ManualClock(wall=1_800_000_000)
    place = tmp_path / "robots.db"
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: CLOSED}), clock=clock, store=place) as gate:
        await gate.check(SITE + "/")
    store = SqliteStore(place)
    assert {record.stored_wall async for record in store.records()} == {1_800_000_000}
    await store.aclose()


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        (":memory:", "a store in memory is the default"),
        ("sqlite://", "a store in memory is the default"),
        ("sqlite:///", "a store in memory is the default"),
        ("sqlite:///:memory:", "a store in memory is the default"),
        ("sqlite:robots.db", "no such kind of file; give the path of a file, 'sqlite:///relative.db'"),
        ("sqlite:/robots.db", "no such kind of file"),
        ("sqlite://robots.db", "no such kind of file"),
        ("redis://localhost/0", "no such kind of file"),
        ("file:///robots.db", "no such kind of file"),
        ("sqlite:///robots.db?timeout=5", "make a SqliteStore"),
        ("", "give the path of a file"),
        ("sqlite:///nowhere/robots.db", "there is no folder"),
        ("nowhere/robots.db", "there is no folder"),
        (".", "not a regular file"),
    ],
)
def test_a_location_that_is_none_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        Gatekeeper(UA, store=location)
    assert str(caught.value).startswith(f"store={location!r}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("store", [b"robots.db", 5, MemoryStore().get, True])
def test_what_is_no_store_and_no_location_is_a_configuration_error(store: object) -> None:
    with pytest.raises(ConfigurationError, match="store="):
        Gatekeeper(UA, store=store)  # type: ignore[arg-type]


def test_the_url_of_a_redis_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigurationError, match=r"^store='rediss://cache\.example/0': no such kind of file"):
        Gatekeeper(UA, store="rediss://crawler:pa55w0rd@cache.example/0")

"""How a gate is told its fleet; what the fleet does then is in tests/wire/fleet."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from politesse import ConfigurationError, Gatekeeper, NotYet, PacingOptions
from politesse.errors import ConfigurationTypeError
from politesse.options import FleetOptions, SharedPacer
from politesse.stores import SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ScriptedFetcher
from tests.support.ports import free_port
from tests.support.programs import run_code

UA = "ExampleBot/1.0"
PAGE = "https://example.com/page"


def gate_of(fleet: object, **options: object) -> Gatekeeper:
    return Gatekeeper(UA, fetcher=ScriptedFetcher({"https://example.com": 404}), fleet=fleet, **options)  # type: ignore[arg-type]


def run(program: str) -> str:
    done = run_code(program, check=False)
    assert done.stderr == ""
    return done.stdout


def test_gate_without_a_fleet_needs_no_redis_and_no_part_of_a_fleet() -> None:
    program = (
        "import sys\n"
        "from politesse import Gatekeeper\n"
        f"Gatekeeper('{UA}')\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'redis'], 'politesse._redis' in sys.modules)\n"
        "print('politesse._pacing.fleet.link' in sys.modules)"
    )
    assert run(program) == "[] False\nFalse\n"


def test_missing_extra_is_named_when_the_gate_is_made() -> None:
    program = (
        "import sys\n"
        "sys.modules['redis'] = None\n"
        "from politesse import ConfigurationError, Gatekeeper\n"
        "try:\n"
        f"    Gatekeeper('{UA}', fleet='redis://crawler:secret@localhost/0')\n"
        "except ConfigurationError as error:\n"
        "    print(error)"
    )
    printed = run(program)
    assert "pip install '.[redis]'" in printed
    assert "redis://***@localhost/0" in printed
    assert "secret" not in printed


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "it is no URL"),
        ("localhost", "it is no URL"),
        ("http://:secret@localhost/0", "Redis URL must specify one of the following schemes"),
        ("redis://:secret@localhost:port/0", "give a URL"),
        ("redis://:secret@localhost/robots", "is no number of a database"),
        ("redis://:secret@localhost/0?sokcet_timeout=3", "sokcet_timeout"),
        ("redis+sentinel://:secret@localhost", "the service is missing"),
        ("redis+proxy://:secret@localhost", "give a URL"),
        ("redis+cluster://:secret@,", "a host is missing"),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_mistake_in_the_url_is_an_error_when_the_gate_is_made(url: str, problem: str, *, shared: bool) -> None:
    with pytest.raises(ConfigurationError) as raised:
        gate_of(None, pacer=SharedPacer(fleet=url)) if shared else gate_of(url)
    assert problem in str(raised.value)
    assert str(raised.value).startswith("fleet=")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("value", [b"redis://:secret@localhost/0", 6379, PacingOptions()])
def test_fleet_of_another_type_is_an_error_that_does_not_show_it(value: object) -> None:
    with pytest.raises(
        ConfigurationTypeError, match="fleet: give a URL, as 'redis://host:6379/0', or FleetOptions"
    ) as raised:
        gate_of(value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "FleetOptions('redis://***@cache.example:6379/0?...', prefix='politesse:', lease_s=60.0, timeout_s=1.0,"),
        ({"prefix": "crawl-2:"}, "prefix='crawl-2:'"),
    ],
)
def test_repr_of_the_options_hides_what_is_secret(options: Mapping[str, str], shown: str) -> None:
    fleet = FleetOptions("redis://crawler:s@c:re/t?@cache.example:6379/0?ssl_password=hidden", **options)  # type: ignore[arg-type]
    assert shown in repr(fleet)
    assert all(secret not in repr(fleet) for secret in ("crawler", "s@c", "re/t", "hidden"))


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:{port}/0",
        "rediss://127.0.0.1:{port}/0",
        "unix:///tmp/no-such-socket-{port}",
        "redis+sentinel://127.0.0.1:{port}/crawl/0",
        "redis+cluster://127.0.0.1:{port}",
    ],
)
async def test_gate_whose_redis_is_away_is_made_and_starts_nothing(url: str) -> None:
    async with gate_of(url.format(port=free_port())) as gate:
        assert (await gate.check(PAGE)).allowed
        assert isinstance(gate.try_turn(PAGE), NotYet)


def test_gate_is_made_where_no_event_loop_runs() -> None:
    assert gate_of("redis+cluster://127.0.0.1:1").peek(PAGE) is None


def test_fleet_and_a_pace_of_each_process_contradict_each_other() -> None:
    with pytest.raises(ConfigurationError, match=r"fleet= and PacingOptions\(scope='process'\) contradict each other"):
        gate_of("redis://127.0.0.1:1/0", pacing=PacingOptions(scope="process"))


def test_store_that_processes_share_needs_a_fleet() -> None:
    store = RedisStore("redis://:secret@127.0.0.1:1/0")
    with pytest.raises(ConfigurationError, match="several processes share it, and each would have a pace") as raised:
        gate_of(None, store=store)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("fleet", "scope"), [(None, "process"), ("redis://127.0.0.1:1/0", "")])
async def test_store_that_processes_share_goes_with_a_fleet_or_a_pace_that_is_meant_to_be_of_each(
    fleet: str | None, scope: str
) -> None:
    async with gate_of(fleet, store=RedisStore("redis://127.0.0.1:1/0"), pacing=PacingOptions(scope=scope)) as gate:
        assert (await gate.check(PAGE)).allowed


async def test_store_beside_a_fleet_keeps_the_records(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with gate_of("redis://127.0.0.1:1/0", store=store) as gate:
        await gate.check(PAGE)
    kept = SqliteStore(store)
    assert [record.key async for record in kept.records()] == ["https://example.com"]
    await kept.aclose()

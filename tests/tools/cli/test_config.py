"""``--config``: each command makes the gate of the file, and its other options replace the values of the file."""

# ruff: noqa: ASYNC240 - the files of these tests are small
from pathlib import Path
from typing import Final

import pytest

from politesse.ledger import LedgerReader
from politesse.stores import SqliteStore
from tests.support.redis_servers import RedisServer
from tests.tools.cli.command import Origin, politesse, serving

UA: Final = "ExampleBot/2.0 (+https://example.com/bot)"
ROBOTS: Final = "User-agent: ExampleBot\nDisallow: /bot/\n\nUser-agent: *\nDisallow: /others/\n"
FILE: Final = f"""
[gate]
user_agent = "{UA}"
[pacing]
min_delay_s = 0.0
adaptive_factor = 0.0
[policies.localhost]
deny = true
reason = "they asked us"
[store]
path = "robots.db"
[ledger]
path = "ledger.db"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "team.toml"
    path.write_text(FILE)
    return str(path)


async def test_check_asks_as_the_crawler_of_the_file(config: str, tmp_path: Path) -> None:
    async with serving(Origin(ROBOTS)) as origin:
        urls = [f"{origin.base}/bot/", f"{origin.base}/others/", "http://localhost:1/"]
        bot, others, closed = (await politesse("check", "--config", config, *urls, "--json")).records
        assert [request.headers["User-Agent"] for request in origin.requests] == [UA]
        assert [(one["allowed"], one["agent"]) for one in (bot, others)] == [
            (False, "examplebot"),
            (True, "examplebot"),
        ]
        assert (closed["reason"], closed["note"]) == ("policy-deny", "they asked us")
        [told] = (await politesse("check", "--config", config, "--agent", "OtherBot", urls[1], "--json")).records
        assert (told["allowed"], told["agent"]) == (False, "otherbot")
        assert len(origin.requests) == 1, "the store of the file keeps robots.txt"
        other = tmp_path / "other.db"
        await politesse("check", "--config", config, "--store", str(other), urls[1])
        assert (len(origin.requests), other.exists()) == (2, True)
        done = await politesse("filter", "--config", config, stdin=f"{urls[0]}\n{urls[1]}\n".encode())
        assert (done.out, len(origin.requests)) == (f"{urls[1]}\n", 2)


async def test_tokens_of_the_file_choose_the_groups(config: str) -> None:
    Path(config).write_text(FILE.replace("[pacing]", 'token = ["OneBot", "ExampleBot"]\n[pacing]'))
    async with serving(Origin(ROBOTS)) as origin:
        [told] = (await politesse("check", "--config", config, f"{origin.base}/bot/", "--json")).records
    assert (told["allowed"], told["agent"]) == (False, "onebot,examplebot")


async def test_crawl_is_the_crawler_of_the_file(config: str, tmp_path: Path) -> None:
    async with serving(Origin(ROBOTS)) as origin:
        done = await politesse("crawl", "--config", config, f"{origin.base}/a", f"{origin.base}/bot/")
        assert done.code == 1, done.err
        assert {request.headers["User-Agent"] for request in origin.requests} == {UA}
        assert sorted(origin.paths) == ["/a", "/robots.txt"]
        other = tmp_path / "other.db"
        agent = "OtherBot/1.0 (+https://example.com/other)"
        options = ("--agent", agent, "--ledger", str(other))
        assert (await politesse("crawl", "--config", config, *options, f"{origin.base}/bot/")).code == 0
        assert origin.requests[-1].headers["User-Agent"] == agent
    with LedgerReader(tmp_path / "ledger.db") as ledger, LedgerReader(other) as others:
        assert [turn.url.removeprefix(origin.base) for turn in ledger.turns()] == ["/a"]
        assert [turn.agent for turn in others.turns()] == ["otherbot"]
    store = SqliteStore(tmp_path / "robots.db")
    assert await store.get(origin.base) is not None
    await store.aclose()


async def test_explain_lint_and_diff_fetch_as_the_crawler_of_the_file(config: str) -> None:
    Path(config).write_text(
        FILE.replace("[pacing]", 'dialect = "koster-1994"\n[fetch]\nfrom_address = "a@b"\n[pacing]')
    )
    async with serving(Origin(ROBOTS)) as origin:
        done = await politesse("explain", "--config", config, f"{origin.base}/bot/", "--json")
        [told] = done.records
        assert (told["agent"], told["dialect"], done.code) == ("examplebot", "koster-1994", 1)
        [told] = (
            await politesse("explain", "--config", config, f"{origin.base}/", "--dialect", "perl", "--json")
        ).records
        assert told["dialect"] == "perl"
        assert (await politesse("lint", "--config", config, origin.base)).code == 0
        assert (await politesse("diff", "--config", config, origin.base, origin.base)).code == 0
        assert {(one.headers["User-Agent"], one.headers["From"]) for one in origin.requests} == {(UA, "a@b")}


async def test_pages_and_robots_txt_go_through_the_proxy_of_the_file(config: str) -> None:
    async with serving(Origin(ROBOTS)) as proxy:
        Path(config).write_text(f'{FILE}\n[fetch]\nproxy = {{env = "PROXY"}}\n')
        url = "http://site.invalid/a"
        for command in (("crawl",), ("check", "--page")):
            proxy.requests.clear()
            done = await politesse(*command, "--config", config, url, PROXY=proxy.base)
            assert done.code == 0, done.err + done.out
            assert "http://site.invalid/a" in [str(one.url) for one in proxy.requests]


async def test_fleet_of_the_file_is_read(config: str) -> None:
    with RedisServer("--requirepass", "hunter2") as server:
        url = f"redis://:hunter2@127.0.0.1:{server.port}/0"
        Path(config).write_text(f'{FILE}\n[fleet]\nurl = {{env = "IT"}}\nprefix = "team:"\n')
        async with serving(Origin(ROBOTS)) as origin:
            assert (await politesse("check", "--config", config, f"{origin.base}/", IT=url)).code == 0
            done = await politesse("crawl", "--config", config, f"{origin.base}/", IT=url)
            assert done.code == 0, done.err
        done = await politesse("fleet", "status", "--config", config, "127.0.0.1", IT=url)
        assert (done.code, "host: 127.0.0.1" in done.out) == (0, True)
        done = await politesse("fleet", "status", "--config", config, "127.0.0.1", "--fleet-prefix", "other:", IT=url)
        assert done.code == 1
        done = await politesse("fleet", "status", "--config", config, "--help", IT=url)
        assert "hunter2" not in done.out + done.err


async def test_mistake_in_the_file_ends_the_command_with_its_place(config: str) -> None:
    Path(config).write_text("[gate]\nuser_agent = 'ExampleBot/1.0'\n[pacing]\nmin_delay = 1\n")
    for command in (
        ("check", "http://a.test/"),
        ("filter",),
        ("crawl", "http://a.test/"),
        ("lint", "-"),
        ("diff", "-", "-"),
    ):
        done = await politesse(*command, "--config", config)
        assert done.code == 2
        assert "unknown key; did you mean min_delay_s?" in done.problem
        assert "team.toml:4:" in done.problem.replace(" ", "")


async def test_password_in_the_file_is_told_once_and_not_shown(config: str) -> None:
    Path(config).write_text(f'{FILE}\n[fetch]\nproxy = "http://bot:hunter2@127.0.0.1:9/"\n')
    done = await politesse("check", "--config", config, "http://localhost:1/")
    assert (done.code, done.err.count("[fetch] proxy has a password"), "hunter2" in done.out + done.err) == (
        1,
        1,
        False,
    )

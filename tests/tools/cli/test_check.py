import asyncio
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import politesse as package
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Origin, politesse, run_process, serving


@pytest.mark.parametrize(
    ("status", "paths", "code", "told"),
    [
        (200, ["/", "/public"], 0, ["allowed: {}/\n", "allowed: {}/public\n"]),
        (200, ["/", "/private/a"], 1, ["disallowed: {}/private/a", "line 2, 'Disallow: /private/'"]),
        (200, ["/"], 0, ["source: {}/robots.txt, successful, status 200"]),
        (503, ["/"], 2, ["not before: "]),
        (429, ["/"], 2, ["not before: "]),
    ],
)
async def test_exit_code_says_whether_all_are_allowed_and_decided(
    status: int, paths: list[str], code: int, told: list[str]
) -> None:
    async with serving(Origin(status=status, headers={"Retry-After": "7"})) as origin:
        done = await politesse("check", *(origin.base + path for path in paths))
    assert (done.code, done.err) == (code, "")
    assert all(one.format(origin.base) in done.out for one in told)


async def test_verdicts_come_in_the_order_of_the_urls() -> None:
    async with serving(Origin()) as one, serving(Origin()) as other:
        urls = [f"{site.base}/{n}" for n in range(5) for site in (one, other)]
        done = await politesse("check", *urls, "--json")
    assert [json.loads(line)["url"] for line in done.out.splitlines()] == urls


async def test_invalid_url_exits_2_and_the_others_are_judged() -> None:
    async with serving(Origin()) as origin:
        done = await politesse("check", "ftp://example.com/", f"{origin.base}/")
    assert done.code == 2
    assert f"\nallowed: {origin.base}/" in done.out


async def test_json_has_its_documented_keys() -> None:
    robots = "User-agent: *\nDisallow: /private/\n"
    async with serving(Origin(robots, headers={"Cache-Control": "max-age=600"})) as origin:
        done = await politesse("check", f"{origin.base}/private/a", "--json")
    (line,) = done.out.splitlines()
    told = json.loads(line)
    assert list(told) == ["url", "allowed", "reason", "agent", "rule", "source", "age_s", "not_before", "note"]
    assert (told["url"], told["allowed"], told["reason"]) == (f"{origin.base}/private/a", False, "disallow-rule")
    assert (told["agent"], told["not_before"], told["note"]) == ("politesse", None, "")
    assert told["rule"] == {"line": 2, "field": "Disallow", "value": "/private/"}
    source = told["source"]
    assert source.keys() == {"robots_url", "result", "status", "final_url", "fetched", "fresh_until", "fault"}
    assert (source["result"], source["status"], source["fault"]) == ("successful", 200, "")
    assert source["robots_url"] == source["final_url"] == f"{origin.base}/robots.txt"
    assert source["fetched"] < source["fresh_until"]


@pytest.mark.parametrize("agent", ["ExampleBot", "examplebot", "ExampleBot/2.1 (+https://example.com/bot)"])
async def test_agent_chooses_the_group_and_is_not_impersonated(agent: str) -> None:
    robots = "User-agent: ExampleBot\nDisallow: /\n\nUser-agent: *\nAllow: /\n"
    async with serving(Origin(robots)) as origin:
        judged = await politesse("check", f"{origin.base}/", "--agent", agent)
        ordinary = await politesse("check", f"{origin.base}/")
    assert (judged.code, ordinary.code) == (1, 0)
    assert {request.headers["User-Agent"] for request in origin.requests} == {
        f"politesse/{package.__version__} (robots.txt check)"
    }


async def test_remote_text_steers_neither_the_terminal_nor_rich() -> None:
    hostile = "/[bold red]:smile:[/bold red]\u009b31m\u202e"
    async with serving(Origin(f"User-agent: *\nDisallow: {hostile}*\nDisallow: /\n")) as origin:
        done = await politesse("check", f"{origin.base}{hostile}", FORCE_COLOR="1")
    assert done.code == 1
    assert r"/[bold red]:smile:[/bold red]\x9b31m\u202e" in done.out
    assert "\u009b" not in done.out
    assert "\u202e" not in done.out


async def test_a_long_url_is_not_folded() -> None:
    async with serving(Origin()) as origin:
        url = f"{origin.base}/{'long/' * 100}"
        done = await politesse("check", url)
    assert f"allowed: {url}\n" in done.out


async def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    async with serving(Origin()) as origin:
        done = await run_process("check", f"{origin.base}/é", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.code == 0
    assert f"allowed: {origin.base}/\\xe9\n" in done.out


@pytest.mark.full
@pytest.mark.parametrize("options", first_of(1, [[], ["--json"]]))
async def test_closed_stdout_ends_it_quietly(options: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "check", "no url", *options, stdout=writer, stderr=asyncio.subprocess.PIPE
    )
    os.close(writer)
    _, err = await process.communicate()
    assert (process.returncode, err) == (141, b"")


@pytest.mark.full
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("options", first_of(1, [[], ["--json"]]))
def test_a_full_disk_exits_2_and_is_reported(options: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [*COMMAND, "check", "no url", *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (2, b"politesse: [Errno 28] No space left on device\n")


async def test_host_is_reported_after_the_verdicts() -> None:
    async with serving(Origin("User-agent: *\nCrawl-delay: 7\nDisallow: /private/\n")) as origin:
        done = await politesse("check", f"{origin.base}/", f"{origin.base}/private/a", "--host")
    assert done.code == 1
    verdicts, _, host = done.out.partition("host: ")
    assert verdicts.count("allowed: ") == 2
    name, *facts = host.splitlines()
    assert name == "127.0.0.1"
    told = dict(fact.strip().split(": ", 1) for fact in facts if not fact.endswith(":"))
    assert facts[facts.index("  robots:") + 1] == f"    origin: {origin.base}"
    assert (told["interval_s"], told["bound_by"]) == ("7.0", "crawl-delay")
    assert (told["in_flight"], told["waiting"]) == ("0", "0")
    assert (told["result"], told["status"]) == ("successful", "200")
    assert told["not_before"][:2] == told["next_fetch"][:2] == "20"
    assert "closed_until" not in told


async def test_host_that_is_closed_says_until_when() -> None:
    async with serving(Origin(status=503, headers={"Retry-After": "700"})) as origin:
        done = await politesse("check", f"{origin.base}/", "--host")
    assert done.code == 2
    assert "\n  closed_until: 20" in done.out
    assert "\n  closed_by: retry-after\n" in done.out
    robots = f"origin: {origin.base}\n    result: unreachable\n    status: 503\n"
    assert f"\n    {robots}    fault: the server answered with status 503\n" in done.out


async def test_host_as_json_has_its_documented_keys() -> None:
    async with serving(Origin("User-agent: OtherBot\nCrawl-delay: 7\n")) as origin:
        done = await politesse("check", f"{origin.base}/", "--host", "--json", "--agent", "OtherBot")
    verdict, host = map(json.loads, done.out.splitlines())
    assert verdict["url"] == f"{origin.base}/"
    assert list(host) == [
        *("host", "interval_s", "bound_by", "not_before", "closed_until", "closed_by"),
        *("waiting", "in_flight", "held_by", "held_s", "robots", "fleet_wait"),
    ]
    assert (host["host"], host["interval_s"], host["bound_by"]) == ("127.0.0.1", 7.0, "crawl-delay")
    [robots] = host["robots"]
    assert list(robots) == ["origin", "result", "status", "fault", "age_s", "fetching", "next_fetch"]
    assert (robots["origin"], robots["result"], robots["status"]) == (origin.base, "successful", 200)


async def test_a_url_without_a_scheme_is_answered_with_the_url_to_write() -> None:
    done = await politesse("check", "example.com", "localhost:8000/a", "no url")
    assert done.code == 2
    assert "disallowed" not in done.out
    assert re.findall("no URL: (.*)|write '(.*)'", done.out) == [
        *(("example.com", ""), ("", "https://example.com")),
        *(("localhost:8000/a", ""), ("", "https://localhost:8000/a")),
        *(("no url", ""), ("", "https://example.com/page")),
    ]


async def test_without_a_url_there_is_no_host() -> None:
    done = await politesse("check", "no url", "--host")
    assert done.code == 2
    assert "host:" not in done.out

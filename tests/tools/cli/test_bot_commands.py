"""``politesse key``, ``card`` and ``bot-page``: what they write, and what they refuse."""

import json
import re
import stat
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from politesse import RobotsTxt
from politesse.cli.app import app
from politesse.signing import WebBotAuth
from politesse.testing import ManualClock
from tests.support.signatures import AGENT, Key, key_file, public_keys, request, verified
from tests.tools.cli.command import built

DAY_S: Final = 86_400.0
BOT: Final[dict[str, object]] = {
    "client_name": 'Bot <"&">',
    "client_uri": "https://bot.example/",
    "operator": "Example Ltd",
    "contacts": ["mailto:bot@bot.example", "https://bot.example/form"],
    "jwks_uri": AGENT,
    "user_agent": "ExampleBot/1.0 (+https://bot.example/)",
    "purpose": "a search",
    "rate_control": "one request at a time",
    "rfc9309_product_token": "ExampleBot",
    "rfc9309_compliance": True,
    "ip_ranges_uri": "https://bot.example/ip-ranges.json",
    "ip_ranges": ["192.0.2.0/28", "2001:db8::/48"],
}


def toml(values: dict[str, object]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())  # these values are TOML, too


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("typer.testing._get_command", built)
    monkeypatch.setattr("politesse.cli.running.abandon_output", bool)  # which would drop the stream of CliRunner
    Path("bot.toml").write_text(toml(BOT))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return invoke


def test_new_key_signs_and_its_directory_verifies(run: Any) -> None:
    assert run("key", "new", "bot.pem", "--days", "30").exit_code == 0
    assert stat.S_IMODE(Path("bot.pem").stat().st_mode) == 0o600
    directory = json.loads(run("key", "directory", "bot.pem").stdout)
    [key] = directory["keys"]
    assert (key["use"], key["exp"] - key["nbf"]) == ("sig", 30 * 86_400)
    headers = WebBotAuth("bot.pem", agent=AGENT).sign("GET", "https://example.com/")
    verified(request("GET", "https://example.com/", headers), public_keys(directory), "@path")


def keys_of(run: Any) -> list[dict[str, Any]]:
    """The public keys in bot.pem."""
    keys: list[dict[str, Any]] = json.loads(run("key", "directory", "bot.pem").stdout)["keys"]
    return keys


def test_directory_states_no_times_for_a_key_without_times(run: Any) -> None:
    key = Key(None, None)
    key_file(Path("bot.pem"), key)
    assert keys_of(run) == [{**key.jwk, "kid": key.thumbprint, "use": "sig"}]
    assert WebBotAuth("bot.pem", agent=AGENT).sign("GET", "https://example.com/")


def test_rotation_publishes_a_key_that_is_not_yet_used_and_drops_expired_keys(run: Any) -> None:
    now_wall = time.time()
    old, expired = Key(now_wall - 80 * DAY_S, now_wall + 10 * DAY_S), Key(0.0, now_wall - 1)
    key_file(Path("bot.pem"), expired, old)
    done = run("key", "rotate", "bot.pem", "--ahead", "2", "--days", "10")
    assert done.exit_code == 0
    first, second = keys_of(run)
    assert (first["kid"], first["exp"]) == (old.thumbprint, int(now_wall + 10 * DAY_S))
    assert second["nbf"] == pytest.approx(now_wall + 2 * DAY_S, abs=60)
    assert second["exp"] - second["nbf"] == 10 * DAY_S
    assert second["kid"] in done.stdout
    assert re.findall("Key: (.*)", Path("bot.pem").read_text()) == [first["kid"], second["kid"]]
    assert old.thumbprint in repr(WebBotAuth("bot.pem", agent=AGENT))
    assert stat.S_IMODE(Path("bot.pem").stat().st_mode) == 0o600


def test_rotation_leaves_no_time_without_a_key_and_ends_a_key_without_an_end(run: Any) -> None:
    now_wall = time.time()
    for left_days, starts_days in ((0.25, 0.25), (-1, 0)):
        key_file(Path("bot.pem"), Key(0.0, now_wall + left_days * DAY_S))
        run("key", "rotate", "bot.pem")
        assert keys_of(run)[-1]["nbf"] == pytest.approx(now_wall + starts_days * DAY_S, abs=60)
    key_file(Path("bot.pem"), Key(None, None))
    run("key", "rotate", "bot.pem")
    assert keys_of(run)[0]["exp"] == pytest.approx(now_wall + 2 * DAY_S, abs=60)


def test_rotation_through_a_symbolic_link_changes_the_file_that_others_read(run: Any) -> None:
    Path("keys").mkdir()
    key_file(Path("keys/real.pem"), Key())
    Path("bot.pem").symlink_to("keys/real.pem")
    signer = WebBotAuth("keys/real.pem", agent=AGENT, clock=(clock := ManualClock(wall=time.time())))
    new = run("key", "rotate", "bot.pem").stdout.split("Key: ")[-1].split()[0]
    clock.advance(5.0)
    assert [key["kid"] for key in keys_of(run)][-1] == new
    assert new in repr(signer)
    assert Path("bot.pem").readlink() == Path("keys/real.pem")
    assert stat.S_IMODE(Path("keys/real.pem").stat().st_mode) == 0o600
    assert [path.name for path in Path("keys").iterdir()] == ["real.pem"]


def test_rotation_goes_on_after_one_that_was_killed(run: Any) -> None:
    key_file(Path("bot.pem"), Key(0.0, time.time() + 10 * DAY_S))
    Path("bot.pem.new").write_text("what a killed rotation has left")
    assert run("key", "rotate", "bot.pem").exit_code == 0
    assert len(keys_of(run)) == 2
    assert sorted(path.name for path in Path().glob("bot.pem*")) == ["bot.pem", "bot.pem.new"]
    assert stat.S_IMODE(Path("bot.pem").stat().st_mode) == 0o600


def test_key_commands_say_what_is_wrong(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = run("key", "rotate", "bot.pem")
    assert (missing.exit_code, "No such file" in missing.stderr) == (2, True)
    run("key", "new", "bot.pem")
    [kept] = keys_of(run)
    again = run("key", "new", "bot.pem")
    assert keys_of(run) == [kept]
    assert (again.exit_code, "File exists: 'bot.pem'" in again.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "politesse.signing", None)
    without = run("key", "new", "other.pem")
    assert (without.exit_code, "politesse.signing" in without.stderr) == (2, True)


def test_card_has_the_members_and_the_number_of_its_draft(run: Any) -> None:
    assert run("card", "bot.toml", "--card", "card.json", "--ranges", "ranges.json").exit_code == 0
    card = json.loads(Path("card.json").read_text())
    bot = card.pop("web_bot_auth")
    assert card.pop("draft") == "draft-meunier-webbotauth-registry-04"
    assert card | bot | {"ip_ranges": BOT["ip_ranges"]} == BOT
    assert {"rfc9309_product_token", "rfc9309_compliance", "rate_control", "ip_ranges_uri", "purpose"} <= bot.keys()
    ranges = json.loads(Path("ranges.json").read_text())
    assert ranges["prefixes"] == [{"ipv4Prefix": "192.0.2.0/28"}, {"ipv6Prefix": "2001:db8::/48"}]
    assert ranges["creationTime"].endswith("Z")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str | None, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "href" in given:
            self.links.append((tag, given.get("rel"), given["href"]))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_says_who_why_and_how_to_block(run: Any) -> None:
    assert run("bot-page", "bot.toml", "--out", "index.html").exit_code == 0
    page = Page(Path("index.html").read_text())
    assert ("a", "client-ranges", BOT["ip_ranges_uri"]) in page.links
    assert {href for _, _, href in page.links} >= {*BOT["contacts"], AGENT}  # type: ignore[misc]  # a list
    for name in ("client_name", "operator", "user_agent", "purpose", "rate_control"):
        assert str(BOT[name]) in page.text
    robots = page.text[page.text.index("User-agent: ") :].partition("/\n")[0] + "/\n"
    assert not RobotsTxt.parse(robots).rules_for("ExampleBot").allowed("https://example.com/page")


def test_mistake_in_the_file_is_named(run: Any) -> None:
    problems: dict[str, dict[str, object]] = {
        "the key 'purposes' is unknown; the keys are client_name, ": {"purposes": "x"},
        "the key 'purpose' is missing": {"purpose": None},
        "rfc9309_compliance='yes': give a bool": {"rfc9309_compliance": "yes"},
        "contacts=[5]: give a list": {"contacts": [5]},
        "contacts=['javascript:x']: give https URLs; a contact may be a mailto URL": {"contacts": ["javascript:x"]},
        "client_uri='http://bot.example/': give https URLs": {"client_uri": "http://bot.example/"},
        "ip_ranges=[1]: give a list": {"ip_ranges": [1]},
        "ip_ranges: 192.0.2.1/24 has host bits set": {"ip_ranges": ["192.0.2.1/24"]},
    }
    for problem, changes in problems.items():
        Path("bot.toml").write_text(toml({name: one for name, one in (BOT | changes).items() if one is not None}))
        for command in ("card", "bot-page"):
            done = run(command, "bot.toml")
            assert (done.exit_code, f"bot.toml: {problem}" in done.stderr) == (2, True), problem
    Path("bot.toml").write_text("client_name: x\n")
    done = run("card", "bot.toml")
    assert (done.exit_code, "bot.toml: this is no TOML: " in done.stderr) == (2, True)

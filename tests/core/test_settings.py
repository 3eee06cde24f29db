"""The arguments of a gate from TOML files: what tables give, what extends what, and the message of each mistake."""

import os
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from politesse import Gatekeeper, HostPolicy, PacingOptions
from politesse.errors import ConfigurationError, ConfigurationTypeError, PolitesseWarning
from politesse.options import CacheOptions, FetchOptions, FleetOptions, GateArguments, Limit, load
from politesse.robots import Dialect
from politesse.stores import SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.programs import run_code
from tests.support.scripted import UA

GATE: Final = f'[gate]\nuser_agent = "{UA}"\n'
SECRET: Final = "hunter2"

Loaded = Callable[..., GateArguments]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Write ``team.toml`` and the files that are named, and load it with these environment variables."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(text: str, environ: dict[str, str] | None = None, **others: str) -> GateArguments:
        for name, content in {"team": text, **others}.items():
            Path(f"{name}.toml").write_text(content, encoding="utf-8")
        return load("team.toml", environ={} if environ is None else environ)

    return write_and_load


def problem(loaded: Loaded, *given: object, kind: type[ConfigurationError] = ConfigurationError, **others: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        loaded(*given, **others)
    assert type(raised.value) is kind, raised.value
    return str(raised.value)


# What a file gives


def test_tables_are_the_options_of_the_gate(given: Loaded) -> None:
    arguments = given(
        f"""
        [gate]
        user_agent = "{UA}"
        token = ["ExampleBot-Image", "ExampleBot"]
        dialect = "google"
        mode = "report"
        enforce_usage = ["ai-train"]
        policy_tokens = {{ ai-train = "ExampleBot-Extended" }}
        [pacing]
        min_delay_s = 2
        max_crawl_delay_s = inf
        address = {{ max_concurrent = 4 }}
        [pacing.domain]
        min_delay_s = 0.5
        [cache]
        on_forbidden = "disallow"
        [fetch]
        from_address = "bot@example.com"
        [policies."partner.example"]
        exempt = true
        reason = "by agreement"
        [policies."[2001:db8::1]"]
        max_concurrent = 3
        [fleet]
        url = "redis://localhost:6379/1"
        lease_s = 30
        [store]
        path = "robots.db"
        max_bytes = 1_000_000
        [ledger]
        path = "ledger.db"
        sample = 0.5
        files = ["/llms.txt"]
        """
    )
    store, ledger = arguments.pop("store"), arguments.pop("ledger")
    assert arguments == {
        "user_agent": UA,
        "token": ["ExampleBot-Image", "ExampleBot"],
        "dialect": Dialect.GOOGLE,
        "mode": "report",
        "enforce_usage": ["ai-train"],
        "policy_tokens": {"ai-train": "ExampleBot-Extended"},
        "pacing": PacingOptions(
            min_delay_s=2,
            max_crawl_delay_s=float("inf"),
            address=Limit(max_concurrent=4),
            domain=Limit(min_delay_s=0.5),
        ),
        "cache": CacheOptions(on_forbidden="disallow"),
        "fetch": FetchOptions(from_address="bot@example.com"),
        "policies": {
            "partner.example": HostPolicy(exempt=True, reason="by agreement"),
            "[2001:db8::1]": HostPolicy(max_concurrent=3),
        },
        "fleet": FleetOptions("redis://localhost:6379/1", lease_s=30),
    }
    assert isinstance(store, SqliteStore)
    assert (store.path, ledger.path) == (Path("robots.db").absolute(), Path("ledger.db").absolute())
    assert (ledger.options.sample, ledger.options.files) == (0.5, ["/llms.txt"])


async def test_policies_hold_from_the_first_check(given: Loaded) -> None:
    arguments = given(f'{GATE}[policies."Closed.example"]\ndeny = true\nreason = "they asked us"\n')
    async with Gatekeeper(**arguments, fetcher=ScriptedFetcher(), clock=ManualClock()) as gate:
        verdict = await gate.check("https://closed.example/")
        assert (verdict.allowed, verdict.note) == (False, "they asked us")
        assert await gate.check("https://other.example/")
    with pytest.raises(ConfigurationError, match=r"min_delay_s= or max_concurrent= of a\.test alone"):
        Gatekeeper(UA, policies={"a.test": HostPolicy(min_delay_s=2)}, pacing=PacingOptions(key="address"))


def test_store_may_be_a_redis_and_a_signer_reads_its_key(given: Loaded) -> None:
    subprocess.run([sys.executable, "-m", "politesse.cli", "key", "new", "bot.pem"], check=True, capture_output=True)
    arguments = given(
        GATE
        + '[pacing]\nscope = "process"\n[store]\nurl = {env = "STORE"}\nmax_age_s = 3600\n'
        + '[signer]\nkey = {env = "KEY"}\nagent = "https://bot.example/"\nwhen = "asked"\n',
        {"STORE": f"redis://:{SECRET}@cache.example/0", "KEY": "bot.pem"},
    )
    assert isinstance(arguments["store"], RedisStore)
    assert "when='asked'" in repr(arguments["signer"])
    assert SECRET not in repr(arguments)


def test_each_option_is_a_key_of_its_table(given: Loaded) -> None:
    kinds = {"pacing": PacingOptions, "cache": CacheOptions, "fetch": FetchOptions, "fleet": FleetOptions}
    for table, kind in {**kinds, 'policies."a.test"': HostPolicy}.items():
        for one in fields(kind):
            told = problem(given, f"{GATE}[{table}]\n{one.name} = 2000-01-01\n", kind=ConfigurationTypeError)
            assert told.startswith(f"team.toml:4: [{table}] {one.name}")
            assert "unknown" not in told


# One file extends others


def test_team_overrides_its_company_key_by_key(given: Loaded) -> None:
    arguments = given(
        'extends = "company.toml"\n[pacing]\nmin_delay_s = 5\naddress = {max_concurrent = 2}\n'
        '[policies."a.test"]\nmin_delay_s = 9\n[gate]\nenforce_usage = ["tdm"]\n',
        company=f'{GATE}enforce_usage = ["search", "ai-train"]\n[pacing]\nmin_delay_s = 2\nmax_turn_s = 60\n'
        '[pacing.address]\nmin_delay_s = 3\n[policies."a.test"]\nmax_concurrent = 4\n'
        '[policies."b.test"]\ndeny = true\n',
    )
    assert arguments == {
        "user_agent": UA,
        "enforce_usage": ["tdm"],  # a list is one value
        "pacing": PacingOptions(min_delay_s=5, max_turn_s=60, address=Limit(min_delay_s=3, max_concurrent=2)),
        "policies": {"a.test": HostPolicy(min_delay_s=9, max_concurrent=4), "b.test": HostPolicy(deny=True)},
    }


def test_later_file_of_a_list_overrides_the_earlier_and_both_may_extend_one(given: Loaded) -> None:
    arguments = given(
        'extends = ["one.toml", "two.toml"]\n',
        one='extends = "base.toml"\n[pacing]\nmin_delay_s = 2\nmax_concurrent = 2\n',
        two='extends = "base.toml"\n[pacing]\nmin_delay_s = 3\n',
        base=f"{GATE}[pacing]\nmin_delay_s = 1\nmax_turn_s = 60\n",
    )
    assert arguments["pacing"] == PacingOptions(min_delay_s=3, max_concurrent=2, max_turn_s=60)


def test_paths_are_relative_to_the_file_that_states_them(given: Loaded, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/base.toml").write_text(f'{GATE}[ledger]\npath = "ledger.db"\n')
    (tmp_path / "etc/company.toml").write_text('extends = "base.toml"\n')
    arguments = given('extends = "etc/company.toml"\n[store]\npath = "robots.db"\n')
    store = arguments["store"]
    assert isinstance(store, SqliteStore)
    assert (store.path, arguments["ledger"].path) == (tmp_path / "robots.db", tmp_path / "etc/ledger.db")


# Mistakes

POLICY: Final = '[policies."a.test"]\n'
ONLY: Final = (
    "an environment variable may replace only fleet.url, store.url, signer.key, fetch.proxy, which may be secrets"
)
MISTAKES: Final = {
    f"{GATE}[pacing\n": (
        "team.toml:3: no valid TOML: Expected ']' at the end of a table declaration (at line 3, column 8)"
    ),
    f'{GATE}[fetch]\nproxy = "{SECRET}\n': "team.toml:4: no valid TOML: Illegal character '\\n' (at line 4, column 17)",
    f"{GATE}[x]\n": (
        "team.toml:3: x: unknown table; known are extends, gate, pacing, cache, fetch, fleet, policies, store, ledger, "
        "signer"
    ),
    f"{GATE}[fleets]\nx = 1\n": "team.toml:3: fleets: unknown table; did you mean fleet?",
    f"min_delay_s = 1\n{GATE}": "team.toml:1: min_delay_s: unknown key; it belongs in [pacing]",
    f'user_agent = "x"\n{GATE}': "team.toml:1: user_agent: unknown key; it belongs in [gate]",
    f"{GATE}[pacing]\n\nmin_delay = 1\n": "team.toml:5: [pacing] min_delay: unknown key; did you mean min_delay_s?",
    f"{GATE}[policies.a.test]\ndeny = true\n": (
        'team.toml:3: [policies.a] test: unknown key; the name of a host needs quotes, as [policies."example.com"]'
    ),
    f"{GATE}[cache]\nproxy = 1\n": "team.toml:4: [cache] proxy: unknown key; it belongs in [fetch]",
    f"{GATE}[store]\npath = 'a.db'\nx = 1\n": (
        "team.toml:5: [store] x: unknown key; known are path, max_bytes, busy_timeout_s"
    ),
    f'{GATE}{POLICY}"\\u001b[2J" = 1\n': (
        'team.toml:4: [policies."a.test"] "\\x1b[2J": unknown key; known are deny, exempt, reason, min_delay_s, '
        "max_concurrent"
    ),
    f'{GATE}[pacing]\nmin_delay_s = "1"\n': "team.toml:4: [pacing] min_delay_s='1': give 0 to 86400",
    f"{GATE}[fetch]\nssl_context = 1\n": "team.toml:4: [fetch] ssl_context=1: give a SSLContext",
    f"pacing = 3\n{GATE}": "team.toml:1: pacing: give a table, no int",
    f'fleet = "redis://:{SECRET}@a"\n{GATE}': "team.toml:1: fleet: give a table, no str",
    f"{GATE}[pacing]\nmin_delay_s = -1\n": "team.toml:4: [pacing] min_delay_s=-1: give 0 to 86400",
    f"{GATE}[pacing.address]\nmax_concurrent = 0\n": (
        "team.toml:4: [pacing.address] max_concurrent=0: give 1 to 10000"
    ),
    f"{GATE}[cache]\nretry_max_s = 1\n": "team.toml:3: [cache] retry_min_s=60.0: give 0.001 to 1",
    f"{GATE}[ledger]\npath = 'l.db'\nsample = 2\n": "team.toml:5: [ledger] sample=2: give 0 to 1",
    f"{GATE}[ledger]\nsample = 1\n": "team.toml:3: [ledger] path is missing",
    f"{GATE}{POLICY}deny = true\nexempt = true\nreason = 'x'\n": (
        'team.toml:3: [policies."a.test"] HostPolicy: deny and exempt contradict each other'
    ),
    f'{GATE}{POLICY}deny = true\n[policies."A.test"]\n': (
        'team.toml:5: [policies] "A.test": another table is for this host, too'
    ),
    f"{GATE}[policies.'a.test/x']\ndeny = true\n": (
        "team.toml:3: [policies] 'a.test/x' is not a bare host; give it as in 'partner.example' or '[2001:db8::1]'"
    ),
    f"{GATE}{POLICY}min_delay_s = 1\n[pacing]\nkey = 'address'\n": (
        "team.toml: min_delay_s= or max_concurrent= of a.test alone: not with PacingOptions(key='address')"
    ),
    f"{GATE}[store]\npath = 'a.db'\nurl = 'redis://a'\n": (
        "team.toml:4: [store] path or url: give one of them, the path of a file or the URL of a Redis"
    ),
    f"{GATE}[store]\npath = 'redis://:{SECRET}@a'\n": "team.toml:4: [store] path: give the path of a file, no URL",
    f"{GATE}mode = 'x'\n": "team.toml:3: [gate] mode='x': give 'enforce' or 'report'",
    f"{GATE}dialect = 'x'\n": (
        "team.toml:3: [gate] dialect='x': give one of rfc9309, google, koster-2019, koster-1996, koster-1994, "
        "conner-2, perl"
    ),
    "[gate]\ntoken = 'x'\n": (
        "team.toml:1: [gate] user_agent is missing, as in 'ExampleBot/1.0 (+https://example.com/bot)'"
    ),
    "[gate]\nuser_agent = 'curl/8'\n": (
        "team.toml:2: [gate] user_agent='curl/8': that is a library's default; name your own crawler, as in "
        "'ExampleBot/1.0 (+https://example.com/bot)'"
    ),
    f"{GATE}mode = {{env = 'MODE'}}\n": f"team.toml:3: [gate] mode: {ONLY}",
    f"{GATE}[store]\npath = {{env = 'STORE'}}\n": f"team.toml:4: [store] path: {ONLY}",
    f"{GATE}[fleet]\nenv = 'REDIS_URL'\n": f"team.toml:4: [fleet] env: unknown key; {ONLY}",
    f"{GATE}[fleet]\nurl = {{env = 'REDIS_URL'}}\n": (
        "team.toml:4: [fleet] url: the environment variable REDIS_URL is not set"
    ),
    f"{GATE}[fleet]\nurl = {{env = 'A', default = 'redis://b'}}\n": (
        'team.toml:4: [fleet] url: name the variable alone, as {env = "REDIS_URL"}'
    ),
    f"{GATE}[fleet]\nurl = 5\n": "team.toml:4: [fleet] url: give a text, as 'redis://host:6379/0', no int",
    f"extends = 5\n{GATE}": "team.toml:1: extends=5: give a str, or a list of str",
    f"extends = 'team.toml'\n{GATE}": "team.toml:1: extends='team.toml': that file is this one, or extends it",
    f"extends = 'none.toml'\n{GATE}": "none.toml: No such file or directory; team.toml:1 extends it",
}
TYPE_ERRORS: Final = ("min_delay_s='1'", "ssl_context=1", "url: give a text", "extends=5")


@pytest.mark.parametrize("text", MISTAKES)
def test_mistake_is_told_with_file_key_and_line(text: str, given: Loaded) -> None:
    wanted = MISTAKES[text]
    is_type_error = any(part in wanted for part in TYPE_ERRORS)
    assert problem(given, text, kind=ConfigurationTypeError if is_type_error else ConfigurationError) == wanted


def test_file_that_cannot_be_read_is_named(given: Loaded, tmp_path: Path) -> None:
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    for name, text in {
        "none.toml": "none.toml: No such file or directory",
        "folder.toml": "folder.toml: Is a directory",
        "latin.toml": "latin.toml: the file is not in UTF-8, or its name is invalid ('utf-8' codec can't decode",
        "a\0b": "a\0b: the file is not in UTF-8, or its name is invalid (embedded null byte)",
    }.items():
        assert problem(lambda name=name: load(name)).startswith(text)
    assert problem(given, f"{GATE}x = {'[' * 10_000}").startswith("team.toml: no valid TOML: ")
    (tmp_path / "notepad.toml").write_bytes(b"\xef\xbb\xbf" + GATE.replace("\n", "\r\n").encode())
    assert load("notepad.toml") == {"user_agent": UA}


def test_mistake_in_a_company_file_is_told_with_that_file(given: Loaded) -> None:
    company = f"{GATE}[pacing]\nmin_delay_s = -1\n"
    assert problem(given, "extends = 'company.toml'\n[pacing]\nmax_turn_s = 9\n", company=company) == (
        "company.toml:4: [pacing] min_delay_s=-1: give 0 to 86400"
    )
    assert problem(given, "extends = 'company.toml'\n[pacing]\nmin_delay_s = -2\n", company=company) == (
        "team.toml:3: [pacing] min_delay_s=-2: give 0 to 86400"
    )
    denied = f"{GATE}[policies.'a.test']\ndeny = true\n"
    text = "extends = 'company.toml'\n\n[policies.'a.test']\nexempt = true\nreason = 'x'\n"
    assert problem(given, text, company=denied).startswith('team.toml:3: [policies."a.test"] HostPolicy: deny and')
    assert "policies" in given(text.replace("exempt", "deny = false\nexempt"), company=denied)
    one, two = "extends = ['two.toml']\n", "\nextends = 'one.toml'\n"
    assert problem(given, "extends = 'one.toml'", one=one, two=two) == (
        "two.toml:2: extends='one.toml': that file is this one, or extends it"
    )


@pytest.mark.usefixtures("given")
def test_missing_extra_is_named() -> None:
    for name, table, extra in (
        ("redis", '[fleet]\nurl = "redis://a"\n', "redis"),
        ("redis", '[store]\nurl = "redis://a"\n', "redis"),
        ("cryptography", '[signer]\nkey = "bot.pem"\n', "sign"),
    ):
        Path("team.toml").write_text(GATE + table)
        program = f"import sys; sys.modules[{name!r}] = None; from politesse.options import load; load('team.toml')"
        told = run_code(program, check=False).stderr.splitlines()[-1]
        assert told.startswith("politesse.errors.ConfigurationError: team.toml:3: "), told
        assert f"needs the extra '{extra}'; " in told


# Lines


@pytest.mark.parametrize(
    ("key", "text"),
    {
        "dotted key": ("pacing.min_delay_s = -1 #!\n", ""),
        "dotted key with blanks and quotes": ('pacing . "min_delay_s" = -1 #!\n', ""),
        "key in a table of a longer name": ("", '[pacing]\nmax_turn_s = 1\n["pacing".address]\nmin_delay_s = -1 #!\n'),
        "inline table": ("pacing = {max_turn_s = 1, min_delay_s = -1} #!\n", ""),
        "same name in other tables": (
            "",
            (
                "[policies.a]\nmin_delay_s = 2\n[pacing.address]\nmin_delay_s = 3\n"
                "[pacing]\n# min_delay_s = 4\nmin_delay_s = -1 #!\n[policies.b]\nmin_delay_s = 5\n"
            ),
        ),
        "name in a text of several lines": (
            'gate.enforce_usage = [\n  "tdm",\n]\n',
            '[policies.a]\nreason = """\n[pacing]\nmin_delay_s = 1\n"""\n[pacing]\nmin_delay_s = -1 #!\n',
        ),
        "escaped name": ("", '[pacing]\n"min\\u005fdelay_s" = -1 #!\n'),
    }.items(),
)
def test_line_is_the_line_of_the_statement(key: str, text: tuple[str, str], given: Loaded) -> None:
    before, after = text
    whole = f'{before}gate.user_agent = "{UA}"\n{after}' if before else f"{GATE}{after}"
    [number] = [number for number, line in enumerate(whole.splitlines(), 1) if line.endswith("#!")]
    assert re.match(rf"team\.toml:{number}: \[pacing(\.address)?\] min_delay_s=-1: ", problem(given, whole)), key


def test_array_is_at_its_first_line_and_an_inline_table_of_several_lines_has_no_line(given: Loaded) -> None:
    text = f"{GATE}[ledger]\npath = 'l.db'\nfiles = [\n  '/a',\n  'b',\n]\n"
    assert problem(given, text).startswith("team.toml:5: [ledger] files='b': ")
    text = f'{GATE}[policies]\n"a.test" = {{reason = """\n""", min_delay_s = -1}}\n'
    assert tomllib.loads(text)
    assert problem(given, text) == 'team.toml: [policies."a.test"] min_delay_s=-1: give 0 to 86400'


# Secrets


def test_value_of_the_environment_is_in_no_error(given: Loaded) -> None:
    for table, key in {"fleet": "url", "store": "url", "fetch": "proxy", "signer": "key"}.items():
        more = "agent = 'https://bot.example/'\n" if table == "signer" else ""
        for value in (
            SECRET,
            f"{SECRET}://",
            f"redis://:{SECRET}@[",
            f"-----BEGIN\n{SECRET}\n-----END",
            f"a\0{SECRET}",
        ):
            text = problem(given, f"{GATE}[{table}]\n{key} = {{env = 'IT'}}\n{more}", {"IT": value})
            assert SECRET not in text, text
            assert text.startswith("team.toml:")


def test_password_in_a_file_is_accepted_with_a_warning_that_does_not_show_it(given: Loaded) -> None:
    text = f"{GATE}[fleet]\nurl = 'redis://bot:{SECRET}@cache.example:6379/0'\n"
    with pytest.warns(PolitesseWarning) as caught:
        assert given(text)["fleet"].url.count(SECRET)
    [warning] = caught
    assert str(warning.message) == (
        'team.toml:4: [fleet] url has a password: keep it in the environment, as url = {env = "FLEET_URL"}'
    )
    assert warning.filename == __file__
    with warnings.catch_warnings(action="error"):
        given(f"{GATE}[fleet]\nurl = 'redis://cache.example:6379/0'\n")
        given(f"{GATE}[fleet]\nurl = {{env = 'IT'}}\n", {"IT": f"redis://:{SECRET}@a"})


def test_environment_of_the_process_is_the_default(given: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "IT", "redis://cache.example")
    Path("team.toml").write_text(f"{GATE}[fleet]\nurl = {{env = 'IT'}}\n")
    assert load("team.toml")["fleet"].url == "redis://cache.example"

"""PoliteAdapter and the gate for threads: each attempt of each hop of a session of requests has its turn."""

import asyncio
import gc
import io
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import trustme
from aiohttp import web
from requests.adapters import HTTPAdapter
from requests.auth import HTTPDigestAuth
from urllib3.util import Retry

from politesse import (
    AgentView,
    Bound,
    ClosedError,
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    InvalidURL,
    PacingOptions,
)
from politesse.errors import TurnHeld
from politesse.events import TurnDropped
from politesse.integrations.requests import PoliteAdapter, RequestDisallowed, RequestInvalidURL, RequestTooFar
from politesse.sync import Gate, ThreadView
from tests.support.events import events_of
from tests.support.ports import free_port
from tests.support.programs import ROOT, environment
from tests.support.sites import EAGER, UA, UPGRADE, Site, served
from tests.support.tiers import first_of
from tests.wire.fetch.servers import FILE, Answer, Handler, Server, response, server_context, trusting

pytestmark = pytest.mark.timeout(60)
needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and fork")

SOCKETS: Final = Path("/proc/self/fd")
URL: Final = "https://example.com"
IGNORED_INTERRUPT: Final = re.compile(
    r"^Exception ignored in: \S+ \S+__del__ .*\n(?:.*\n)*?KeyboardInterrupt: ?\n", re.MULTILINE
)


class Moody(Site):
    """Answers a path with a row of statuses, one after the other, and with 200 after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: dict[str, list[int]] = {}
        self.retry_after = "0"

    async def respond(self, request: web.Request) -> web.StreamResponse:
        moods = self.moods.get(request.path)
        if moods:
            status = moods.pop(0)
            if not status:
                assert request.transport is not None
                request.transport.close()
            return web.Response(status=status or 200, headers={"Retry-After": self.retry_after})
        if request.path == "/digest" and "Authorization" not in request.headers:
            challenge = 'Digest realm="r", nonce="n", qop="auth", algorithm="MD5"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        return await super().respond(request)


@pytest.fixture
def site() -> Iterator[Moody]:
    with served(Moody()) as site:
        yield site


@pytest.fixture
def other() -> Iterator[Moody]:
    with served(Moody(), "localhost") as other:
        yield other


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate(Gatekeeper(UA, pacing=EAGER)) as gate:
        yield gate


@contextmanager
def session_of(gate: ThreadView, **options: Any) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        for scheme in ("http://", "https://"):
            session.mount(scheme, PoliteAdapter(gate, **options))
        yield session


@pytest.fixture
def session(gate: Gate) -> Iterator[requests.Session]:
    with session_of(gate) as session:
        yield session


def turns(gate: Gate) -> int:
    """Return how many turns are under way, after all that this thread has ended."""
    gate.hosts()
    return gate._gatekeeper.statistics().turns


# Each hop


def test_page_is_requested_in_a_turn_and_the_gates_name(site: Moody, session: requests.Session, gate: Gate) -> None:
    response = session.get(f"{site.base}/page?a=1")
    assert (response.status_code, response.text) == (200, "page /page?a=1")
    assert session.get(f"{site.base}/digest", auth=HTTPDigestAuth("me", "secret")).status_code == 200
    assert site.paths == ["/robots.txt", "/page?a=1", "/digest", "/digest"]
    assert {seen.headers["User-Agent"] for seen in site.seen} == {UA}
    assert turns(gate) == 0


def test_disallowed_redirect_is_not_followed(site: Moody, other: Moody, session: requests.Session, gate: Gate) -> None:
    other.robots = "User-agent: *\nDisallow: /shop\n"
    site.redirects = {f"/{name}": (302, to) for name, to in (("a", "/private/a"), ("b", f"{other.base}/shop"))}
    site.redirects["/c"] = (302, f"{other.base}/private")
    for path in ("/private/page", "/a", "/b"):
        with pytest.raises(RequestDisallowed) as caught:
            session.get(f"{site.base}{path}")
        assert caught.value.verdict.rule is not None
        assert caught.value.request is not None
    assert (site.paths, other.paths) == (["/robots.txt", "/a", "/b"], ["/robots.txt"])
    assert session.get(f"{site.base}/c").url == f"{other.base}/private"  # by the rules of its own origin
    assert turns(gate) == 0


def test_each_hop_and_attempt_keeps_the_pace_and_the_wait_is_no_part_of_the_timeout(site: Moody) -> None:
    site.redirects["/moved"] = (302, "/after")
    site.moods["/page"] = [404, 0, 404]
    retry = Retry(5, status_forcelist=[404], backoff_factor=0, respect_retry_after_header=False)
    pacing = PacingOptions(min_delay_s=0.6, adaptive_factor=0.0)
    with Gate(Gatekeeper(UA, pacing=pacing)) as gate, session_of(gate, max_retries=retry) as session:
        session.get(f"{site.base}/moved", timeout=0.5)
        response = session.get(f"{site.base}/page", timeout=0.5)
    assert (response.status_code, response.elapsed.total_seconds() >= 0.5) == (200, True)
    history = [(one.status, one.error is None) for one in response.raw.retries.history]
    assert history == [(404, True), (None, False), (404, True)]
    pages = [seen for seen in site.seen if seen.path != "/robots.txt"]
    assert [seen.path for seen in pages] == ["/moved", "/after", *["/page"] * 4]
    assert min(after.started - before.ended for before, after in pairwise(pages)) >= 0.6 - 0.003


def test_request_uses_the_turn_that_the_thread_holds(site: Moody, session: requests.Session, gate: Gate) -> None:
    site.redirects["/moved"] = (302, "/after")
    with gate.turn(f"{site.base}/moved") as turn:
        assert session.get(turn.url).url == f"{site.base}/after"
    with gate.turn(f"{site.base}/p%61ge?q=ä b") as turn:  # requests spells it differently
        assert session.get(turn.url).status_code == 200
    with gate.turn(f"{site.base}/page") as turn, pytest.raises(TurnHeld):
        session.get(f"{site.base}/other")
    assert site.pages == ["/moved", "/after", "/page?q=%C3%A4%20b"]


def test_answer_that_closes_the_host_counts_for_the_next_request_and_attempt(site: Moody, other: Moody) -> None:
    site.moods["/page"], site.retry_after = [429], "3600"
    at_once = Retry(2, status_forcelist=[429, 503], backoff_factor=0, raise_on_status=False)
    with Gate(Gatekeeper(UA, pacing=EAGER)) as gate:
        with session_of(gate, max_wait_s=5, max_retries=at_once) as session, pytest.raises(RequestTooFar) as retried:
            session.get(f"{site.base}/page")
        with session_of(gate, max_wait_s=1) as session:
            assert session.get(f"{other.base}/429").status_code == 429
            with pytest.raises(RequestTooFar) as caught:
                session.get(f"{other.base}/page")
    assert retried.value.not_yet.bound_by is caught.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert caught.value.max_wait_s == 1
    assert not isinstance(caught.value, requests.Timeout)
    assert (site.pages, other.pages) == (["/page"], ["/429"])


# Names and URLs


def test_other_agent_is_judged_for_its_own_rules(site: Moody, session: requests.Session, gate: Gate) -> None:
    site.robots = "User-agent: ImageBot\nDisallow: /images\n"
    session.get(f"{site.base}/images")
    for stated in ("ImageBot/1.0", b"ImageBot/1.0"):
        with pytest.raises(Disallowed):
            session.get(f"{site.base}/images", headers={"User-Agent": stated})
    assert session.get(f"{site.base}/page", headers={"User-Agent": "ImageBot/1.0"}).status_code == 200
    session.get(f"{site.base}/page", headers={"User-Agent": None})  # type: ignore[dict-item]  # left out, as by requests
    with pytest.raises(ConfigurationError):
        session.get(f"{site.base}/page", headers={"User-Agent": "Mozilla/5.0"})
    pages = [seen for seen in site.seen if seen.path != "/robots.txt"]
    assert [seen.headers["User-Agent"] for seen in pages] == [UA, "ImageBot/1.0", UA]
    assert len(site.seen) == len(pages) + 2, "the second agent came when the file was gone"
    with session_of(gate.agent(tokens="imagebot", user_agent="ImageBot/2.0")) as images, pytest.raises(Disallowed):
        images.get(f"{site.base}/images")


def prepared(url: str) -> requests.PreparedRequest:
    request = requests.Request("GET", "http://127.0.0.1/").prepare()
    request.url = url  # as it is, without the normalization of requests
    return request


def test_url_and_host_header_are_judged_as_the_server_reads_them(site: Moody, session: requests.Session) -> None:
    for path, problem in (
        ("/a/../private", "dot segments"),
        ("/a/%2E%2e/private", "dot segments"),
        ("/a b", "a blank"),
    ):
        with pytest.raises(RequestInvalidURL, match=problem) as caught:
            session.send(prepared(f"{site.base}{path}"))
        assert isinstance(caught.value, requests.RequestException)
        assert caught.value.request is not None
    for stated in ("other.example", b"other.example"):
        with pytest.raises(InvalidURL, match=r"other\.example"):
            session.get(f"{site.base}/page", headers={"Host": stated})
    assert site.seen == []
    assert session.get(f"{site.base}/page", headers={"Host": site.base.removeprefix("http://")}).status_code == 200
    with pytest.raises(Disallowed) as refused:  # robots.txt is unreachable
        session.get("http://[::1]:9/page")
    assert refused.value.verdict.url == "http://[::1]:9/page"


def test_path_that_begins_with_two_slashes_is_judged_as_a_path(site: Moody, session: requests.Session) -> None:
    site.robots = "User-agent: *\nDisallow: //other\nDisallow: /other\n"  # before requests 2.33, it had one slash
    with pytest.raises(Disallowed) as caught:
        session.get(f"{site.base}//other/page")
    assert caught.value.verdict.rule is not None
    assert caught.value.verdict.url.startswith(f"{site.base}/")


def test_host_that_the_pool_connects_to_is_judged(site: Moody, session: requests.Session) -> None:
    """urllib3 and urllib disagree on the host of this URL; the connection goes where urllib says."""
    site.robots = "User-agent: *\nDisallow: /\n"
    with pytest.raises(requests.RequestException):
        session.send(prepared(f"http://localhost\\@{site.base.removeprefix('http://')}/page"))
    assert site.pages == []


# Attempts


def test_pause_of_a_retry_is_kept_and_holds_no_turn(site: Moody, gate: Gate) -> None:
    held: list[tuple[object, int]] = []

    class Noting(Retry):
        def sleep(self, response: object = None) -> None:
            held.append((response, turns(gate)))

    site.moods["/page"] = [404, 0]
    with session_of(gate, max_retries=Noting(3, status_forcelist=[404])) as session:
        assert session.get(f"{site.base}/page").status_code == 200
    assert held == [(None, 0), (None, 0)]


def test_last_attempt_has_the_outcome_of_requests(site: Moody, gate: Gate) -> None:
    for raises in (True, False):
        site.seen.clear()
        retry = Retry(1, status_forcelist=[404], backoff_factor=0, raise_on_status=raises)  # which closes no host
        with session_of(gate, max_retries=retry) as session:
            if raises:
                with pytest.raises(requests.exceptions.RetryError):
                    session.get(f"{site.base}/404")
            else:
                assert session.get(f"{site.base}/404").status_code == 404
        assert (site.pages, turns(gate)) == (["/404", "/404"], 0)
    site.moods["/page"] = [0, 0]
    with session_of(gate) as session, pytest.raises(requests.ConnectionError):
        session.get(f"{site.base}/page")  # without max_retries, there is one attempt
    assert (site.pages[2:], turns(gate)) == (["/page"], 0)


def test_body_is_sent_again_from_where_it_began_unless_it_raises(site: Moody, gate: Gate) -> None:
    def begun() -> Iterator[bytes]:
        yield b"begun"
        raise ZeroDivisionError

    site.moods["/page"] = [0]
    body = io.BytesIO(b"skipped, sent")
    body.seek(9)
    with session_of(gate, max_retries=Retry(1, allowed_methods=None)) as session:
        assert session.post(f"{site.base}/page", data=body).status_code == 200
        assert [seen.body for seen in site.seen if seen.path == "/page"] == ["sent", "sent"]
        with pytest.raises(ZeroDivisionError):
            session.post(f"{site.base}/page", data=begun())
    assert turns(gate) == 0


def error_of(call: Callable[[], object]) -> tuple[type[object], ...]:
    with pytest.raises(requests.RequestException) as caught:
        call()
    reason = caught.value.args[0]
    return type(caught.value), type(reason), type(getattr(reason, "reason", reason))


@pytest.mark.parametrize("retries", [0, 1, Retry(1, read=1, connect=0)])
def test_errors_are_those_of_requests(site: Moody, retries: Any) -> None:
    away = f"http://127.0.0.1:{free_port()}/"
    cases: dict[str, Callable[[requests.Session], object]] = {
        "refused": lambda web: web.get(away, timeout=5),
        "read timeout": lambda web: web.get(f"{site.base}/silent", timeout=0.05),
        "dropped": lambda web: web.get(f"{site.base}/dropped"),
        "no TLS": lambda web: web.get(f"{site.base}/".replace("http:", "https:")),
        "proxy away": lambda web: web.get(f"{site.base}/", proxies={"http": away}),
        "header": lambda web: web.get(f"{site.base}/", headers={"X": "a\nb"}),
    }
    with Gate(Gatekeeper(UA, pacing=EAGER, mode="report")) as lenient, requests.Session() as plain:
        plain.trust_env = False
        plain.mount("http://", HTTPAdapter(max_retries=retries))
        plain.mount("https://", HTTPAdapter(max_retries=retries))
        with session_of(lenient, max_retries=retries) as polite:
            for name, case in cases.items():
                outcomes = []
                for web_client in (plain, polite):
                    site.moods["/dropped"] = [0, 0]
                    outcomes.append(error_of(partial(case, web_client)))
                assert outcomes[0] == outcomes[1], name
            assert turns(lenient) == 0


# Streams


def test_turn_ends_with_a_streamed_response(site: Moody, session: requests.Session, gate: Gate) -> None:
    def left() -> None:
        with session.get(f"{site.base}/1", stream=True):
            assert turns(gate) == 1
            with pytest.raises(TurnHeld):
                session.get(f"{site.base}/2")

    def read() -> None:
        assert b"".join(session.get(f"{site.base}/1", stream=True).iter_content(2)) == b"page /1"

    def raw_read() -> None:
        assert session.get(f"{site.base}/1", stream=True).raw.read() == b"page /1"

    def broken_off() -> None:
        with pytest.raises(requests.ConnectionError):
            session.get(f"{site.base}/slow", stream=True, timeout=0.1).content  # noqa: B018

    def raw_closed() -> None:
        session.get(f"{site.base}/1", stream=True).raw.close()

    def no_body() -> None:
        session.head(f"{site.base}/1", stream=True).close()

    for use in (left, read, raw_read, broken_off, raw_closed, no_body):
        use()
        assert turns(gate) == 0, use
    with session_of(gate) as another:
        response = another.get(f"{site.base}/1", stream=True)
    assert (turns(gate), response.content) == (1, b"page /1")  # it outlives its session
    assert turns(gate) == 0


def test_upgrade_holds_its_host_during_the_handshake_only(site: Moody, session: requests.Session, gate: Gate) -> None:
    with session.get(f"{site.base}/ws", headers=UPGRADE, stream=True) as response:
        assert (response.status_code, turns(gate)) == (101, 0)
        assert session.get(f"{site.base}/page").status_code == 200


def test_dropped_response_gives_its_host_back(site: Moody, session: requests.Session, gate: Gate) -> None:
    dropped = events_of(gate._gatekeeper, TurnDropped)
    response = session.get(f"{site.base}/slow", stream=True)
    with pytest.warns(ResourceWarning, match=r"a response of .*/slow was dropped without being closed"):
        del response
    assert turns(gate) == 0
    assert [event.url for event in dropped] == [f"{site.base}/slow"]
    assert session.get(f"{site.base}/page").status_code == 200


@pytest.mark.parametrize("count", first_of(1, [100, 2_000]))
@pytest.mark.timeout(300)
def test_requests_leave_no_thread_socket_task_or_turn(site: Moody, gate: Gate, count: int) -> None:
    site.redirects["/moved"] = (302, "/page")

    async def tasks(_: AgentView) -> int:
        return len(asyncio.all_tasks())

    def left() -> tuple[int, ...]:
        gc.collect()
        sockets = len(list(SOCKETS.iterdir())) if SOCKETS.is_dir() else 0
        return threading.active_count(), sockets, gate.call(tasks), turns(gate), len(gate._thread._calls)

    def crawl(count: int) -> None:
        with session_of(gate, max_retries=1) as session:
            for number in range(count):
                if number % 5 == 0:
                    session.get(f"{site.base}/page", stream=True).close()
                elif number % 5 == 1:
                    with pytest.raises(Disallowed):
                        session.get(f"{site.base}/private")
                else:
                    session.get(f"{site.base}/{'moved' if number % 5 == 2 else '404'}")

    crawl(5)
    before = left()
    with ThreadPoolExecutor(5) as pool:
        for crawled in [pool.submit(crawl, count // 5) for _ in range(5)]:
            crawled.result()
    until_mono = time.monotonic() + 20
    while (after := left()) > before and time.monotonic() < until_mono:
        time.sleep(0.05)  # the server closes its ends of the connections
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)


# Proxies


def test_proxy_gets_requests_that_were_judged(site: Moody, session: requests.Session, gate: Gate) -> None:
    """The site is its own proxy."""
    proxies = {"http": site.base}
    with pytest.raises(Disallowed):
        session.get(f"{site.base}/private", proxies=proxies)
    assert session.get(f"{site.base}/page#part", proxies=proxies).status_code == 200
    assert site.pages == ["/page"]
    with pytest.raises(Disallowed):  # for a proxy, urllib3 resolves dot segments
        session.send(prepared(f"{site.base}/a/../private"), proxies=proxies)
    assert session.send(prepared(f"{site.base}/private/../page"), proxies=proxies).status_code == 200
    assert site.pages == ["/page", "/page"]
    assert turns(gate) == 0


def tunnel(port: int) -> Handler:
    async def handler(_: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while octets := await source.read(65_536):
                    target.write(octets)
                target.write_eof()

        there, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.transport.abort()

    return handler


@pytest.mark.parametrize("is_proxied", [False, True])
async def test_page_over_tls(tmp_path: Path, authority: trustme.CA, *, is_proxied: bool) -> None:
    file = str(tmp_path / "authority.pem")
    authority.cert_pem.write_to_path(file)

    def use() -> None:
        with Gate(Gatekeeper(UA, pacing=EAGER, fetch=trusting(authority))) as gate, session_of(gate) as session:
            session.proxies = {"https": proxy.url("")} if is_proxied else {}
            assert session.get(f"{base}/page", verify=file).text == "page"
            with pytest.raises(Disallowed):
                session.get(f"{base}/private", verify=file)
            with pytest.raises(requests.exceptions.SSLError):
                session.get(f"{base}/page")
            with pytest.raises(OSError, match="invalid path: nowhere"):
                session.get(f"{base}/page", verify="nowhere")
            session.close()
            assert turns(gate) == 0

    answers: dict[str, Answer] = {"/robots.txt": response(200, FILE), "/page": response(200, b"page")}
    async with Server(answers, server_context(authority.issue_cert("localhost"))) as server, Server() as proxy:
        base = server.url("", host="localhost")
        proxy.answers[f"localhost:{server.port}"] = tunnel(server.port)
        await asyncio.to_thread(use)
    assert [request.target for request in server.requests] == ["/robots.txt", "/page"]
    assert [(request.method, request.target) for request in proxy.requests] == [
        ("CONNECT", f"localhost:{server.port}")
    ] * 2 * is_proxied


# Wrong use, and the end


def test_adapter_needs_a_gate_for_threads_that_is_open(site: Moody, session: requests.Session, gate: Gate) -> None:
    for bad in (UA, Gatekeeper(UA), None):
        with pytest.raises(ConfigurationError, match=r"PoliteAdapter\(.*give a politesse\.sync\.Gate"):
            PoliteAdapter(bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="max_wait_s"):
        PoliteAdapter(gate, max_wait_s=-1)
    with pytest.raises(TypeError):
        PoliteAdapter(gate, unknown=1)
    with pytest.raises(TypeError, match="create it in each process"):
        pickle.dumps(PoliteAdapter(gate))
    gate.close()
    with pytest.raises(ClosedError):
        session.get(f"{site.base}/page")
    assert site.seen == []


def test_errors_survive_a_pickle(site: Moody, gate: Gate) -> None:
    gate.check(site.base)
    with session_of(gate, max_wait_s=0) as session:
        session.get(f"{site.base}/429")
        for path, host, kind in (
            ("/private", None, RequestDisallowed),
            ("/page", None, RequestTooFar),
            ("/page", "other.example", RequestInvalidURL),
        ):
            with pytest.raises(requests.RequestException) as caught:
                session.get(f"{site.base}{path}", headers={"Host": host} if host else None)
            assert type(caught.value) is kind
            again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own octets
            assert (type(again), str(again)) == (type(caught.value), str(caught.value))
            assert again.request.url == caught.value.request.url  # type: ignore[union-attr]


# Whole programs: Ctrl-C, the end of the interpreter, and a fork


def started(*arguments: str) -> subprocess.Popen[str]:
    # An interrupted program drops its open response.
    warning = ["-W", "error", *(["-W", "ignore::ResourceWarning"] if "fetching" in arguments else [])]
    command = [sys.executable, *warning, "-m", "tests.wire.clients.programs", *arguments]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes)  # noqa: S603 - our own program


@needs_fork
@pytest.mark.realtime
@pytest.mark.parametrize("moment", first_of(1, range(10)))
@pytest.mark.parametrize("kind", first_of(1, ["waiting", "fetching"]))
def test_ctrl_c_at_any_moment_loses_no_turn(kind: str, moment: int) -> None:
    process = started(kind, URL)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "turn\n"
    time.sleep(random.Random(moment).uniform(0.0, 0.01))
    process.send_signal(signal.SIGINT)
    try:
        told, complained = process.communicate(timeout=20.0)
    except subprocess.TimeoutExpired:  # Python ignores an interrupt in a finalizer, and says so: Ctrl-C once more
        process.send_signal(signal.SIGINT)
        told, complained = process.communicate(timeout=20.0)
        complained, ignored = IGNORED_INTERRUPT.subn("", complained)
        assert ignored == 1
    assert (told.splitlines()[-1], complained, process.returncode) == ("free", "", 0)


@needs_fork
@pytest.mark.realtime
@pytest.mark.parametrize("kind", first_of(1, ["open", "dropped", "atexit"]))
def test_program_ends_with_a_gate_that_was_not_closed(kind: str, tmp_path: Path) -> None:
    process = started(kind, URL, str(tmp_path))
    told, complained = process.communicate(timeout=60.0)
    assert (complained, process.returncode) == ("", 0)
    assert kind == "dropped" or told == "end\nclosed\n"


@needs_fork
@pytest.mark.full
@pytest.mark.realtime
def test_child_of_a_fork_gets_an_error_and_harms_nothing() -> None:
    process = started("fork", URL)
    told, complained = process.communicate(timeout=60.0)
    child, parent = told.splitlines()
    assert child.startswith("WrongEventLoop: this gate was made in process")
    assert "create one after it" in child
    assert (parent, complained, process.returncode) == ("True", "", 0)

"""requests: a session in each thread, with a ``PoliteAdapter``; without politesse, a plain session in each thread."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import requests

from benchmarks.client_crawls.plan import (
    TIMEOUT_S,
    UNREACHABLE_S,
    USER_AGENT,
    Fetched,
    Plan,
    crawl_in_threads,
    gatekeeper,
)
from politesse.integrations.requests import PoliteAdapter, RequestDisallowed
from politesse.sync import Gate

if TYPE_CHECKING:
    from collections.abc import Callable


def fetching(new_session: Callable[[], requests.Session]) -> Callable[[str], Fetched | None]:
    """Return a function that fetches with a session for each thread; it asks again when a closed site may open."""
    local = threading.local()

    def fetch(url: str) -> Fetched | None:
        if not hasattr(local, "session"):
            local.session = new_session()
        give_up = time.time() + UNREACHABLE_S
        while True:
            try:
                response = local.session.get(url, timeout=TIMEOUT_S)
            except RequestDisallowed as error:
                opens = error.verdict.not_before
                if opens is None or opens > give_up:
                    return None
                time.sleep(max(0.0, opens - time.time()))
            except requests.RequestException:
                return None
            else:
                return Fetched(response.status_code, response.url, response.text)

    return fetch


def polite(plan: Plan) -> None:
    with Gate(gatekeeper()) as gate:

        def new_session() -> requests.Session:
            session = requests.Session()
            for scheme in ("http://", "https://"):
                session.mount(scheme, PoliteAdapter(gate))
            return session

        crawl_in_threads(plan, fetching(new_session))


def plain(plan: Plan) -> None:
    def new_session() -> requests.Session:
        session = requests.Session()
        session.headers["User-Agent"] = USER_AGENT
        return session

    crawl_in_threads(plan, fetching(new_session))


if __name__ == "__main__":
    given = Plan.read()
    if given.polite:
        polite(given)
    else:
        plain(given)

"""A Chromium that Playwright starts, for the tests that need a browser; they are skipped where there is none."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, async_playwright

from tests.support.sites import UA, Site

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS: Final = ["--no-sandbox"]  # the tests may run as root
NO_ICON: Final = '<link rel="icon" href="data:,">'  # otherwise the browser itself requests /favicon.ico, now and then


def chromium() -> str:
    """Return the path of the Chromium of this machine; skip the test if there is none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium is installed; on Debian, 'apt-get install chromium' installs it")
    return path


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Run a browser."""
    path = chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        await browser.close()


async def context_of(browser: Browser, **options: Any) -> BrowserContext:
    """Return a context as the guide recommends it, with a time limit of 10 s."""
    context = await browser.new_context(**{"user_agent": UA, "service_workers": "block", **options})
    context.set_default_timeout(10_000)
    return context


@dataclass
class HtmlSite(Site):
    """A server whose pages are HTML: those of ``html``, with their path as title, and others."""

    html: dict[str, str] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    answers: dict[str, Callable[[web.Request], web.Response]] = field(default_factory=dict)

    async def page(self, request: web.Request) -> web.Response:
        await super().page(request)
        if request.path in self.answers:
            return self.answers[request.path](request)
        text = f"<!DOCTYPE html>{NO_ICON}<title>{request.path}</title>{self.html.get(request.path, '')}"
        return web.Response(text=text, content_type="text/html", headers=self.headers.get(request.path))

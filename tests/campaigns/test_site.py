"""The documentation site: it builds without a warning, has all public names, and asks no other server."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from playwright.async_api import Route

from politesse.cli.guide_command import TOPICS
from tests.support.modules import HOMES, MODULES
from tests.wire.clients.browsers import browsing

ROOT: Final = Path(__file__).parents[2]
HERE: Final = "http://site.example/"
COLOURS: Final = {"light": "default", "dark": "slate"}
PUBLIC: Final = [
    *HOMES,
    *(name for name in MODULES if re.fullmatch(r"politesse\.integrations\.[a-z]\w*", name)),
    "politesse.clock",
    "politesse.origin",
    "politesse.ports",
    "politesse.robotrules",
]


pytestmark = pytest.mark.weekly


class Html(HTMLParser):
    """The anchors, the links and the loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if "src" in given:
            self.loaded.add(given["src"])
        if tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", ".docs/mkdocs.yml", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "READTHEDOCS_CANONICAL_URL": HERE}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)  # noqa: S603 - our own command
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Html]:
    found = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    return {path.removesuffix("index.html"): Html(text) for path, text in found.items()}


def test_each_guide_and_each_public_module_has_a_page(pages: dict[str, Html]) -> None:
    assert {f"guides/{topic}/" for topic in TOPICS} == {place for place in pages if place.startswith("guides/")}
    assert {f"reference/{name}/" for name in PUBLIC} == {place for place in pages if place.startswith("reference/")}


def test_reference_has_each_public_name_and_shows_no_markup_of_a_docstring(pages: dict[str, Html]) -> None:
    missing = []
    for name in PUBLIC:
        page = pages[f"reference/{name}/"]
        shown = page.anchors | {urldefrag(link).fragment for link in page.links}
        exported = [each for each in getattr(importlib.import_module(name), "__all__", ()) if each != "__version__"]
        missing += [f"{name}.{each}" for each in exported if not any(one.endswith(f".{each}") for one in shown)]
        assert any(anchor.startswith(f"{name}.") for anchor in shown), name
    assert missing == []
    assert [place for place, page in pages.items() if "<blockquote>" in page.text or "::</p>" in page.text] == []


def test_start_page_has_two_pictures_in_the_colours_of_the_page(pages: dict[str, Html]) -> None:
    pictures = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".docs/pages").glob("*.svg")}
    del pictures["demo"]
    assert {name for name in pictures if f'aria-labelledby="{name}-title"' in pages[""].text} == {"request", "host"}
    assert [name for name, picture in pictures.items() if re.search(r"(fill|stroke|style)=|<style", picture)] == []


def test_pages_and_styles_load_nothing_from_another_server(site: Path, pages: dict[str, Html]) -> None:
    assert {file for page in pages.values() for file in page.loaded if re.match(r"\w+:|//", file)} == set()
    for style in site.rglob("*.css"):
        loaded = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^)\"']*)", style.read_text(encoding="utf-8"))
        assert (style.name, loaded) == (style.name, [])


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "light"), (390, "dark"), (1280, "dark")])
async def test_browser_shows_pages_and_a_search_without_an_error(width: int, scheme: Any, site: Path) -> None:
    asked: list[str] = []
    errors: list[str] = []

    async def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        asked.append(f"{url.scheme}://{url.netloc}/")
        path = site / unquote(url.path)[1:]
        await route.fulfill(path=path / "index.html" if path.is_dir() else path)

    async with browsing() as browser:
        context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = await context.new_page()
        await page.route(re.compile("^https?:"), answer)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        for place in ("", "guides/pacing/", "reference/politesse.queue/", "compare/"):
            await page.goto(HERE + place, wait_until="load")
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await page.evaluate("document.body.dataset.mdColorScheme") == COLOURS[scheme]
        await page.evaluate("document.querySelector('[data-md-toggle=search]').click()")
        await page.locator(".md-search__input").press_sequentially("Crawl-delay")
        await page.locator(".md-search-result__item").first.wait_for()
    assert set(asked) == {HERE}
    assert errors == []

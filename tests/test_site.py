"""The site of `docs/`: links lead somewhere, nothing comes from another host, pages fit a phone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pytest

from connector.options.topic_request import OPTIONS

if TYPE_CHECKING:
    from tests.support.browser import Browser

pytestmark = pytest.mark.timeout(600)
"""To build the site and to show its pages takes minutes on a busy machine."""

ROOT: Final = Path(__file__).parents[1]
WIDTHS_PX: Final = (390, 1280)
OVERFLOW: Final = """
document.getAnimations()
    .filter(each => each instanceof CSSTransition)
    .forEach(each => each.finish());
document.documentElement.scrollWidth - document.documentElement.clientWidth
"""
"""How many pixels a page is too wide, once nothing slides into its place any more."""
IS_DARK: Final = """
new Promise(resolve => {
    const look = () => document.body.dataset.mdColorScheme === "slate" ? resolve(true)
        : setTimeout(look, 10);
    look();
})
"""
SEARCH: Final = """
new Promise(resolve => {
    const list = document.querySelector(".md-search-result__list");
    const found = () => [...list.querySelectorAll("a")].map(each => each.getAttribute("href"));
    new MutationObserver(() => { if (found().length) resolve(found()) })
        .observe(list, {childList: true});
    const query = document.querySelector("[data-md-component=search-query]");
    query.focus();
    query.value = "dead letters";
    query.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
})
"""
COPIED: Final = """
(() => {
    const block = [...document.querySelectorAll(".language-console")]
        .find(each => each.textContent.includes("count(*)"));
    const button = document.createElement("button");
    button.dataset.clipboardTarget = "code";
    block.append(button);
    button.click();
    return button.dataset.clipboardText;
})()
"""


class _Page(HTMLParser):
    """What a page of HTML links and loads.

    Attributes:
        ids: Anchors in it.
        links: Targets of links.
        loaded: URLs of everything that a browser loads with it.
        metadata: Its properties for social networks.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.metadata: dict[str, str] = {}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes that name a place."""
        values = {name: value for name, value in attrs if value}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.append(values["href"])
        self.loaded += [values[name] for name in ("src", "srcset") if name in values]
        if tag == "meta" and "property" in values:
            self.metadata[values["property"]] = values.get("content", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    """Every page by its path, without the one for addresses that do not exist.

    The server shows that page at any depth, so its links begin at the root of the server.
    """
    paths = [path for path in site.rglob("*.html") if path.name != "404.html"]
    return {path: _Page(path) for path in sorted(paths)}


def test_links_lead_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    """Each internal link names a file of the site, and an anchor that the file has."""
    dead = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            fragment = unquote(url.fragment)
            is_dead = not target.is_file() or (fragment and fragment not in pages[target].ids)
            if is_dead:
                dead.append(f"{path.relative_to(site)}: {link}")

    assert len(pages) > 30
    assert dead == []


def test_nothing_comes_from_another_host(site: Path, pages: dict[Path, _Page]) -> None:
    """Neither pages nor style sheets load from a URL with a host."""
    loaded = {url for page in pages.values() for url in page.loaded}
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))

    assert [url for url in loaded if urlsplit(url).netloc] == []
    assert re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*", styles) == []
    assert "@import" not in styles


def test_pages_have_a_social_card(site: Path, pages: dict[Path, _Page]) -> None:
    """Each page names its title and a picture that exists."""
    for path, page in pages.items():
        assert page.metadata["og:title"]
        assert (path.parent / page.metadata["og:image"]).resolve().is_relative_to(site)
        assert (path.parent / page.metadata["og:image"]).is_file()


def test_api_pages_have_the_help_on_options(site: Path) -> None:
    """Every option of `open_topic` is explained beside its signature."""
    html = (site / "api" / "connector.html").read_text("utf-8")
    text = " ".join(re.sub("<[^>]*>", "", html).split())
    plain = text.replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">")

    helps = {name: " ".join(option.help.split()) for name, option in OPTIONS.items()}
    assert [name for name, each in helps.items() if each not in plain] == []


@pytest.mark.browser
def test_pages_fit_a_phone_and_a_desktop(browser: Browser, pages: dict[Path, _Page]) -> None:
    """No page has to be scrolled aside, logs an error, or asks the network."""
    wide = []
    opened = browser.open(next(iter(pages)))
    for path in pages:
        opened.load(path)
        assert opened.messages == [], path
        assert {urlsplit(each).scheme for each in opened.requests} <= {"file", "data"}, path
        for width_px in WIDTHS_PX:
            opened.show(width_px=width_px)
            if opened.evaluate(OVERFLOW) > 0:
                wide.append((path.name, width_px))

    assert wide == []


@pytest.mark.browser
def test_front_page_follows_the_scheme_of_the_system(browser: Browser, site: Path) -> None:
    """It is dark where the system is dark."""
    opened = browser.open(site / "index.html")
    is_dark_before = opened.evaluate("document.body.dataset.mdColorScheme") == "slate"

    opened.show(width_px=390, scheme="dark")

    assert not is_dark_before
    assert opened.evaluate(IS_DARK)


@pytest.mark.browser
def test_search_works_in_a_folder(browser: Browser, site: Path) -> None:
    """Without a server, a search finds the pages that have the words."""
    opened = browser.open(site / "index.html")
    opened.show(width_px=1280)

    found = opened.evaluate(SEARCH)

    assert any("copying.html" in each for each in found)


@pytest.mark.browser
def test_copied_commands_have_no_prompt(browser: Browser, site: Path) -> None:
    """The button copies commands of several lines, without what they print."""
    opened = browser.open(site / "index.html")

    copied = opened.evaluate(COPIED)

    assert copied.startswith("pulsar-offload query golden/objects")
    assert copied.endswith("GROUP BY ALL ORDER BY status'")

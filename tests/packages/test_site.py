"""The documentation site builds without a warning, its links lead somewhere, and it asks nobody."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from installed import ROOT

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """What a page has that can be linked to, what it links to, and what a browser loads for it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in {"img", "script", "iframe", "source", "video"} and "src" in values:
            self.loaded.append(values["src"])
        elif tag == "link" and values.get("rel") in {"stylesheet", "preload", "icon", "prefetch"}:
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it."""
    target = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " ".join(options) in (ROOT / "Makefile").read_text(encoding="utf-8")
    return target


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {file.resolve(): Page(file) for file in site.rglob("*.html")}
    assert len(pages) > 40
    broken = []
    for file, page in pages.items():
        for link in {*page.links, *page.loaded}:
            name, _, anchor = unquote(link).partition("#")
            name = name.partition("?")[0]
            if link.startswith(("https://", "mailto:", "data:")) or not (name or anchor):
                continue
            target = (file.parent / name).resolve() if name else file
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{file.relative_to(site.resolve())}: {link}")
    assert broken == []


def test_a_browser_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {link for file in site.rglob("*.html") for link in Page(file).loaded}
    assert loaded and not [link for link in loaded if link.startswith(("http:", "https:", "//"))]
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert "@import" not in styles and "url(http" not in styles and "url(//" not in styles


def test_every_page_and_the_whole_surface_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page
    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in ("Project.refresh", "Project.consumer", "Status", "Halted", "MissingExtra"):
        assert f"{name}" in text, name
    pictures = {file.name for file in (site / "_images").iterdir()}
    assert {file.name for file in (ROOT / "docs" / "concepts" / "pictures").iterdir()} <= pictures

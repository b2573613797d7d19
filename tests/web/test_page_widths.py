"""Long names of views in a real browser: no page is wider than its window, and no word is broken inside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_requests import Page, served
from paper_project import Size, fill, project_file
from playwright.sync_api import Browser

from rollview.project.project import Project

pytestmark = pytest.mark.slow
NAME = "inventory_valuation_by_warehouse_and_supplier_region_{number}"
FIRST = NAME.format(number=0)
PATHS = (
    "/",
    "/lineage",
    "/transactions",
    "/transactions/100",
    "/verify",
    "/query",
    f"/views/{FIRST}",
    f"/views/{FIRST}/plan",
    f"/views/{FIRST}/rolling",
    f"/views/{FIRST}/refreshes",
    f"/views/{FIRST}/verify",
)
_BROKEN_WORDS = """
() => [...document.querySelectorAll("#sources th, #sources td, #views th, #views td, #last td")]
.flatMap(cell => {
  const broken = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); )
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(each => Math.round(each.top)));
      if (lines.size > 1) broken.push(word[0]);
    }
  return broken;
})
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A project whose views have long names."""
    path: Path = project_file(tmp_path_factory.mktemp("wide"))
    fill(path, Size(name=NAME), time.time())
    with Project.open(path) as project, served(project) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_its_window(browser: Browser, page: Page, width: int) -> None:
    context = browser.new_context(base_url=page.url, viewport={"width": width, "height": 900})
    shown = context.new_page()
    wide = {}
    for path in PATHS:
        answer = shown.goto(path)
        assert answer is not None and answer.ok, path
        found = shown.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide[path] = found
    assert wide == {}
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_words_are_whole_and_the_table_of_views_fits(browser: Browser, page: Page, width: int) -> None:
    context = browser.new_context(base_url=page.url, viewport={"width": width, "height": 900})
    shown = context.new_page()
    for path in ("/", "/verify"):
        shown.goto(path)
        assert shown.evaluate(_BROKEN_WORDS) == [], path
    shown.goto("/")
    table = shown.locator("#views .scroll")
    assert table.evaluate("each => each.scrollWidth - each.clientWidth") <= 0, "the last column is cut off"
    context.close()

"""The page in a real browser, over a project at work: every page, live, with a slider, light and dark.

ROLLVIEW_SCREENSHOTS names a folder for the project and a picture of every page; those in the docs were made
that way.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_shop import LiveShop, at_work
from page_requests import served
from playwright.sync_api import Browser, BrowserContext, Locator, expect

from rollview.web.address import Access, Address

pytestmark = pytest.mark.slow
SCREENSHOTS = os.environ.get("ROLLVIEW_SCREENSHOTS", "")
PATIENCE = 45_000
"""Milliseconds: Spark is slow on a machine that does other things."""
LIVE = re.compile("live|busy")
PAGES = {
    "overview": "/",
    "lineage": "/lineage",
    "transactions": "/transactions",
    "transaction": "/transactions/{csn}",
    "view": "/views/sold",
    "rows": "/views/sold/rows?at={csn}",
    "deltas": "/views/sold/deltas",
    "rolling": "/views/sold/rolling",
    "plan": "/views/states_of_size/plan",
    "refreshes": "/views/sold/refreshes",
    "verify": "/verify",
    "query": "/query",
}
SIZES = {
    "light": {"viewport": {"width": 1180, "height": 800}},
    "dark": {"viewport": {"width": 1180, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[LiveShop]:
    """A shop at work, with some history."""
    folder = Path(SCREENSHOTS) if SCREENSHOTS else tmp_path_factory.mktemp("live")
    with at_work(folder / "shop", spark) as found:
        for sale in range(100, 112):
            found.sell(sale, sale % 6 + 1)
            found.write()
            time.sleep(0.3)
        _until_shown(found)
        yield found


def _until_shown(live: LiveShop) -> int:
    """Waits until everything that was committed before is captured and shown; its csn."""
    started = time.time()
    deadline = started + PATIENCE / 1000
    while True:
        found = live.project.observe.state()
        is_captured = min(source.looked_at for source in found.sources) > started
        # What the page knows may be a second old.
        known = live.page.watch.known().state
        views = (*found.views, *(known.views if known is not None else ()))
        if is_captured and all(view.materialized == found.last_csn for view in views):
            return found.last_csn
        assert time.time() < deadline, found
        time.sleep(0.2)


@pytest.fixture
def context(browser: Browser, live: LiveShop) -> Iterator[BrowserContext]:
    """A browser that knows nothing yet; a page with an error in its console fails the test."""
    found = browser.new_context(base_url=live.page.url, **SIZES["light"])
    found.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    wrong: list[str] = []
    found.on("weberror", lambda error: wrong.append(str(error.error)))
    found.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    yield found
    found.close()
    # A source that goes away and a page that ends are reported by the browser, too.
    assert [each for each in wrong if "Failed to load resource" not in each] == []


def _number(place: Locator) -> int:
    return int(re.sub(r"\D", "", place.inner_text()))


def test_the_first_page_shows_sources_and_views_and_follows(context: BrowserContext, live: LiveShop) -> None:
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#sources tbody tr")).to_have_count(2)
    expect(page.locator("#sources")).to_contain_text("reachable")
    expect(page.locator("#views tbody tr")).to_have_count(3)
    expect(page.locator("#live")).to_have_attribute("data-state", LIVE)
    row = page.locator("#views tr", has=page.get_by_role("link", name="sold", exact=True))
    before = _number(row.locator("td[data-label='shows csn']"))
    page.locator("#find").fill("being typed")
    live.sell(300)
    # Nobody loads the page again, and what is being typed stays.
    expect(row.locator("td[data-label='shows csn']")).not_to_have_text(str(before))
    assert _number(row.locator("td[data-label='shows csn']")) > before
    expect(page.locator("#find")).to_have_value("being typed")
    expect(row.locator("svg.spark")).to_have_attribute("aria-label", re.compile("in the last hour"))


def test_one_gets_from_a_source_to_a_view_to_a_transaction(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/lineage")
    expect(page.locator("svg.lineage .node")).to_have_count(2 + 3 + 3)
    page.get_by_role("link", name="view states_of_size").click()
    expect(page.locator("h1")).to_contain_text("states_of_size")
    page.get_by_role("link", name="Lineage").last.click()
    expect(page.locator("svg.lineage .node")).to_have_count(2 + 2 + 2)
    page.get_by_role("link", name="relation shop.sales").click()
    expect(page.locator("h1")).to_have_text("Transactions of shop.sales")
    page.locator("tbody a.csn").nth(1).click()
    expect(page.locator("h1")).to_contain_text("csn ")
    effect = page.locator("details.effect", has_text="sold").first
    effect.locator("summary").click()
    expect(effect.locator("table.rows, p.dim").first).to_be_visible()
    expect(page.locator("h2", has_text="shop.sales").first).to_contain_text("changed row")


def test_the_slider_rolls_the_table(context: BrowserContext, live: LiveShop) -> None:
    """Each csn that it passes shows what the view was then, by the oracle; changed rows are marked."""
    live.sell(400, 2, 9)
    last = _until_shown(live)
    page = context.new_page()
    page.goto("/views/sold/rows")
    expect(page.locator("#rows .facts")).to_contain_text(f"as of csn {last}")
    slider = page.locator("#range")
    assert slider.get_attribute("max") == str(last)
    slider.focus()
    for csn in (last - 1, last - 2, last - 3):
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#rows .facts")).to_contain_text(f"as of csn {csn}")
        kept = page.locator("table.rows tbody tr:not([data-mark=gone]):not(:has(td[colspan]))")
        expected = live.project.read("sold", csn).count()
        expect(kept).to_have_count(expected)
    expect(page).to_have_url(re.compile(f"at={last - 3}$"))
    page.keyboard.press("End")
    expect(page.locator("#rows .facts")).to_contain_text(f"as of csn {last}")
    new = page.locator("tr[data-mark=new]", has_text="400")
    expect(new).to_have_count(1)
    expect(new.locator(".sign")).to_have_text("+")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "sale_id,state,kind,amount"
    assert len(lines) - 1 == live.project.read("sold", last).count()


def test_a_view_of_sums_rolls_as_well(context: BrowserContext, live: LiveShop) -> None:
    last = _until_shown(live)
    page = context.new_page()
    page.goto(f"/views/sales_by_state/rows?at={last - 1}")
    expect(page.locator("#rows .facts")).to_contain_text(f"as of csn {last - 1}")
    states = {row["state"] or "NULL" for row in live.project.read("sales_by_state", last - 1).collect()}
    shown = page.locator("table.rows tbody tr:not([data-mark=gone]) td:nth-child(2)").all_inner_texts()
    assert set(shown) == states
    page.goto("/views/sales_by_state/deltas")
    expect(page.locator("table.rows tbody tr").first).to_be_visible()


def test_the_rolling_picture_moves(context: BrowserContext, live: LiveShop) -> None:
    page = context.new_page()
    page.goto("/views/sold/rolling")
    expect(page.locator("svg.rolling .lane")).to_have_count(3)
    assert page.locator("svg.rolling .bar[data-kind=even]").count() > 0
    before = page.locator("svg.rolling .mark[data-kind=captured] text").text_content()
    live.sell(500)
    expect(page.locator("svg.rolling .mark[data-kind=captured] text")).not_to_have_text(before or "")
    page.locator("#axis").select_option("time")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("svg.rolling .tick").first).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))


def test_a_view_can_be_refreshed_and_verified(context: BrowserContext, live: LiveShop) -> None:
    page = context.new_page()
    page.goto("/views/sold")
    expect(page.locator("pre.sql")).to_contain_text("JOIN crm.customer")
    page.get_by_role("button", name="Verify now").click()
    expect(page.locator("#health .matter")).to_contain_text("identical when recomputed")
    page.get_by_role("link", name="Verify", exact=True).last.click()
    expect(page.locator("#verified tbody tr").first).to_contain_text("identical")
    page.goto("/verify")
    row = page.locator("tr", has=page.get_by_role("link", name="sold", exact=True))
    expect(row).to_contain_text("identical")
    assert live.project.observe.verifications(["sold"], 1)[0].different == 0


def test_a_query_is_answered_with_its_valid_time(context: BrowserContext, live: LiveShop) -> None:
    last = _until_shown(live)
    page = context.new_page()
    page.goto("/query")
    page.locator("#sql").fill("SELECT count(*) AS n FROM sold")
    page.locator("#sql").press("Control+Enter")
    expect(page.locator("#answer .facts")).to_contain_text(re.compile(f"as of csn {last}.*valid from", re.S))
    expect(page.locator("#answer td")).to_have_text(str(live.project.read("sold", last).count()))
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer tbody")).to_contain_text("sold")
    page.locator("#sql").fill("SELECT nobody FROM sold")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#answer .matter")).to_contain_text("nobody")
    expect(page.locator("#sql")).to_have_value("SELECT nobody FROM sold")


def test_a_source_goes_away_and_comes_back(context: BrowserContext, live: LiveShop) -> None:
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#standing")).to_contain_text("up to date")
    file, away = live.shop.folder / "crm.db", live.shop.folder / "crm.away"
    file.rename(away)
    try:
        expect(page.locator("#matters")).to_contain_text("source crm")
        expect(page.locator("#sources tr", has_text="crm").first).to_contain_text(
            re.compile("stopped|not reachable")
        )
        status = live.project.status()
        reason = next(each.problem or each.halted.reason for each in status.sources if each.site == "crm")
        expect(page.locator("#matters")).to_contain_text(reason.splitlines()[0][:40])
    finally:
        away.rename(file)
    expect(page.locator("#standing")).to_contain_text("up to date")
    live.sell(600)
    _until_shown(live)


def test_who_has_no_token_sees_nothing(browser: Browser, live: LiveShop) -> None:
    token = "a-long-enough-token"
    with served(live.project.clone(), Access(token=token)) as guarded:
        context = browser.new_context(base_url=guarded.url)
        page = context.new_page()
        page.goto("/?token=wrong")
        expect(page.locator("h1")).to_have_text("Sign in")
        expect(page.locator("main")).to_contain_text("not the token")
        expect(page.locator("body")).not_to_contain_text("sold")
        page.get_by_label("Token").fill("wrong again")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("not the token")
        page.goto(f"/?token={token}")
        expect(page).to_have_url(guarded.url)
        expect(page.locator("#views")).to_contain_text("sold")
        # The stream and what pages fetch go by the same pass.
        expect(page.locator("#live")).to_have_attribute("data-state", LIVE)
        cookie = context.cookies()[0]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and token not in cookie["value"]
        context.close()


def test_the_keyboard_reaches_everything(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.locator("header nav a").first.focus()
    page.keyboard.press("Tab")
    focused = page.locator("header nav a").nth(1)
    expect(focused).to_be_focused()
    assert focused.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    for path in PAGES.values():
        page.goto(path.format(csn=3))
        nameless = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(each => !each.labels.length && !each.ariaLabel).length"
        )
        assert nameless == 0, path
        assert page.locator("main").count() == page.locator("h1").count() == 1
        assert page.locator("nav[aria-label]").count() >= 1


@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits(browser: Browser, live: LiveShop, size: str) -> None:
    """No page is wider than its window, none says anything to the console, and light is not dark."""
    csn, wrong = _until_shown(live), list[str]()
    context = browser.new_context(base_url=live.page.url, **SIZES[size])
    context.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    page = context.new_page()
    for name, path in PAGES.items():
        page.goto(path.format(csn=csn - 2))
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("#live")).to_have_attribute("data-state", LIVE)
        expect(page.locator(".waits")).to_have_count(0)
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], (name, wide)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper))) < 384) == (size == "dark")
        if SCREENSHOTS:
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{size}.png", full_page=size == "phone")
    context.close()
    assert wrong == []


def test_without_scripts_the_pages_say_the_same(browser: Browser, live: LiveShop) -> None:
    csn = _until_shown(live)
    context = browser.new_context(base_url=live.page.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#views tbody tr")).to_have_count(3)
    page.goto("/views/sold/rows")
    page.locator("#at").fill(str(csn - 1))
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#rows .facts")).to_contain_text(f"as of csn {csn - 1}")
    context.close()


def test_a_page_that_lost_its_server_says_so_and_finds_it_again(browser: Browser, live: LiveShop) -> None:
    other = live.project.clone()
    context = browser.new_context()
    page = context.new_page()
    with served(other) as first:
        page.goto(first.url)
        expect(page.locator("#live")).to_have_attribute("data-state", LIVE)
        address = first.url
    expect(page.locator("#live-text")).to_have_text("not connected, trying again")
    port = int(address.rstrip("/").rpartition(":")[2])
    with served(live.project.clone(), Access(Address("127.0.0.1", port))):
        expect(page.locator("#live")).to_have_attribute("data-state", LIVE, timeout=PATIENCE)
    context.close()
    other.close()

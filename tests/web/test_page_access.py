"""Who can open a page, what it lets them do, and what no answer ever says."""

from __future__ import annotations

import http.client
import time
from html import unescape
from pathlib import Path

import pytest
from page_requests import Page, served
from paper_project import Size, fill, project_file

from rollview.catalog import PropagateStep, Work, Worked
from rollview.cli.event_lines import sentence
from rollview.errors import OptionError
from rollview.events import Verified
from rollview.project.project import Project
from rollview.upkeep.verify import Verification
from rollview.web.address import Access, Address, access

PAGES = (
    "/",
    "/?find=view&state=running&page=1",
    "/lineage",
    "/lineage?view=view_003",
    "/transactions",
    "/transactions?of=shop.sales",
    "/transactions/99",
    "/verify",
    "/query",
    "/views/view_000",
    "/views/view_000/rolling",
    "/views/view_000/rolling?axis=time&span=50",
    "/views/view_000/plan",
    "/views/view_000/refreshes",
    "/views/view_000/verify",
)
FAILING = (
    "/nowhere",
    "/views/nobody",
    "/transactions/12345",
    "/views/view_000/rows",
    "/views/view_000/deltas",
)
TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_can_be_had_without_spark(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status == 200, answer.text
    assert "</main>" in answer.text and 'class="skip"' in answer.text


@pytest.mark.parametrize("path", [*PAGES[:2], *FAILING, "/assets/page.css", "/assets/page.js", "/sign-in"])
def test_every_answer_keeps_scripts_frames_and_guesses_out(page: Page, path: str) -> None:
    headers = page.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_pages_have_no_scripts_or_styles_of_their_own(page: Page) -> None:
    for path in PAGES:
        text = page.get(path).text
        assert "<style" not in text and "style=" not in text and "onclick" not in text
        assert text.count("<script") == text.count('<script type="module" src="/assets/page.js">') == 1
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text


@pytest.mark.parametrize("path", FAILING)
def test_what_cannot_be_shown_says_why(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status in (400, 404, 503), answer.text
    assert 'id="problem"' in answer.text


def test_on_this_machine_another_name_is_refused(page: Page) -> None:
    """A name that somebody else lets point here (DNS rebinding)."""
    port = page.place.partition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST"):
        assert page.get("/verify", host=host).status == 200, host
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"):
        assert page.get("/verify", host=host).status == 421, host


def test_a_form_from_elsewhere_is_refused(page: Page) -> None:
    assert page.post("/query", {"sql": "SELECT 1", "form_key": "guessed"}).status == 403
    for origin in ("http://evil.example", "null", f"https://{page.place}.evil.example"):
        assert page.post("/query", {"sql": "SELECT 1"}, origin=origin).status == 403
    assert page.post("/views/view_000/refresh", {"form_key": ""}).status == 403


@pytest.mark.parametrize(
    "call", ["reflect('java.util.UUID', 'randomUUID')", "`JAVA_METHOD`('x')", "try_reflect/**/('x')"]
)
def test_a_query_calls_no_java(page: Page, call: str) -> None:
    for more in ({}, {"explain": "yes"}):
        answer = page.post("/query", {"sql": f"SELECT {call}", **more})
        assert answer.status == 400 and "cannot be used" in answer.text


def test_reading_is_all_that_is_allowed_unless_asked_for(page: Page) -> None:
    for what in ("refresh", "verify"):
        answer = page.post(f"/views/view_000/{what}")
        assert answer.status == 403 and "--allow-actions" in answer.text
    assert "Refresh now" not in page.get("/views/view_000").text


def test_actions_are_offered_where_they_are_allowed(paper: Project) -> None:
    with served(paper, Access(allows_actions=True)) as page:
        assert "Refresh now" in page.get("/views/view_000").text
        assert page.post("/views/view_000/refresh", {"form_key": "guessed"}).status == 403
        assert page.post("/views/nobody/refresh").status == 400


def test_the_plan_lists_what_each_algorithm_has_cost(tmp_path: Path) -> None:
    path = project_file(tmp_path)
    fill(path, Size())
    with Project.open(path) as project:
        catalog = project._warehouse.catalog
        with served(project) as page:
            assert "ms per transaction" not in page.get("/views/view_000/plan").text
            with catalog.lease("propagate:view_000") as lease:
                step = catalog.steps.begin(lease, "view_000", PropagateStep((), ()))
                work = Work(steps=1, lookups=81, rows_found=7)
                catalog.steps.finish(lease, step, Worked("view_000", work, "sweep", 4, 0.25))
                catalog.works.note_failure(lease, "view_000", "c-strobe", "no <rest>")
            text = page.get("/views/view_000/plan").text
        assert '<td>sweep <span class="chip">in use</span></td><td class="num">1</td>' in text
        assert '<td class="num">81</td><td class="num">7</td><td class="num">62.5</td>' in text
        assert "failed: no &lt;rest&gt;" in text


def test_a_token_is_asked_for_once(paper: Project) -> None:
    with served(paper, Access(token=TOKEN)) as page:
        for path in ("/", "/views/view_000", "/live", "/nowhere"):
            assert page.get(path).status == 401, path
        assert paper.views[0] not in page.get("/").text
        for wrong in ("wrong", "", TOKEN + "x", TOKEN[:-1]):
            answer = page.get(f"/?token={wrong}")
            assert answer.status == 401 and "set-cookie" not in answer.headers
            assert page.post("/sign-in", {"token": wrong}).status == 401
        answer = page.get(f"/lineage?view=view_003&token={TOKEN}")
        assert (answer.status, answer.headers["location"]) == (303, "/lineage?view=view_003")
        assert page.get(f"//elsewhere.example/x?token={TOKEN}").headers["location"] == "/elsewhere.example/x"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
        kept = cookie.partition(";")[0]
        assert page.get("/", cookie=kept).status == 200
        assert page.get("/", cookie=kept[:-1]).status == 401
        assert page.get("/", cookie="; ;=").status == 401
        assert page.get("/", authorization=f"Bearer {TOKEN}").status == 200
        assert page.get("/", authorization="Bearer wrong").status == 401
        assert page.post("/sign-in", {"token": TOKEN}).status == 303
        assert page.get("/assets/page.css").status == 200


def test_the_token_comes_from_a_file_the_environment_or_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere, here = Address("0.0.0.0", 1), Address()
    monkeypatch.delenv("ROLLVIEW_UI_TOKEN", raising=False)
    assert access(here, None, False).token == ""
    made = access(everywhere, None, False)
    assert len(made.token) > 20 and made.is_generated and made.token in made.url(1)
    assert made.token != access(everywhere, None, False).token
    monkeypatch.setenv("ROLLVIEW_UI_TOKEN", TOKEN)
    assert access(here, None, False).token == TOKEN and TOKEN not in access(here, None, False).url(1)
    file = tmp_path / "token"
    file.write_text("of-a-file-0123456789\n")
    assert access(everywhere, file, False).token == "of-a-file-0123456789"
    file.write_text("short")
    with pytest.raises(OptionError, match="too short"):
        access(here, file, False)
    with pytest.raises(OptionError, match="cannot be read"):
        access(here, tmp_path / "none", False)
    assert "token" not in repr(made) and made.token not in repr(made)


def test_which_addresses_only_this_machine_can_reach() -> None:
    assert [Address(host).is_loopback for host in ("::1", "127.3.2.1", "localhost")] == [True] * 3
    assert not any(Address(host).is_loopback for host in ("0.0.0.0", "::", "example.org", "10.0.0.1"))


def test_a_port_that_is_taken_is_reported(paper: Project, page: Page) -> None:
    port = int(page.place.partition(":")[2])
    with pytest.raises(OptionError, match="cannot listen"), served(paper, Access(Address("127.0.0.1", port))):
        pass


SECRET = "hunter2-very-secret"


def test_a_password_is_in_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source does not answer, and its driver says anything, the address included."""
    dsn = f"postgresql://user:{SECRET}@127.0.0.1:1/crm"
    path = project_file(tmp_path / "secret", f'{{type: postgres, dsn: "{dsn}"}}')
    fill(path, Size())

    monkeypatch.setattr("rollview.web.watch.ASK_SECONDS", 0.1)

    def fail(*_: object) -> None:
        raise RuntimeError(f"cannot connect to {dsn}")

    with Project.open(path) as project, served(project) as page:
        monkeypatch.setattr("rollview.runtime.sites.Sites.source_at", fail)
        _wait_for(page, "cannot connect to postgresql://user:***@")
        for place in (*PAGES, *FAILING, "/query?sql=SELECT%20*%20FROM%20crm.customer"):
            assert SECRET not in page.get(place).text, place
        assert SECRET not in page.post("/query", {"sql": "SELECT * FROM nobody", "as_of": "csn:x"}).text
        connection = http.client.HTTPConnection(page.place, timeout=60)
        connection.request("GET", "/live")
        assert SECRET.encode() not in connection.getresponse().read(60)
        connection.close()
        monkeypatch.setattr("rollview.observe.observer.project_state", fail)
        _wait_for(page, "RuntimeError: cannot connect to postgresql://user:***@")
        for place in ("/", "/views/view_000", "/query"):
            assert SECRET not in page.get(place).text, place


def _wait_for(page: Page, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in page.get("/").text:
        assert time.monotonic() < deadline, page.get("/").text
        time.sleep(0.1)


def test_addresses_for_machines(page: Page) -> None:
    """What `rollview run --metrics` serves is at the page, too, for those who have the token."""
    metrics = page.get("/metrics")
    assert metrics.status == 200
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    assert b"rollview_view_csn" in metrics.body
    assert page.get("/healthz").status == 200
    assert b'"ready"' in page.get("/readyz").body


def test_a_wrong_view_is_an_error_with_a_command_that_can_be_typed(
    paper: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names every view to reload: those that differ, and those that could not be verified."""

    def verified(view: str, different: int, *suspects: str) -> Verification:
        return Verification(view, 100, 5, different, ("id",), (), suspects=suspects)

    found = [verified("view_000", 2, "odd name", "view_002", "view_001"), verified("odd name", 1)]
    monkeypatch.setattr(Project, "verify", lambda *_: [*found, verified("view_002", 0)])
    with served(paper, Access(allows_actions=True)) as page:
        assert page.post("/views/view_000/verify").status == 303
        deadline = time.monotonic() + 20
        while "failed" not in (text := page.get("/views/view_000").text):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
    shown = unescape(text)
    assert "2 rows of 5 differ at csn 100" in shown and 'data-level="error"' in text
    assert "odd name: read the same tables, and differ, too" in shown
    assert "view_001: could not be verified, and may be wrong as well" in shown
    command = "rollview setup --reload view_000 --reload 'odd name' --reload view_001"
    assert f"<code>{command}</code> reloads what is wrong" in shown
    line = sentence(Verified("odd name", 100, 5, 2, ("x",)))
    assert "`rollview setup --reload 'odd name'` reloads it" in line

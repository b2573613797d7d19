"""Requests that no browser sends: whatever they hold, an answer says what is wrong, and is never a 500."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from page_requests import Page, served

from rollview.project.project import Project
from rollview.web.address import Access, Address
from rollview.web.app import _GET, _POST

NUMBERS = (
    *("-1", "+1", "1.5", "1e3", "0x10", "1_000", "nan", "²", "٣", "１", "null", "' OR 1=1", "\x00"),
    *("9" * 19, "9" * 26, "9" * 5000, str(2**63), str(-(2**63) - 1), "0" * 40 + "1"),
)
"""None of them is a number that a page has."""
HUGE = str(2**63 - 1)
TEXTS = (
    "",
    " 1",
    "nobody",
    "..",
    "%",
    "\x00",
    "a" * 3000,
    "Ä\u2028",
    "\ud800",
    "<script>",
    "${x}",
    "' OR 1=1 --",
)
_QUERIED = {
    "/": ("page", "find", "state", "token"),
    "/lineage": ("view",),
    "/transactions": ("csn", "before", "of"),
    "/query": ("sql",),
    "/views/{name}/rolling": ("span", "axis"),
    "/views/{name}/rows": ("at", "since", "page"),
    "/views/{name}/rows.csv": ("at",),
    "/views/{name}/deltas": ("span", "to"),
    "/views/{name}/refreshes": ("before",),
}
_USUAL = {"name": "view_000", "csn": "99"}
_TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def open_page(paper: Project) -> Iterator[Page]:
    """The page as other machines reach it: any name of a host, and a token."""
    with served(paper, Access(Address("0.0.0.0", 0), token=_TOKEN, allows_actions=True)) as found:
        yield found


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def _addresses(text: str) -> Iterator[str]:
    """Every address of the page with a text in each place of it."""
    for path, _ in (*_GET, *_POST):
        if path == "/live":
            continue
        places = re.findall(r"\{(\w+)[^}]*\}", path)
        for place in places:
            given = {**_USUAL, place: _quoted(text)}
            yield re.sub(r"\{(\w+)[^}]*\}", lambda found, given=given: given[found[1]], path)
        plain = re.sub(r"\{(\w+)[^}]*\}", lambda found: _USUAL[found[1]], path)
        for name in _QUERIED.get(path, ()):
            yield f"{plain}?{name}={_quoted(text)}"


def _check(answer: tuple[int, str], what: str) -> None:
    status, text = answer
    assert status < 500 or (status == 503 and 'id="problem"' in text), (status, what, text[:300])


def _ask(page: Page, method: str, path: str, **headers: str) -> tuple[int, str]:
    found = page.get(path, **headers) if method == "GET" else page.post(path, **headers)
    return found.status, found.text


@pytest.mark.parametrize("text", [*NUMBERS, HUGE, *TEXTS], ids=lambda each: ascii(each)[:20])
def test_no_address_fails(page: Page, text: str) -> None:
    for path in _addresses(text):
        _check(_ask(page, "GET", path), path)


@pytest.mark.parametrize("text", NUMBERS, ids=lambda each: ascii(each)[:20])
def test_what_is_no_number_is_refused_with_a_page(page: Page, text: str) -> None:
    named = [f"/transactions/{_quoted(text)}", f"/views/view_000/deltas/{_quoted(text)}"]
    for path in (*named, *(f"/transactions?{name}={_quoted(text)}" for name in ("csn", "before"))):
        status, shown = _ask(page, "GET", path)
        assert status in (400, 404) and 'id="problem"' in shown, (status, path)
    for path in (f"/?page={_quoted(text)}", f"/views/view_000/rolling?span={_quoted(text)}"):
        status, shown = _ask(page, "GET", path)
        assert status == 400 and "is not a whole number" in shown, (status, path)


def test_an_empty_field_of_a_form_is_one_that_is_not_there(page: Page) -> None:
    assert page.get("/?page=&find=&state=").status == 200
    assert page.get("/transactions?csn=&of=").status == 200


def test_the_largest_number_is_a_transaction_that_nobody_knows(page: Page) -> None:
    for number in (HUGE, "99999999999999999999999999", "0"):
        answer = page.get(f"/transactions/{number}")
        assert answer.status in (400, 404) and 'id="problem"' in answer.text, number


@pytest.mark.parametrize("text", [*NUMBERS[:2], *TEXTS], ids=lambda each: ascii(each)[:20])
def test_no_header_fails(page: Page, open_page: Page, text: str) -> None:
    """Headers of any bytes, where any host is accepted and where only this machine's is."""
    values = [text, f"http://{text}", f"[{text}", "http://[", f"{text}:99999999"]
    for value in values:
        sent = value.encode("utf-8", "surrogatepass").decode("latin-1")
        if re.search(r"[\x00\r\n]", sent):
            continue
        for name in ("host", "origin", "cookie", "authorization", "referer"):
            for served_page, more in ((page, {}), (open_page, {"authorization": f"Bearer {_TOKEN}"})):
                for method, path in (
                    ("GET", "/nowhere"),
                    ("GET", "/views/view_000/rows"),
                    ("POST", "/query"),
                ):
                    answer = _ask(served_page, method, path, **{**more, name: sent})
                    _check(answer, f"{name}: {value!r} {path}")


def test_no_method_fails(page: Page) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "CONNECT", "X" * 500):
        for path in (
            "/",
            "/query",
            "/views/view_000/refresh",
            "/metrics",
            "/assets/page.css",
            "/nowhere",
            "*",
        ):
            connection = http.client.HTTPConnection(page.place, timeout=20)
            connection.request(method, path)
            answer = connection.getresponse()
            assert answer.status < 500, (method, path, answer.status)
            connection.close()


@pytest.mark.parametrize("text", [*NUMBERS, *TEXTS[2:]], ids=lambda each: ascii(each)[:20])
def test_no_form_fails(page: Page, text: str) -> None:
    plain = text.encode("utf-8", "replace").decode()
    for fields in ({"sql": "", "as_of": plain}, {"sql": "SELECT 1", "as_of": f"csn:{plain}"}):
        answer = page.post("/query", fields)
        _check((answer.status, answer.text), str(fields))


@pytest.mark.parametrize(
    "path", ["/assets/%00", "/assets/../app.py", "/assets/" + "a" * 5000, "/assets/%2e%2e/"]
)
def test_nothing_but_assets_is_among_the_assets(page: Page, path: str) -> None:
    with socket.create_connection(
        (page.place.partition(":")[0], int(page.place.partition(":")[2])), 20
    ) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        assert answer.status == 404, answer.status

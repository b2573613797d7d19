"""Requests to a page as any program makes them, and a page that is served while a test lasts."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlencode, urlsplit

from rollview.monitoring import Monitor
from rollview.project.project import Project
from rollview.web.address import Access, Address
from rollview.web.server import serving
from rollview.web.watch import Watch


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True)
class Page:
    """A page that is being served."""

    url: str
    access: Access
    watch: Watch

    @property
    def place(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    def get(self, path: str, **headers: str) -> Answer:
        """Asks for a page; `_` in the name of a header is a hyphen."""
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Sends a form; with the key of this page's forms, unless that is given."""
        known = {"form_key": self.access.form_key, **(fields or {})}
        kind = {"content_type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(known), {**kind, **headers})

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection(self.place, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()


@contextmanager
def served(project: Project, access: Access | None = None, at_work: Project | None = None) -> Iterator[Page]:
    """Serves a project on a free port of this machine; `at_work` is the same project, run here."""
    allowed = access or Access()
    if allowed.address == Address():
        allowed = replace(allowed, address=Address("127.0.0.1", 0))
    watch = Watch(project, at_work)
    with serving(project, watch, allowed, Monitor(project)) as url:
        yield Page(url.partition("?")[0], allowed, watch)

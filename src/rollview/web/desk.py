"""What every page has at hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.requests import Request

from rollview.errors import InputError
from rollview.service.overview import Overview, ViewLine
from rollview.service.project import Project
from rollview.service.views import unknown_view
from rollview.web.address import Access
from rollview.web.rendering import Renderer
from rollview.web.row_history import RowHistories
from rollview.web.tasks import Tasks
from rollview.web.watch import Watch

_LARGEST_FORM = 100_000


@dataclass(frozen=True)
class Desk:
    """The project, what is known of it, and what makes pages."""

    project: Project
    watch: Watch
    access: Access
    renderer: Renderer
    tasks: Tasks
    histories: RowHistories
    reading: threading.Lock = field(default_factory=threading.Lock)
    """Whoever reads by Spark holds it: pages ask one after the other, and leave the rest to maintenance."""

    def overview(self) -> Overview:
        """Where everything stands; raises what keeps the catalog from answering."""
        known = self.watch.known()
        if known.overview is None:
            raise known.problem or InputError("the catalog has not answered yet", hint="look again")
        return known.overview

    def view(self, name: str) -> ViewLine:
        """A view by name."""
        found = {each.name: each for each in self.overview().views}
        if name not in found:
            raise unknown_view(name, found)
        return found[name]

    @contextmanager
    def one_reader(self) -> Iterator[None]:
        """One at a time."""
        with self.reading:
            yield


def number_in(request: Request, name: str, default: int = 0, least: int = 0) -> int:
    """A number in the query of an address; the default where it is missing or is no number."""
    text = request.query_params.get(name, "")
    return max(least, int(text)) if text.isdecimal() and len(text) < 19 else default


async def form_of(request: Request, access: Access) -> dict[str, str] | None:
    """The fields of a form of ours; None if it is somebody else's."""
    fields = await fields_of(request)
    return fields if access.made_here(fields.get("form_key", "")) else None


async def fields_of(request: Request) -> dict[str, str]:
    """The fields of any form; none if it is too large."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_FORM:
            return {}
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

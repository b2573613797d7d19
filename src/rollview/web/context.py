"""The context of every page: the project and its known state; numbers and forms of requests."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import wait
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from rollview.answer.pool import AnswerPool
from rollview.answer.requests import Asking, Reply
from rollview.answer.requests import Request as AnswerRequest
from rollview.errors import InputError, PointError
from rollview.observe.state import ProjectState, ViewState
from rollview.project.project import Project
from rollview.views.views import unknown_view
from rollview.web.address import Access
from rollview.web.rendering import Renderer
from rollview.web.row_history import RowHistories
from rollview.web.tasks import Tasks
from rollview.web.watch import Watch

LARGEST_FORM = 100_000
_LARGEST_NUMBER = 2**63 - 1
"""The largest integer of a catalog column."""
_LONGEST_SHOWN = 40
_LOOK_SECONDS = 0.25
LOOP = "rollview.loop"
"""The key of a request's scope for the event loop that serves it."""


@dataclass(frozen=True)
class PageContext:
    """The project, its known state, and the renderer of pages."""

    project: Project
    watch: Watch
    access: Access
    renderer: Renderer
    tasks: Tasks
    histories: RowHistories
    answers: AnswerPool
    """Answers that need Spark: other processes compute them, which can be killed."""
    streams: list[object] = field(default_factory=list)
    """The open streams of events, the oldest first."""

    def state(self) -> ProjectState:
        """The state of the project; raises the error if the catalog does not answer."""
        known = self.watch.known()
        if known.state is None:
            raise known.problem or InputError("the catalog has not answered yet", hint="look again")
        return known.state

    def view(self, name: str) -> ViewState:
        found = {each.name: each for each in self.state().views}
        if name not in found:
            raise unknown_view(name, found)
        return found[name]

    def asking(self, client: Request) -> Asking:
        """Asks for answers that Spark computes, for as long as this client waits for them."""
        return lambda request: self._answered(client, request)

    def _answered(self, client: Request, request: AnswerRequest) -> Reply:
        """Asks and waits; not for the event loop's thread."""
        asked = self.answers.ask(request)
        try:
            while wait([asked.answer], _LOOK_SECONDS).not_done:
                gone = asyncio.run_coroutine_threadsafe(client.is_disconnected(), client.scope[LOOP])
                if gone.result():
                    raise InputError("the client is gone")
            return asked.answer.result()
        finally:
            asked.cancel()


def number_in(request: Request, name: str, default: int = 0, least: int = 0) -> int:
    """A number in the query of an address; the default where there is none."""
    text = request.query_params.get(name, "")
    return max(least, whole_number(text, name)) if text else default


def csn_in(request: Request) -> int:
    """The csn in the path of an address."""
    return whole_number(request.path_params["csn"], "csn")


def whole_number(text: str, name: str) -> int:
    """A number from a request; refuses numbers beyond the catalog's range, and digits that are not ASCII."""
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > _LARGEST_NUMBER:
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        hint = f"a whole number from 0 to {_LARGEST_NUMBER}"
        raise PointError(f"{name}: `{shown}` is not a whole number", subject=name, hint=hint)
    return int(text)


async def form_of(request: Request, access: Access) -> dict[str, str] | None:
    """The fields of a form; None if it is not from one of our pages."""
    fields = await fields_of(request)
    return fields if access.made_here(fields.get("form_key", "")) else None


async def fields_of(request: Request) -> dict[str, str]:
    """The fields of any form; refuses one that is too large."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_FORM:
            raise HTTPException(413, f"A form has at most {LARGEST_FORM} bytes.")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

"""Tells open pages, by server-sent events, that something has changed; they fetch themselves again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rollview.web.desk import Desk
from rollview.web.watch import Watch

_LOOK_SECONDS = 0.25
_BEAT_SECONDS = 10.0


async def stream(desk: Desk, _: Request) -> Response:
    """A stream that lasts as long as the page is open."""
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_events(desk.watch), media_type="text/event-stream", headers=headers)


async def _events(watch: Watch) -> AsyncIterator[str]:
    last: tuple[int, str] = (-1, "")
    silent = 0.0
    yield "retry: 2000\n\n"
    while not watch.is_closed:
        watch.somebody_watches()
        now = (watch.version, watch.activity)
        if now != last:
            last, silent = now, 0.0
            told = json.dumps({"version": now[0], "activity": now[1]})
            yield f"event: changed\ndata: {told}\n\n"
        elif silent >= _BEAT_SECONDS:
            # A line that no page reads, so that a connection that broke is noticed.
            silent = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(_LOOK_SECONDS)
        silent += _LOOK_SECONDS

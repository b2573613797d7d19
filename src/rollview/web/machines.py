"""Addresses for machines: metrics, and whether all is well. They need the token as all others do."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rollview.monitoring import Answer, Monitor, health, metrics_text, ready


def machine_routes(monitor: Monitor) -> Iterator[Route]:
    """`/metrics`, `/healthz` and `/readyz`, as `rollview run --metrics PORT` serves them."""

    def metrics(_: Request) -> Response:
        return Response(metrics_text(monitor), headers={"content-type": CONTENT_TYPE_LATEST})

    def healthz(_: Request) -> Response:
        return _probe(health(monitor))

    def readyz(_: Request) -> Response:
        return _probe(ready(monitor))

    for path, answer in (("/metrics", metrics), ("/healthz", healthz), ("/readyz", readyz)):
        yield Route(path, answer, methods=["GET"])


def _probe(answer: Answer) -> Response:
    return JSONResponse(answer.body, 200 if answer.ok else 503)
